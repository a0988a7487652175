"""Fingerprints, comparison, explanation and command of ``kunhook audit``, on modules made up for a test."""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import types
import weakref

import msgspec
import pluggy
import pytest
from click.testing import CliRunner

from hookspecs import AttnBackend, EnvDefault, OpImpl, TritonWorkaround
from kunhook import discovery
from kunhook.audit import explain, loaded, rules, run, snapshot
from kunhook.audit.compare import Difference, Noise, differences
from kunhook.audit.fingerprint import Fingerprinter
from kunhook.cli import cli, options
from kunhook.errors import KunhookError
from kunhook.seams import catalogue

WORLD = """
import enum, functools, types

NUMBERS = (3, 4)
NAMES = ['b', 'a']
REGISTRY = {'a': 1, 'inner': {'x': [1]}}
ALLOWED = {'x', 'y'}
ALIAS = REGISTRY
behind = {'a': 1}
PROXY = types.MappingProxyType(behind)

def plain(x, y=1, *, z=2):
    return x + y

def outer(held):
    def inner():
        return held
    return inner

made = outer(1)
cached = functools.lru_cache(plain)
bound = functools.partial(max, 1)
extend = NAMES.extend

class Color(enum.Enum):
    RED = 1

class Slotted:
    __slots__ = ('value', 'unset')
    def __init__(self):
        self.value = 1

class Base:
    table = {'k': 1}
    def method(self): return 1
    @staticmethod
    def static(): return 1
    @classmethod
    def of_class(cls): return 1
    @property
    def prop(self): return 1

class Child(Base):
    pass

color = Color.RED
slotted = Slotted()
instance = Base()
instance.state = {'n': 1}
"""


_numbers = itertools.count()


@pytest.fixture
def world(monkeypatch):
    """A module of a package that is compared. Each has a name of its own, because classes live on."""
    module = types.ModuleType(f"made_up_{next(_numbers)}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(WORLD, "/made_up.py", "exec"), vars(module))
    return module


def record(world):
    return json.loads(json.dumps(snapshot.record((world.__name__,), dict(os.environ))))


def changed(world, deed):
    """What differs after a deed, without the name of the package."""
    before = record(world)
    deed(world)
    return [
        msgspec.structs.replace(d, path=tuple(part.replace(world.__name__, "world") for part in d.path))
        for d in differences(before, record(world))
    ]


def wrap(world):
    original = world.plain
    world.plain = functools.wraps(original)(lambda *args: original(*args))


def put_between(world):
    world.Child.__bases__ = (type("Other", (world.Base,), {"__module__": "elsewhere"}),)


def impersonate(world):
    world.Base = type("Base", (), {"__module__": world.__name__, "__qualname__": "Base"})


def put_module(world):
    name = f"{world.__name__}.fake"
    sys.modules[name] = types.ModuleType(name)


def rebind(name, value):
    return lambda world: setattr(world, name, value(world) if callable(value) else value)


def on_class(name, value):
    return lambda world: setattr(world.Base, name, value)


DEEDS = {
    "nothing": (lambda world: None, []),
    "use of a cache": (lambda world: world.cached(1), []),
    "order of names": (lambda world: world.NAMES.sort(), []),
    "constant": (rebind("NUMBERS", (3, 5)), ["removed world.NUMBERS", "added world.NUMBERS"]),
    "order of numbers": (rebind("NUMBERS", (4, 3)), ["reordered world.NUMBERS"]),
    "another kind of container": (rebind("NUMBERS", [3, 4]), ["changed world.NUMBERS"]),
    "list item": (lambda world: world.NAMES.append("c"), ["added world.NAMES"]),
    "set item": (lambda world: world.ALLOWED.add("z"), ["added world.ALLOWED"]),
    "dict entry": (lambda world: world.REGISTRY.update(b=2), ["added world.ALIAS[b]"]),
    "dict value": (lambda world: world.REGISTRY.update(a=2), ["changed world.ALIAS[a]"]),
    "dict entry gone": (lambda world: world.REGISTRY.pop("a"), ["removed world.ALIAS[a]"]),
    "entry two levels down": (
        lambda world: world.REGISTRY["inner"].update(y=1), ["added world.ALIAS[inner][y]"],
    ),
    "entry below what is opened": (
        lambda world: world.REGISTRY["inner"]["x"].append(2), ["changed world.ALIAS[inner][x]"],
    ),
    "a copy in place of a shared registry": (
        rebind("REGISTRY", lambda world: dict(world.REGISTRY)), ["changed world.REGISTRY"],
    ),
    "entry behind a proxy": (
        lambda world: world.behind.update(b=2), ["added world.behind[b]"],
    ),
    "attribute added": (rebind("new", 1), ["added world.new"]),
    "attribute removed": (lambda world: delattr(world, "made"), ["removed world.made"]),
    "function wrapped": (wrap, ["changed world.plain"]),
    "code": (
        lambda world: setattr(world.outer, "__code__", (lambda held: held).__code__), ["changed world.outer"],
    ),
    "default": (
        lambda world: setattr(world.outer, "__defaults__", (1,)), ["added world.outer[(defaults)]"],
    ),
    "closure": (
        lambda world: setattr(world.made.__closure__[0], "cell_contents", 2), ["changed world.made[(closure) held]"],
    ),
    "attribute of a function": (lambda world: setattr(world.made, "note", 1), ["added world.made.note"]),
    "partial": (rebind("bound", lambda world: functools.partial(max, 2)), [
        "removed world.bound.args", "added world.bound.args",
    ]),
    "method": (on_class("method", lambda self: 2), ["changed world.Base.method"]),
    "method put on a subclass": (
        lambda world: setattr(world.Child, "method", world.Base.method), ["added world.Child.method"],
    ),
    "static method": (on_class("static", staticmethod(lambda: 2)), ["changed world.Base.static[(function)]"]),
    "class method": (on_class("of_class", classmethod(lambda cls: 2)), ["changed world.Base.of_class[(function)]"]),
    "property": (on_class("prop", property(lambda self: 2)), ["changed world.Base.prop[(get)]"]),
    "property by function": (on_class("prop", lambda self: 2), ["changed world.Base.prop"]),
    "entry of a class attribute": (
        lambda world: world.Base.table.update(new=1), ["added world.Base.table[new]"],
    ),
    "bases": (put_between, ["changed world.Child.(bases)"]),
    "class of the same name": (impersonate, ["added world.Base (2)"]),
    "enum value": (lambda world: setattr(world.Color.RED, "_value_", 2), [
        "changed world.color", "changed world.Color.RED", "changed world.Color._member_map_[RED]",
        "changed world.Color._value2member_map_[1]",
    ]),
    "instance attribute": (lambda world: setattr(world.instance, "extra", 1), ["added world.instance.extra"]),
    "entry in an instance": (lambda world: world.instance.state.update(m=2), ["added world.instance.state[m]"]),
    "slot": (lambda world: setattr(world.slotted, "value", 2), ["changed world.slotted.value"]),
    "slot that was empty": (lambda world: setattr(world.slotted, "unset", 2), ["added world.slotted.unset"]),
    "fake module": (put_module, ["added world.fake"]),
}  # fmt: skip


@pytest.mark.parametrize(("deed", "expected"), DEEDS.values(), ids=DEEDS)
def test_every_change_is_named(world, deed, expected):
    found = {f"{d.kind} {d.where}" for d in changed(world, deed)}
    if deed is impersonate:
        # Which of two classes of one name gets the number is a matter of content.
        assert any(where.startswith("added world.Base (2)") for where in found)
    else:
        assert found == set(expected)


class Tripwire:
    """Refuses to be asked anything."""

    def __getattribute__(self, name):
        raise AssertionError(f"asked for {name}")

    def __getattr__(self, name):
        raise AssertionError(f"asked for {name}")

    def __repr__(self):
        raise AssertionError("asked for its text")

    __class__ = property(lambda self: pytest.fail("asked for its class"))
    __hash__ = __eq__ = __len__ = __bool__ = __iter__ = __repr__


class LazyDict(dict):
    def items(self):
        raise AssertionError("loaded")

    __iter__ = keys = values = __getitem__ = __len__ = items


class LazyList(list):
    def __iter__(self):
        raise AssertionError("loaded")

    __getitem__ = __len__ = __iter__


class LazyModule(types.ModuleType):
    def __getattr__(self, name):
        raise AssertionError("loaded")


def test_looking_runs_no_code_of_what_it_looks_at(world):
    world.LISTED = [Tripwire()]
    world.TRIPWIRE = Tripwire()
    world.LAZY = LazyDict(a=1)
    world.PROXY_OF_LAZY = types.MappingProxyType(LazyDict(a=1))
    world.LAZY_LIST = LazyList([1])
    world.LAZY_MODULE = LazyModule("elsewhere")
    before = record(world)
    dict.update(world.LAZY, b=2)
    assert [f"{d.kind} {d.path[2:]}" for d in differences(before, record(world))] == ["added ('LAZY', 'b')"]


def test_texts_hold_no_addresses():
    class Thing:
        def speak(self):
            pass

    def texts():
        thing, registry = Thing(), {}
        registry[id(thing)] = thing
        held = [thing, registry, {id(thing)}, id(thing), f"<Thing at {id(thing):#x}>", weakref.ref(thing), thing.speak]
        texts = [Fingerprinter().text(item) for item in held]
        Thing.kept.append(held)
        return texts

    Thing.kept = []
    first = texts()
    assert first == texts()


def test_recursive_structures_end():
    loop: list = []
    loop.append({"again": loop})
    assert Fingerprinter().node(loop)


def test_a_big_container_is_told_by_its_digest():
    fingerprinter = Fingerprinter()
    one, other = (dict.fromkeys(range(30_000), value) for value in (0, 1))
    assert isinstance(fingerprinter.node(one), str)
    assert fingerprinter.node(one) != fingerprinter.node(other)


# -- comparison


def world_of(**modules):
    return {"modules": {name: {"(type)": "class module", **content} for name, content in modules.items()},
            "classes": {}, "process": {}}  # fmt: skip


def test_only_what_two_runs_without_us_disagree_on_is_noise():
    first = world_of(a={"session": "'1f0e9b7c'", "cache": "object a.Cache of 3 0123456789", "same": "1"})
    second = world_of(a={"session": "'77aa0c1d'", "cache": "object a.Cache of 4 9876543210", "same": "1"})
    noise = Noise(first, second)
    assert len(noise) == 2
    # A third value of the same shape is noise; another kind of thing, and another place, is not.
    third = world_of(a={"session": "'00000000'", "cache": "object a.Other of 3 0123456789", "same": "2"})
    assert [d.where for d in differences(first, third) if d not in noise] == ["a.cache", "a.same"]


def test_entries_that_come_and_go_are_noise_by_shape():
    def registry(*labels):
        return world_of(a={"ids": {"is": "dict", "has": dict.fromkeys(labels, "1")}})

    noise = Noise(registry("id 4711"), registry("id 4712"))
    found = [d.where for d in differences(registry("id 4711"), registry("id 99", "mischief")) if d not in noise]
    assert found == ["a.ids[mischief]"]


def test_another_module_under_the_same_name_is_one_difference():
    before = world_of(a={"__file__": "'/site/a.py'", "x": "1", "y": "1"})
    (found,) = differences(before, world_of(a={}))
    assert (found.where, found.kind, found.before) == ("a", "changed", "class module of 4 attributes from '/site/a.py'")


def test_what_was_added_is_told_entry_by_entry():
    registry = {"is": "dict", "has": {"x": "1", "y": {"is": "function f", "has": {"(closure) held": "2"}}}}
    found = list(differences(world_of(a={}), world_of(a={"table": registry})))
    assert [(d.where, d.after) for d in found] == [
        ("a.table[x]", "1"), ("a.table[y]", "function f with (closure) held=2"),
    ]  # fmt: skip


def test_an_empty_container_that_was_filled_shows_its_entries():
    (found,) = differences(world_of(a={"table": "dict"}), world_of(a={"table": {"is": "dict", "has": {"x": "1"}}}))
    assert (found.where, found.kind) == ("a.table[x]", "added")


# -- explanation


@pytest.fixture
def plan(bench):
    return bench.compose(
        bench.plugin(
            "acme-kernels",
            get_attn_backend_cls={"acme": AttnBackend(cls="acme.attention:Backend")},
            get_op_impls=(OpImpl(op="rms_norm", make="acme.norm:make", provider="vendor"),),
            get_process_env={"ACME_MODE": EnvDefault(value="1", reason="a test")},
            get_triton_workarounds={
                "softcap": TritonWorkaround(
                    target="sglang.a.softcap", replacement="acme.triton:softcap", reason="a test",
                    sglang=">=0.5.17", remove_when="the test is over",
                ),
            },
        )
    )  # fmt: skip


def difference(where, kind="added", before="", after=""):
    return Difference(path=("process", *where.split(" ")), kind=kind, before=before, after=after)


PLATFORM = ("object sglang.srt.platforms.interface.SRTPlatform", "object kunhook.seams.platform.AcmePlatform")
CHOICES = "sglang.srt.arg_groups.choices ATTENTION_BACKEND_CHOICES"
BACKENDS = "sglang.srt.layers.attention.attention_registry ATTENTION_BACKENDS"
FORWARDS = "sglang.kernels.fused_op.BaseFusedOp _oot_forward_registry"
RMS_NORM = "class:sglang.srt.layers.layernorm.RMSNorm"
WRAPPED = "function sglang.a.softcap code 0123456789 from sglang.srt.plugins.hook_registry"

DECLARED = {
    "platform": ("detect_device", difference("sglang.srt.utils current_platform", "changed", *PLATFORM)),
    "choice": ("get_attn_backend_cls", difference(CHOICES, after="'acme'")),
    "backend": ("get_attn_backend_cls", difference(f"{BACKENDS} acme", after="class acme.attention.Backend")),
    "forward": ("get_op_impls", difference(f"{FORWARDS} acme {RMS_NORM}", after="function acme.norm.make code 1")),
    "environment": ("get_process_env", difference("environ ACME_MODE", after="1")),
    "logger": ("", difference("logging kunhook", after="class logging.Logger")),
    "debt": ("get_triton_workarounds", difference(
        "sglang.b softcap", "changed", "function sglang.a.softcap code abcdef0123", WRAPPED,
    )),
}  # fmt: skip
UNDECLARED = {
    "another platform": difference("sglang.srt.utils current_platform", "changed", PLATFORM[0], "object acme.Fake"),
    "a choice nobody answered": difference(CHOICES, after="'other'"),
    "a choice taken away": difference(CHOICES, "removed", "'acme'"),
    "another backend under our name": difference(f"{BACKENDS} acme", after="class other.Backend"),
    "a backend replaced": difference(f"{BACKENDS} acme", "changed", "class sglang.A", "class acme.attention.Backend"),
    "a forward of somebody else": difference(f"{FORWARDS} acme {RMS_NORM}", after="function other.f code 1"),
    "a forward under another key": difference(f"{FORWARDS} cuda {RMS_NORM}", after="function acme.norm.make code 1"),
    "another value": difference("environ ACME_MODE", after="2"),
    "a variable of the operator replaced": difference("environ ACME_MODE", "changed", "0", "1"),
    "a logger with a handler": difference("logging kunhook", after="handler logging.StreamHandler"),
    "half a move": difference("torch.library _impls", after="'sglang/op/PrivateUse1'"),
    "a function hooked without a debt": difference(
        "sglang.b other", "changed", "function sglang.b.other code abcdef0123", WRAPPED.replace("a.softcap", "b.other"),
    ),
    "a debt paid with something else": difference(
        "sglang.a softcap", "changed", "function sglang.a.softcap code abcdef0123", "function acme.f code 0123456789",
    ),
}  # fmt: skip


def explained(plan, *found):
    found = [msgspec.structs.replace(d, path=tuple(p.replace("class:", "class ") for p in d.path)) for d in found]
    return explain.explain(found, plan, {})


@pytest.mark.parametrize(("hook", "found"), DECLARED.values(), ids=DECLARED)
def test_a_declared_seam_explains(plan, hook, found):
    report = explained(plan, found)
    assert report.unexplained == ()
    (finding,) = report.explained + report.debts
    assert finding.hook == hook
    assert bool(report.debts) == (hook == "get_triton_workarounds")
    assert finding.seam.startswith("debt: " if report.debts else ("own", "platform: ", "registry: ", "environment: "))
    assert finding.why


@pytest.mark.parametrize("found", UNDECLARED.values(), ids=UNDECLARED)
def test_nothing_else_is_explained(plan, found):
    report = explained(plan, found)
    (finding,) = report.unexplained
    assert (finding.hook, finding.seam, finding.why) == ("", "", "no declared seam explains it")
    assert report.explained + report.debts == ()


def test_operators_of_sglang_that_moved_are_explained_in_pairs(plan):
    sides = [
        difference("torch.library _impls", "removed", "'sglang/op/CUDA'"),
        difference("torch.library _impls", after="'sglang/op/PrivateUse1'"),
        difference("torch.library _impls", after="'sglang/other/PrivateUse1'"),
    ]
    report = explained(plan, *sides)
    assert [finding.after for finding in report.unexplained] == ["'sglang/other/PrivateUse1'"]
    assert [(finding.before, finding.after) for finding in report.explained] == [
        ("'sglang/op/CUDA'", ""), ("", "'sglang/op/PrivateUse1'"),
    ]  # fmt: skip


def test_every_rule_names_a_hook_with_a_seam():
    for rule in rules.RULES:
        assert rule.why
        assert not rule.hook or catalogue.seams_of(rule.hook), rule


# -- modules


def test_modules_that_may_be_loaded(plan, tmp_path):
    file = tmp_path / "host_package" / "__init__.py"
    file.parent.mkdir()
    file.write_text("")
    (file.parent / "part.py").write_text("")
    reference = {"host_package": f"class module host_package from {file}"}

    def reason(name, origin):
        return loaded.reason(name, origin, reference, plan)

    assert reason("kunhook.plan", f"class module kunhook.plan from {explain.__file__}") == "the stack itself"
    assert reason("tomllib", "class module tomllib from built-in") == "the standard library"
    assert reason("pluggy", f"class module pluggy from {pluggy.__file__}") == "a requirement of the stack"
    assert "loaded without us too" in reason(
        "host_package.part", f"class module host_package.part from {file.parent / 'part.py'}"
    )
    for name, origin in (
        ("made_up", "class module made_up from (no file)"),
        ("made_up", f"class module made_up from {file}"),
        ("pluggy", "class module pluggy from (no file)"),
        ("tomllib", "class module other from built-in"),
        ("host_package.part", "class module host_package.part from (no file)"),
        ("kunhook.fake", "object acme.Fake kunhook.fake from (no file)"),
    ):
        assert reason(name, origin) is None, origin


# -- interpreters


FAKE_SGLANG = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "TABLE = {}",
    "sglang/srt/plugins.py": """
import os
from sglang.srt import TABLE

def load_plugins():
    if "SGLANG_PLATFORM" in os.environ:
        TABLE["ours"] = 1
        os.environ["ADDED"] = "1"
""",
}


@pytest.fixture
def fake_sglang(monkeypatch, tmp_path):
    """An SGLang of three small files, on the path of the interpreters that are started."""
    for name, text in FAKE_SGLANG.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setattr(run, "MODULES", ("sglang", "sglang.not_in_this_version"))
    return tmp_path


def test_an_interpreter_takes_a_snapshot_and_nothing_of_ours_is_in_it(fake_sglang):
    with run.Interpreter("once", os.environ | {"SGLANG_PLATFORM": "acme"}, fake_sglang) as child:
        ours = child.result()
    reference = run.without_us("acme", fake_sglang, also=run.audited(ours))
    assert not {"kunhook", "pluggy", "msgspec"} & set(reference.snapshot["order"])
    assert reference.snapshot["missing"] == ["sglang.not_in_this_version"]
    assert [d.where for d in run.found(reference, ours)] == ["sglang.srt.TABLE[ours]", "environ.ADDED"]


def test_an_interpreter_that_dies_is_reported_with_its_last_lines(fake_sglang):
    (fake_sglang / "site/sglang/__init__.py").write_text("raise RuntimeError('no such symbol: acme_rope')")
    with run.Interpreter("with us", os.environ, fake_sglang) as child, pytest.raises(KunhookError) as error:
        child.result()
    assert "the interpreter with us ended with status 1" in str(error.value)
    assert str(error.value).endswith("RuntimeError: no such symbol: acme_rope")


def test_a_reference_that_has_us_loaded_is_refused(fake_sglang):
    (fake_sglang / "site/sglang/__init__.py").write_text("import hookspecs")
    with pytest.raises(KunhookError, match=r"without us has hookspecs.*no reference.*sitecustomize"):
        run.without_us("acme", fake_sglang, also=())


def test_a_process_in_which_the_stack_stayed_away_is_no_audit(fake_sglang, bench):
    plan = bench.compose()
    with pytest.raises(KunhookError, match="ran without the stack"):
        run.with_us(plan, "acme", fake_sglang)


def test_plugins_of_others_load_on_both_sides(bench, monkeypatch):
    def point(group, name, distribution):
        return discovery.Announcement(
            group=group, name=name, value=f"{name}:x", distribution=distribution, version="1", location=""
        )

    points = (
        point(discovery.GENERAL_GROUP, "kunhook", "kunhook"),
        point(discovery.GENERAL_GROUP, "hooks-of-a-plugin", "acme-plugin"),
        point(discovery.GENERAL_GROUP, "stranger", "stranger"),
        point(discovery.GENERAL_GROUP, "of-another-platform", "other-device"),
        point(discovery.PLATFORM_GROUP, "other", "other-device"),
        point("kunhook.plugins", "acme", "acme-plugin"),
    )
    monkeypatch.setattr(discovery, "announcements", lambda: points)
    monkeypatch.setenv("KUNHOOK_PROFILE", "p")
    monkeypatch.setenv("KUNLUN_DEVICE", "sim")
    monkeypatch.setenv("SGLANG_PLATFORM", "kunlun")
    environment = run.reference_environment("kunlun")
    assert environment["SGLANG_PLUGINS"] == "stranger"
    assert not {"KUNHOOK_PROFILE", "KUNLUN_DEVICE", "SGLANG_PLATFORM"} & set(environment)
    monkeypatch.setenv("SGLANG_PLUGINS", "kunhook")
    assert run.reference_environment("kunlun")["SGLANG_PLUGINS"] == "kunhook-audit-without-plugins"


# -- command


def finding(where):
    return explain.Finding(where=where, kind="added", before="", after="1", hook="", seam="", why="because")


@pytest.fixture
def command(bench, monkeypatch):
    """The command, with the audit itself left out."""

    def command(*arguments, unexplained=(), debts=()):
        report = explain.Report(
            unexplained=tuple(map(finding, unexplained)),
            explained=(finding("a.known"),),
            debts=tuple(map(finding, debts)),
        )
        monkeypatch.setattr(run, "audit", lambda plan, overrides: (report, 7))
        monkeypatch.setattr(options, "plan_of", lambda profile, overrides: bench.compose())
        return CliRunner().invoke(cli, ["audit", *arguments], standalone_mode=False)

    return command


def test_the_command_succeeds_when_everything_is_explained(command):
    done = command(debts=["a.owed"])
    assert (done.return_value, "a.known: added 1" in done.output) == (0, True)
    assert "0 unexplained, 1 in debt, 1 explained" in done.output
    assert "7 things differ" not in done.output
    assert "7 things differ" in command("--verbose").output


def test_the_command_fails_and_names_what_is_unexplained(command):
    done = command(unexplained=["a.broken", "b.broken"])
    assert done.return_value == 1
    assert "unexplained a.broken: added 1" in done.output
    assert "unexplained b.broken: added 1" in done.output


def test_the_json_keys_are_fixed(command):
    done = command("--json", unexplained=["a.broken"])
    data = json.loads(done.output)
    assert done.return_value == 1
    assert list(data) == ["schema", "unexplained", "explained", "debts"]
    assert set(data["unexplained"][0]) == {"where", "kind", "before", "after", "hook", "seam", "why"}


def test_wrong_usage(command):
    assert CliRunner().invoke(cli, ["audit", "--profile"]).exit_code == 2
