"""Without a device, SGLang is what it is without us.

Two interpreters see the same packages through folders of links; one of them sees ours as well. That works the same for
an editable installation and a normal one, because neither's own import hooks take part.
"""

from __future__ import annotations

import importlib.util
import json
import site
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreter import run

OUR_PACKAGES = ("hookspecs", "kunhook", "kunlun_backend")
OUR_FILES = ("kunhook", "hookspecs", "kunlun_backend", "__editable__")

SNAPSHOT = """
import json, logging, os, re, signal, sys, threading, types, warnings

before = dict(os.environ)
import sglang
from sglang.srt.plugins import load_plugins

if "load" in sys.argv:
    load_plugins()

WATCHED = ("torch", "triton", "sglang", "builtins")


def identity(value):
    # Where a thing was defined, not where it is stored: equal in two interpreters unless somebody replaced it.
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if type(value) is int and value >> 40:
        return f"{kind}, an address"
    if value is None or type(value) in (bool, int, str, bytes, float):
        return re.sub("0x[0-9a-f]{8,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "random", f"{kind}={value!r}")
    if isinstance(value, types.ModuleType):
        return f"{kind} {value.__name__}"
    if not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return kind
    code = getattr(value, "__code__", None)
    line = code.co_firstlineno if isinstance(code, types.CodeType) else None
    return f"{kind} {value.__module__}.{value.__qualname__}:{line} {'__wrapped__' in dir(value)}"


def attributes(module):
    found = {}
    for name, value in list(vars(module).items()):
        found[name] = identity(value)
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, member in list(vars(value).items()):
                found[f"{name}.{inner}"] = identity(member)
    return found


state = {
    "modules": sorted(sys.modules),
    "attributes": {
        name: attributes(module)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in WATCHED and module is not None
    },
    "import": identity(__import__),
    "meta_path": [identity(finder) for finder in sys.meta_path],
    "path_hooks": [identity(hook) for hook in sys.path_hooks],
    "path": sys.path,
    "excepthook": [identity(sys.excepthook), identity(threading.excepthook)],
    "root logger": [logging.root.level, [identity(handler) for handler in logging.root.handlers]],
    "loggers": sorted(logging.root.manager.loggerDict),
    "warnings": [str(entry) for entry in warnings.filters],
    "signals": {number.name: identity(signal.getsignal(number)) for number in signal.valid_signals()
                if isinstance(number, signal.Signals)},
    "threads": sorted(thread.name for thread in threading.enumerate()),
    "environment": {
        key: value for key, value in os.environ.items() if before.get(key) != value
    },
    "platform": identity(type(__import__("sglang.srt.platforms").srt.platforms.current_platform)),
}
json.dump(state, open(os.path.join(os.environ["OUT"], "state.json"), "w"))
"""


def folders(root: Path) -> tuple[Path, Path]:
    """Two folders of links: everything installed except us, and us."""
    others, ours = root / "others", root / "ours"
    for folder in (others, ours):
        folder.mkdir()
    for installed in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *_user_site()):
        for entry in Path(installed).iterdir():
            link = others / entry.name
            if not entry.name.startswith(OUR_FILES) and entry.suffix != ".pth" and not link.is_symlink():
                link.symlink_to(entry)
    for package in OUR_PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        (ours / package).symlink_to(Path(spec.origin).parent)
    info = Path(str(metadata.distribution("kunhook")._path))  # type: ignore[attr-defined]
    (ours / info.name).symlink_to(info)
    return others, ours


def _user_site() -> list[str]:
    return [site.getusersitepackages()] if site.ENABLE_USER_SITE and Path(site.getusersitepackages()).is_dir() else []


def snapshot(root: Path, name: str, path: list[Path], load: bool) -> dict[str, Any]:
    """What a fresh interpreter holds after ``import sglang``."""
    scratch = root / name
    scratch.mkdir()
    arguments = ["load"] if load else []
    done = run(SNAPSHOT, root, env={"OUT": str(scratch)}, path=path, arguments=arguments, options=["-S"])
    assert done.returncode == 0, done.stderr
    state: dict[str, Any] = json.loads((scratch / "state.json").read_text())
    state["stdout"], state["stderr"] = done.stdout, done.stderr
    return state


@pytest.fixture(scope="module", params=[False, True], ids=["import sglang", "load_plugins()"])
def states(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    root = tmp_path_factory.mktemp("absent")
    others, ours = folders(root)
    # An empty folder stands where ours would be, so that the paths have the same length.
    empty = root / "none"
    empty.mkdir()
    hidden = snapshot(root, "hidden", [others, empty], request.param)
    visible = snapshot(root, "visible", [others, ours], request.param)
    visible["path"] = [str(empty) if place == str(ours) else place for place in visible["path"]]
    return hidden, visible


def test_the_comparison_sees_us(states: tuple[Any, Any]) -> None:
    hidden, visible = states
    assert not [name for name in hidden["modules"] if name.partition(".")[0] in OUR_PACKAGES]
    assert "kunhook.activation" in visible["modules"]
    assert len(hidden["attributes"]) > 500
    assert hidden["platform"] == visible["platform"] != ""


def test_no_attribute_of_sglang_torch_triton_or_builtins_differs(states: tuple[Any, Any]) -> None:
    hidden, visible = states
    assert sorted(hidden["attributes"]) == sorted(visible["attributes"])
    differing = {
        f"{module}.{name}": (hidden["attributes"][module].get(name), attributes.get(name))
        for module, attributes in visible["attributes"].items()
        for name in {*attributes, *hidden["attributes"][module]}
        if hidden["attributes"][module].get(name) != attributes.get(name)
    }
    assert differing == {}


@pytest.mark.parametrize(
    "what",
    [
        "import",
        "meta_path",
        "path_hooks",
        "path",
        "excepthook",
        "root logger",
        "warnings",
        "signals",
        "threads",
        "environment",
        "platform",
        "stdout",
        "stderr",
    ],
)
def test_the_interpreter_is_the_same(states: tuple[Any, Any], what: str) -> None:
    hidden, visible = states
    assert visible[what] == hidden[what]


def test_only_we_and_what_we_stand_on_are_imported_on_top(states: tuple[Any, Any]) -> None:
    hidden, visible = states
    added = {name.partition(".")[0] for name in set(visible["modules"]) - set(hidden["modules"])}
    requirements = {"packaging", "pluggy", "psutil", "msgspec", "structlog", "wrapt"}
    assert set(hidden["modules"]) <= set(visible["modules"])
    assert added - requirements - sys.stdlib_module_names <= set(OUR_PACKAGES)
