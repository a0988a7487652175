"""Every hook is documented, its example works, and a test names it."""

from __future__ import annotations

import ast
import glob
import inspect
import re
import sys
import textwrap
import typing
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import hookspecs
from hookspecs import HOOKS, SPEC_VERSION, HookSpec, Mode
from kunhook import answers, registration, versions
from kunhook.seams import catalogue
from tests.support.workbench import DEVICE, Workbench, detection

TESTS = Path(__file__).parents[1]
SECTIONS = ("Args", "Returns", "Errors", "Example")
EVERY_HOOK = pytest.mark.parametrize("spec", HOOKS.values(), ids=HOOKS)


def sections(spec: HookSpec) -> dict[str, str]:
    """Text of each section of a docstring; ``""`` holds what comes before the first."""
    heading = re.compile(rf"^({'|'.join(SECTIONS)})::?$", re.MULTILINE)
    parts = heading.split(inspect.getdoc(spec.function) or "")
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def example(spec: HookSpec) -> str:
    return textwrap.dedent(sections(spec)["Example"]).strip("\n")


@EVERY_HOOK
def test_docstring_is_complete(spec: HookSpec) -> None:
    text = sections(spec)
    assert re.fullmatch(r"[A-Z].*\.", spec.summary)
    assert re.search(r"^(Asked|Called) ", text[""], re.MULTILINE), "says neither when nor where it is asked"
    assert text["Returns"].strip()
    assert text["Errors"].strip()
    documented = re.findall(r"^    (\w+): \S", text.get("Args", ""), re.MULTILINE)
    assert documented == list(spec.arguments)


@EVERY_HOOK
def test_marks_are_complete(spec: HookSpec) -> None:
    assert re.fullmatch(r"\S.*\.", spec.marks.none), "`none` is one sentence"
    assert 1 <= spec.marks.since <= SPEC_VERSION
    assert spec.function.__annotations__.keys() == {*spec.arguments, "return"}
    if spec.marks.key_argument:
        annotation = typing.get_type_hints(spec.function)[spec.marks.key_argument]
        assert typing.get_args(annotation) == spec.marks.keys
    if spec.marks.mode is not Mode.EACH:
        assert type(None) in typing.get_args(typing.get_type_hints(spec.function)["return"])


@EVERY_HOOK
def test_example_is_accepted(spec: HookSpec, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example registers, runs, and answers what the specification promises."""
    text = example(spec)
    assert len(text.splitlines()) < 12
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == [spec.name]
    module = ModuleType("example")
    vars(module).update(vars(hookspecs) | {"glob": glob, "pool": SimpleNamespace(used=1)})
    exec(compile(text, spec.name, "exec"), vars(module))
    candidate = bench.plugin("example")
    (implementation,) = registration.register(registration.new_manager(), candidate, module).implementations
    monkeypatch.setitem(sys.modules, "acme_runtime", SimpleNamespace(open_context=lambda: None))
    available = {
        "full": False,
        "detection": detection(DEVICE),
        "server_args": SimpleNamespace(max_running_requests=1024, tp_size=2, pp_size=1),
        "model": SimpleNamespace(named_parameters=list),
    }
    if spec.marks.key_argument:
        available[spec.marks.key_argument] = spec.marks.keys[0]
    answers.checked(spec, "example", implementation.ask(**available))


@EVERY_HOOK
def test_seams_are_catalogued_without_overlap(spec: HookSpec) -> None:
    assert catalogue.seams_of(spec.name)
    for version in ("0.5.17", "0.5.19", "0.5.21", "0.5.23"):
        ranges = [seam.sglang for seam in catalogue.seams_of(spec.name)]
        assert sum(versions.unmet("sglang", version, wanted) is None for wanted in ranges) <= 1


def test_every_hook_has_a_test() -> None:
    named = {
        node.name.removeprefix("test_hook_")
        for file in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_hook_")
    }
    assert set(HOOKS) - named == set()
