"""``kunhook diff`` on small trees: what is found in sources, what is said about it, and bad input."""

from __future__ import annotations

import json
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from hookspecs import HOOKS
from kunhook import cli, diff
from kunhook.diff import Change
from kunhook.errors import UsageError
from kunhook.seams import targets
from kunhook.seams.targets import EVERY_HOOK, Role, Target

# Every file of every tree ends the process when it is executed instead of parsed.
EXECUTED = "\nraise SystemExit('a file of SGLang was executed')\n"


def write(folder: Path, files: dict[str, str], version: str | None = None) -> Path:
    """Write an unpacked SGLang: module name to source."""
    for name, source in files.items():
        file = folder / "sglang" / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source + EXECUTED)
    (folder / "sglang").mkdir(parents=True, exist_ok=True)
    if version:
        (folder / "sglang" / "_version.py").write_text(f"version: str\n\n__version__ = version = '{version}'\n")
    return folder


@pytest.fixture
def find(tmp_path):
    """Look a name up in a tree made of files."""

    def find(path: str, **files: str) -> diff.Found | None:
        sources = {name.replace("__", "."): source for name, source in files.items()}
        return diff.open_tree(str(write(tmp_path, sources))).find(path)

    return find


# -- what is found


@pytest.mark.parametrize(
    ("source", "signature"),
    [
        ("def f(): ...", "()"),
        ("def f(a, b=1): ...", "(a, b=...)"),
        ("def f(a: int, *, kind: str = 'x') -> int: ...", "(a, *, kind=...)"),
        ("def f(a, /, b, *args, c, d=2, **more): ...", "(a, /, b, *args, c, d=..., **more)"),
        ("async def f(a): ...", "(a)"),
        ("f = lambda a, b=1: a", "(a, b=...)"),
        ("@decorate(1)\ndef f(a): ...", "(a)"),
        ("@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\ndef f(b): ...", "(b)"),
        ("def f(a): ...\ndef f(b): ...", "(b)"),
        ("def f(a): ...\nf = cache(f)", "(a)"),
        ("try:\n  def f(a): ...\nexcept ImportError:\n  def f(b): ...", "(a)"),
        ("if cuda:\n  def f(a): ...\nelse:\n  def f(b): ...", "(a)"),
        ("f = None\nif cuda:\n  def f(a): ...", "(a)"),
        ("with suppress():\n  def f(a): ...", "(a)"),
        ("f = 1", "value"),
        ("f: int", "value"),
        ("f: dict = {}", "value"),
        ("f, g = 1, 2", "value"),
        ("class f: ...", "class"),
        ("g = ['x']\nf = g.extend", "(iterable, /)"),
        ("g = [*h] + ['x']\nf = g.extend", "(iterable, /)"),
        ("g = list(h)\nf = g.append", "(object, /)"),
        ("g = {}\nf = g.no_such_method", "value"),
        ("f = unknown.extend", "value"),
        ("f = partial(g, 1)", "value"),
        ("def g(a): ...\nf = g", "(a)"),
        ("class G:\n  def m(self, a): ...\nf = G.m", "(self, a)"),
        ("if TYPE_CHECKING:\n  f = 1", None),
        ("from sglang import f", "module"),
    ],
)
def test_kinds_of_definitions(find, source, signature):
    found = find("sglang.m:f", m=source, f="")
    assert (found and found.signature) == signature


@pytest.mark.parametrize(
    ("source", "signature"),
    [
        ("class C:\n  def m(self, a): ...", "(self, a)"),
        ("class C:\n  @classmethod\n  def m(cls): ...", "(cls)"),
        ("class C:\n  @staticmethod\n  def m(a): ...", "(a)"),
        ("class C:\n  @property\n  def m(self): ...", "property"),
        ("class C:\n  @functools.cached_property\n  def m(self): ...", "property"),
        ("class C:\n  @property\n  def m(self): ...\n  @m.setter\n  def m(self, v): ...", "property"),
        ("class C(Enum):\n  m = auto()", "value"),
        ("class C(NamedTuple):\n  m: int", "value"),
        ("class C:\n  def __init__(self, a):\n    self.m = a", "value"),
        ("class C:\n  def __init__(me, a):\n    me.m, x = a", "value"),
        ("class C:\n  def __init__(self, a):\n    a.m = self", None),
        ("class C:\n  def __init__(self):\n    self.m()", None),
        ("class C:\n  def x(self, a): ...\n  m = x", "(self, a)"),
        ("class C:\n  class m: ...", "class"),
        ("class C:\n  if new:\n    def m(self): ...", "(self)"),
        ("class A:\n  def m(self): ...\nclass C(A): ...", "(self)"),
        ("class A:\n  def m(self): ...\nclass C(A):\n  def m(self, b): ...", "(self, b)"),
        ("class A:\n  def m(self): ...\nclass C(Elsewhere, A[int]): ...", "(self)"),
        ("class A:\n  def m(self): ...\nclass B(A): ...\nclass C(B): ...", "(self)"),
        ("class A:\n  def __init__(self):\n    self.m = 1\nclass C(A): ...", "value"),
        ("class C(C): ...", None),
        ("class A(C): ...\nclass C(A): ...", None),
        ("class C: ...\nC = defstruct('C', [])", None),
        ("class C:\n  def m(self): ...\nC = defstruct('C', [])", "(self)"),
        ("C = 1", None),
        ("def C(m): ...", None),
        ("def C(args):\n  args.m = 1", "value"),
    ],
)
def test_members(find, source, signature):
    found = find("sglang.m:C.m", m=source)
    assert (found and found.signature) == signature


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"m": "from sglang.other import f", "other": "def f(a): ..."}, "sglang.other:f"),
        ({"m": "from .other import f", "other": "def f(a): ..."}, "sglang.other:f"),
        ({"m": "from sglang.other import g as f", "other": "def g(a): ..."}, "sglang.other:g"),
        ({"m": "from sglang.other import *", "other": "def f(a): ..."}, "sglang.other:f"),
        (
            {"m": "from sglang.x import f", "x": "from sglang.other import f", "other": "def f(a): ..."},
            "sglang.other:f",
        ),
        ({"m": "import sglang.other as o\nf = o.f", "other": "def f(a): ..."}, "sglang.other:f"),
        (
            {"m": "import sglang.deep.other\nf = sglang.deep.other.f", "deep.other": "def f(a): ..."},
            "sglang.deep.other:f",
        ),
        ({"m": "from sglang import other\nf = other.f", "other": "def f(a): ..."}, "sglang.other:f"),
        ({"m": "try:\n  from sglang.no import f\nexcept ImportError:\n  def f(a): ..."}, "sglang.m:f"),
        (
            {
                "m": "if cuda:\n  from sglang.other import f\nelse:\n  from sglang.no import f",
                "other": "def f(a): ...",
            },
            "sglang.other:f",
        ),
        ({"m": "from elsewhere import f"}, None),
        ({"m": "from sglang.m import f"}, None),
        ({"m": "from sglang.x import f", "x": "from sglang.m import f"}, None),
        ({"m.__init__": "from .part import f", "m.part": "def f(a): ..."}, "sglang.m.part:f"),
        ({"m.__init__": "from ..other import f", "other": "def f(a): ..."}, "sglang.other:f"),
        ({"m": "from ..other import f", "other": "def f(a): ..."}, None),
    ],
)
def test_imports_are_followed(tmp_path, files, place):
    found = diff.open_tree(str(write(tmp_path, files))).find("sglang.m:f")
    assert found == (None if place is None else diff.Found(place, "(a)"))


def test_inheritance_is_followed_into_other_modules(find):
    found = find(
        "sglang.m:C.m", m="from sglang.base import Base\nclass C(Base): ...", base="class Base:\n  def m(self): ..."
    )
    assert found == diff.Found("sglang.base:Base.m", "(self)")


@pytest.mark.parametrize(
    ("source", "path", "there"),
    [
        ("def f():\n  if x:\n    load()", "sglang.m:f.load()", True),
        ("def f():\n  plugins.load()", "sglang.m:f.load()", True),
        ("def f():\n  load", "sglang.m:f.load()", False),
        ("def g():\n  load()\ndef f(): ...", "sglang.m:f.load()", False),
        ("class C:\n  def f(self):\n    load()", "sglang.m:C.f.load()", True),
        ("if __name__ == '__main__':\n  load()", "sglang.m:load()", True),
        ("def f():\n  load()", "sglang.m:load()", False),
        ("", "sglang.gone:load()", False),
    ],
)
def test_calls(find, source, path, there):
    assert find(path, m=source) == (diff.Found(path, "call") if there else None)


def test_a_module_and_its_public_members(tmp_path):
    files = {"m": "from sglang.b import B\nclass C(B):\n  x = 1\n  _y = 1\ndef f(): ...", "b": "class B:\n  z = 1"}
    tree = diff.open_tree(str(write(tmp_path, files)))
    assert tree.find("sglang.m") == diff.Found("sglang.m", "module")
    assert tree.members("sglang.m") == {"B", "C", "f"}
    assert tree.members("sglang.m:C") == {"x", "z"}
    assert tree.members("sglang.m:Gone") == tree.members("sglang.gone") == set()


# -- what is said about a pair


def target(
    path: str, signature: str, sglang: str = ">=0.5.17,<0.6", role: Role = Role.CALL, hook: str = "get_op_impls"
) -> Target:
    return Target(hook=hook, path=path, signature=signature, sglang=sglang, role=role)


@pytest.fixture
def pair(tmp_path):
    """Compare two trees: files of the old one, files of the new one, targets."""

    def compare(
        old: dict[str, str],
        new: dict[str, str],
        *wanted: Target,
        versions: tuple[str | None, str | None] = ("0.5.21", "0.5.23"),
    ) -> diff.Report:
        trees = [
            diff.open_tree(str(write(tmp_path / side, files, version)))
            for side, files, version in zip(("old", "new"), (old, new), versions, strict=True)
        ]
        return diff.compare(*trees, wanted)

    return compare


def test_same(pair):
    report = pair({"m": "def f(a): ..."}, {"m": "def f(a: int): ...  # grown"}, target("sglang.m:f", "(a)"))
    (finding,) = report.findings
    assert (finding.change, finding.old_signature, finding.new_signature) == (Change.SAME, "(a)", "(a)")
    assert (finding.needs_work, finding.moved_to, finding.what_to_do) == (False, None, "")
    assert (report.old, report.new, report.needs_work) == ("0.5.21", "0.5.23", False)


def test_changed_signature_shows_both_and_needs_work(pair):
    (finding,) = pair({"m": "def f(a): ..."}, {"m": "def f(a, *, b): ..."}, target("sglang.m:f", "(a)")).findings
    assert (finding.change, finding.old_signature, finding.new_signature) == (Change.CHANGED, "(a)", "(a, *, b)")
    assert finding.needs_work
    assert finding.what_to_do == (
        "Kunhook has (a) (call): follow (a, *, b) there, and add a Target for it to kunhook/seams/targets.py."
    )


def test_changed_signature_that_the_catalogue_follows_needs_no_work(pair):
    (finding,) = pair(
        {"m": "def f(a): ..."},
        {"m": "def f(b): ..."},
        target("sglang.m:f", "(a)", "<0.5.22"),
        target("sglang.m:f", "(b)", ">=0.5.22"),
    ).findings
    assert (finding.change, finding.needs_work) == (Change.CHANGED, False)


def test_a_function_that_became_a_value_is_a_change(pair):
    (finding,) = pair({"m": "def f(a): ..."}, {"m": "f = 1"}, target("sglang.m:f", "(a)")).findings
    assert (finding.change, finding.new_signature, finding.needs_work) == (Change.CHANGED, "value", True)


def test_moved_says_where(pair):
    (finding,) = pair(
        {"m": "class C:\n  def f(self): ..."},
        {"m": "", "far.away": "class C:\n  def g(self): ...", "near": "class C:\n  def f(self, b): ..."},
        target("sglang.m:C.f", "(self)"),
    ).findings
    assert (finding.change, finding.moved_to) == (Change.MOVED, "sglang.near:C.f")
    assert (finding.old_signature, finding.new_signature) == ("(self)", "(self, b)")
    assert finding.needs_work
    assert finding.what_to_do.startswith("Take it from sglang.near:C.f there")


@pytest.mark.parametrize("definition", ["def f(a): ...", "f = 1", "f: int = 1", "class f: ...", "async def f(): ..."])
def test_moves_of_every_kind_of_definition_are_seen(pair, definition):
    (finding,) = pair(
        {"m": definition}, {"elsewhere": f"import os\n\n{definition}"}, target("sglang.m:f", "(a)")
    ).findings
    assert finding.moved_to == "sglang.elsewhere:f"


def test_of_two_places_the_one_with_the_same_signature_wins(pair):
    (finding,) = pair(
        {"a.m": "def f(a): ..."},
        {"a.other": "def f(b): ...", "x.other": "def f(a): ..."},
        target("sglang.a.m:f", "(a)"),
    ).findings
    assert finding.moved_to == "sglang.x.other:f"


def test_a_copy_that_was_there_before_is_no_move(pair):
    copy = {"copy": "def f(a): ..."}
    (finding,) = pair({"m": "def f(a): ..."} | copy, {"m": ""} | copy, target("sglang.m:f", "(a)")).findings
    assert (finding.change, finding.moved_to, finding.new_signature) == (Change.GONE, None, None)


def test_gone_names_the_hook_and_what_is_new_beside_it(pair):
    (finding,) = pair(
        {"m": "class C:\n  def get_mha_pool(self): ..."},
        {"m": "class C:\n  def get_kv_pool(self): ..."},
        target("sglang.m:C.get_mha_pool", "(self)", hook="get_kv_pool_cls"),
    ).findings
    assert (finding.change, finding.needs_work) == (Change.GONE, True)
    assert finding.what_to_do.startswith("Hook get_kv_pool_cls loses this name there: find what replaced it")
    assert finding.what_to_do.endswith("Did you mean get_kv_pool?")


def test_gone_for_every_hook(pair):
    (finding,) = pair(
        {"m": "def f(): load()"}, {"m": "def f(): ..."}, target("sglang.m:f.load()", "call", hook=EVERY_HOOK)
    ).findings
    assert (finding.change, finding.needs_work) == (Change.GONE, True)
    assert finding.what_to_do.startswith("Every hook loses")


def test_gone_that_was_replaced_names_the_replacement(pair):
    report = pair(
        {"m": "class C:\n  def old(self): ..."},
        {"m": "class C:\n  def new(self): ..."},
        target("sglang.m:C.old", "(self)", "<0.5.22"),
        target("sglang.m:C.new", "(self)", ">=0.5.22"),
        target("sglang.m:C.unrelated", "(self)", ">=0.5.22", hook="init_backend", role=Role.AVAILABLE),
    )
    old, new = report.findings
    assert (old.change, old.needs_work, old.what_to_do) == (Change.GONE, False, "Nothing: kunhook uses C.new there.")
    assert (new.change, new.needs_work) == (Change.NEW, False)
    assert new.what_to_do == "Nothing: kunhook uses it in SGLang >=0.5.22."


def test_a_name_that_should_be_new_and_is_not_needs_work(pair):
    (finding,) = pair({"m": ""}, {"m": ""}, target("sglang.m:f", "()", ">=0.5.22")).findings
    assert (finding.change, finding.needs_work) == (Change.GONE, True)
    assert (finding.old_signature, finding.new_signature) == (None, None)


def test_a_name_of_other_versions_is_not_listed(pair):
    assert pair({"m": ""}, {"m": ""}, target("sglang.m:f", "()", "<0.5.20")).findings == ()


def test_still_found_through_a_reexport_is_the_same_and_says_where(pair):
    (finding,) = pair(
        {"m": "def f(a): ..."}, {"m": "from sglang.n import f", "n": "def f(a): ..."}, target("sglang.m:f", "(a)")
    ).findings
    assert (finding.change, finding.moved_to, finding.needs_work) == (Change.SAME, "sglang.n:f", False)


def test_a_spare_that_is_new_and_could_retire_a_debt(pair):
    report = pair(
        {"m": ""},
        {"m": "def f(): ...\ndef g(): ..."},
        target("sglang.m:f", "()", ">=0.5.22", Role.AVAILABLE, "get_triton_workarounds"),
        target("sglang.m:g", "()", ">=0.5.22", Role.AVAILABLE, "get_sampler"),
    )
    debt, other = report.findings
    assert (debt.change, debt.retires_debt, debt.needs_work) == (Change.NEW, True, False)
    assert debt.what_to_do == "It could retire the debt of hook get_triton_workarounds."
    assert (other.retires_debt, other.what_to_do) == (False, "It could serve hook get_sampler.")


def test_a_spare_that_was_there_before_is_no_news(pair):
    files = {"m": "def f(): ..."}
    spare = target("sglang.m:f", "()", role=Role.AVAILABLE, hook="get_triton_workarounds")
    (finding,) = pair(files, files, spare).findings
    assert (finding.change, finding.retires_debt, finding.what_to_do) == (Change.SAME, False, "")


@pytest.mark.parametrize(
    ("new", "what"), [("def f(): ...", ""), ("def f(a): ...", "Nothing: kunhook does not use it there.")]
)
def test_a_name_kunhook_no_longer_uses_needs_no_work(pair, new, what):
    (finding,) = pair({"m": "def f(): ..."}, {"m": new}, target("sglang.m:f", "()", "<0.5.22")).findings
    assert (finding.needs_work, finding.what_to_do) == (False, what)


def test_a_spare_that_is_gone_needs_no_work(pair):
    (finding,) = pair({"m": "def f(): ..."}, {"m": ""}, target("sglang.m:f", "()", role=Role.AVAILABLE)).findings
    assert (finding.change, finding.needs_work) == (Change.GONE, False)
    assert "kunhook/seams/targets.py" in finding.what_to_do


def test_debt_that_changed_needs_work(pair):
    (finding,) = pair(
        {"m": "def f(a): ..."}, {"m": "def f(b): ..."}, target("sglang.m:f", "(a)", role=Role.DEBT)
    ).findings
    assert (finding.change, finding.needs_work, finding.role) == (Change.CHANGED, True, "debt")


def test_seams_nobody_catalogued(pair):
    interface = "srt.platforms.interface"
    old = {interface: "class SRTPlatform:\n  def f(self): ...", "m": "def register_old(): ..."}
    new = {
        interface: "class SRTPlatform:\n  def f(self): ...\n  def get_new(self, x): ...\n  def _private(self): ...",
        "m": "from sglang.n import register_elsewhere\ndef register_old(): ...\ndef register_new(name): ...\n"
        "def other(): ...\nregister_value = 1\nadd_thing_choices = [].extend",
        "n": "def register_elsewhere(): ...",
    }
    old["n"] = new["n"]
    old["p"], new["p"] = "", "from sglang.q import register_known"
    new["q"] = "def register_known(): ..."
    report = pair(
        old,
        new,
        target("sglang.m:register_old", "()"),
        target("sglang.p:register_known", "()"),
        target("sglang.q:other", "()", "<0.5.20"),
    )
    found = {finding.path: finding for finding in report.findings if finding.hook == ""}
    assert {path: f.new_signature for path, f in found.items()} == {
        f"sglang.{interface}:SRTPlatform.get_new": "(self, x)",
        "sglang.m:register_new": "(name)",
    }
    assert all(f.change is Change.NEW and not f.needs_work and f.what_to_do for f in found.values())


@pytest.mark.parametrize(
    ("version", "held_to"),
    [
        ("0.5.21", "old"),
        ("0.5.23", "new"),
        ("0.5.24.dev1", "new"),
        ("0.5.23+kunlun", "new"),
        ("0.5.11", "old"),
        ("0.7", "new"),
        (None, "new"),
    ],
)
def test_versions_out_of_range_are_held_to_the_nearest(pair, version, held_to):
    report = pair(
        {"m": ""},
        {"m": ""},
        target("sglang.m:old", "()", ">=0.5.17,<0.5.22"),
        target("sglang.m:new", "()", ">=0.5.22,<0.6"),
        versions=("0.5.19", version),
    )
    assert [finding.path for finding in report.findings] == [f"sglang.m:{held_to}"]


def test_summary_counts(pair):
    report = pair(
        {"m": "def same(): ...\ndef changed(): ...\ndef gone(): ..."},
        {"m": "def same(): ...\ndef changed(a): ...\ndef new(): ..."},
        *(target(f"sglang.m:{name}", "()") for name in ("same", "changed", "gone", "new")),
    )
    assert report.summary() == {
        "same": 1, "moved": 0, "changed": 1, "gone": 1, "new": 1, "needs_work": 2, "retires_debt": 0,
    }  # fmt: skip
    assert report.needs_work


@pytest.mark.parametrize(
    ("dotted", "path"),
    [
        ("sglang.m.f", "sglang.m:f"),
        ("sglang.m.C.f", "sglang.m:C.f"),
        ("sglang.deep.n.f", "sglang.deep.n:f"),
        ("sglang.gone.C", "sglang.gone:C"),
    ],
)
def test_targets_of_plugins_are_named_the_way_of_the_hook_registry(tmp_path, dotted, path):
    tree = diff.open_tree(str(write(tmp_path, {"m": "", "deep.n": ""})))
    debt = diff.debt_of_plugin(dotted, ">=0.5", [tree])
    assert (debt.path, debt.role, debt.hook) == (path, Role.DEBT, "get_triton_workarounds")


def test_the_debt_of_a_plugin_needs_work_when_the_old_signature_is_gone(pair, tmp_path):
    debt = diff.debt_of_plugin("sglang.m.f", ">=0.5.17", [diff.open_tree(str(write(tmp_path / "x", {"m": ""})))])
    (finding,) = pair({"m": "def f(a): ..."}, {"m": "def f(a): ..."}, debt).findings
    assert (finding.change, finding.needs_work) == (Change.SAME, False)
    (finding,) = pair({"m": "def f(a): ..."}, {"m": "def f(a, b): ..."}, debt).findings
    assert (finding.change, finding.needs_work) == (Change.CHANGED, True)
    assert "Kunhook has (a) (debt): follow (a, b) there" in finding.what_to_do


# -- the command


@pytest.fixture
def run(isolated, capsys, monkeypatch):
    """Run ``kunhook`` and return exit status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(exit_.value.code or 0), printed.out, printed.err

    monkeypatch.setattr(
        targets,
        "TARGETS",
        (
            target("sglang.m:kept", "()"),
            target("sglang.m:moves", "(a)"),
            target("sglang.m:spare", "()", ">=0.5.22", Role.AVAILABLE, "get_triton_workarounds"),
        ),
    )
    return run


OLD = {"m": "def kept(): ...\ndef moves(a): ..."}
KEPT = {"m": "def kept(): ...\ndef moves(a): ...\ndef spare(): ..."}
MOVED = {"m": "def kept(): ...", "n": "def moves(a): ..."}


@pytest.fixture
def old(tmp_path):
    return write(tmp_path / "old", OLD, "0.5.21")


@pytest.fixture
def new(tmp_path):
    return write(tmp_path / "new", MOVED, "0.5.23")


def test_exit_status_and_text_when_something_needs_work(run, old, new):
    code, out, err = run("diff", old, new)
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "# SGLang 0.5.21 -> 0.5.23",
        "",
        "2 names: 1 same, 1 moved.",
        "1 of those kunhook uses needs work.",
        "",
        "## Needs work",
        "",
        "- sglang.m:moves: moved (hook get_op_impls)",
        "    old  (a)",
        "    new  (a)",
        "    now  sglang.n:moves",
        "    do   Take it from sglang.n:moves there, and add a Target for it to kunhook/seams/targets.py.",
    ]


def test_exit_status_and_text_when_nothing_needs_work(run, old, tmp_path):
    code, out, err = run("diff", old, write(tmp_path / "new", KEPT, "0.5.23"))
    assert (code, err) == (0, "")
    assert "None of those kunhook uses needs work." in out
    assert "## Could retire a debt\n\n- sglang.m:spare: new (hook get_triton_workarounds)" in out


def test_json_has_the_fixed_keys(run, old, new):
    code, out, _ = run("diff", old, new, "--json")
    data = json.loads(out)
    assert code == 1
    assert set(data) == {"schema", "old", "new", "targets", "summary"}
    assert (data["schema"], data["old"], data["new"]) == (1, "0.5.21", "0.5.23")
    (moved,) = [each for each in data["targets"] if each["change"] == "moved"]
    assert moved == {
        "hook": "get_op_impls",
        "path": "sglang.m:moves",
        "role": "call",
        "change": "moved",
        "old_signature": "(a)",
        "new_signature": "(a)",
        "moved_to": "sglang.n:moves",
        "what_to_do": "Take it from sglang.n:moves there, and add a Target for it to kunhook/seams/targets.py.",
        "needs_work": True,
        "retires_debt": False,
    }
    assert data["summary"]["moved"] == data["summary"]["needs_work"] == 1


def test_markdown_is_a_table_in_which_bars_are_escaped(run, old, new, monkeypatch):
    monkeypatch.setattr(targets, "TARGETS", (target("sglang.m:moves", "(a)", hook="a|b"),))
    code, out, _ = run("diff", old, new, "--markdown")
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert code == 1
    assert rows[0] == "| HOOK | NAME | CHANGE | OLD | NEW | WHAT TO DO |"
    assert rows[2].startswith("| a&#124;b | `sglang.m:moves` now `sglang.n:moves` | moved | `(a)` | `(a)` | Take it")
    assert {row.count("|") for row in rows} == {7}


def test_json_and_markdown_exclude_each_other(run, old, new):
    code, out, err = run("diff", old, new, "--json", "--markdown")
    assert (code, out) == (2, "")
    assert "--json and --markdown" in err


def wheel(folder: Path, file: Path) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(folder.rglob("*.py")):
            archive.write(each, each.relative_to(folder).as_posix())
    return file


def test_a_wheel_is_read_like_a_folder(run, old, new, tmp_path):
    packed = wheel(new, tmp_path / "sglang-0.5.23-py3-none-any.whl")
    assert run("diff", old, packed, "--json") == run("diff", old, new, "--json")


class _Distribution(metadata.Distribution):
    def __init__(self, folder: Path, version: str) -> None:
        self._folder, self._version = folder, version

    version = property(lambda self: self._version)

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: object) -> Path:
        return self._folder / str(path)


def _install(monkeypatch, folder: Path | None, version: str = "0.5.23") -> None:
    def distribution(name: str) -> metadata.Distribution:
        if folder is None:
            raise metadata.PackageNotFoundError(name)
        return _Distribution(folder, version)

    monkeypatch.setattr(metadata, "distribution", distribution)


def test_a_version_is_the_installed_one(run, old, new, monkeypatch):
    _install(monkeypatch, new)
    assert run("diff", old, "0.5.23", "--json") == run("diff", old, new, "--json")


def test_an_editable_installation_is_found_without_importing_it(run, old, new, tmp_path, monkeypatch):
    (new / "sglang" / "__init__.py").write_text(EXECUTED)
    _install(monkeypatch, tmp_path)
    monkeypatch.syspath_prepend(new)
    monkeypatch.delitem(sys.modules, "sglang", raising=False)
    code, _, err = run("diff", old, "0.5.23", "--json")
    assert (code, err) == (1, "")
    assert "sglang" not in sys.modules


@pytest.mark.parametrize(
    ("folder", "says"),
    [("new", "SGLang 0.5.17 is not installed, 0.5.23 is."), (None, "SGLang 0.5.17 is not installed, and neither")],
)
def test_another_version_than_the_installed_one(run, old, new, monkeypatch, folder, says):
    _install(monkeypatch, new if folder else None)
    code, out, err = run("diff", "0.5.17", old)
    assert (code, out) == (2, "")
    assert says in err
    assert "pip download --no-deps sglang==0.5.17" in err


def _bad(kind: str, folder: Path) -> tuple[Path | str, str]:
    """Something that is no SGLang, and what the error says."""
    if kind == "missing":
        return folder / "nowhere.whl", "is no file, no folder and no version"
    if kind == "empty folder":
        (folder / "empty").mkdir()
        return folder / "empty", "holds no sglang/. Give the folder a wheel was unpacked into."
    if kind == "inside":
        inside = write(folder / "parent", {"srt.x": ""}) / "sglang"
        return inside, f"holds no sglang/. Give its parent, {folder / 'parent'}."
    if kind == "checkout":
        write(folder / "checkout" / "python", {"m": ""})
        return folder / "checkout", f"holds no sglang/. Give {folder / 'checkout' / 'python'}."
    if kind == "text file":
        (folder / "x.whl").write_text("not a zip")
        return folder / "x.whl", "x.whl is not a wheel: File is not a zip file."
    if kind == "another wheel":
        return wheel(write(folder / "y", {}), folder / "y.whl"), "y.whl holds no sglang/"
    if kind == "damaged wheel":
        file = wheel(write(folder / "z", KEPT), folder / "z.whl")
        content = bytearray(file.read_bytes())
        start = content.index(b"sglang/m.py") + len("sglang/m.py")
        content[start : start + 20] = bytes(20)
        file.write_bytes(content)
        return file, "sglang/m.py cannot be unpacked"
    if kind == "syntax error":
        return write(folder / "s", {"m": "x = 1\ndef kept(:\n"}), "sglang/m.py, line 2 cannot be parsed by Python"
    if kind == "null bytes":
        return write(folder / "n", {"m": "\0"}), "sglang/m.py"
    assert kind == "name too long"
    return "x" * 5000, "cannot be read: OSError"


BAD = (
    "missing",
    "empty folder",
    "inside",
    "checkout",
    "text file",
    "another wheel",
    "damaged wheel",
    "syntax error",
    "null bytes",
    "name too long",
)


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_wrong_usage_and_named(run, old, tmp_path, kind, side):
    given, says = _bad(kind, tmp_path)
    arguments = (given, old) if side == "old" else (old, given)
    code, out, err = run("diff", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_a_file_that_is_not_needed_may_be_broken(run, old, new):
    (new / "sglang" / "unrelated.py").write_text("def broken(:\n")
    assert run("diff", old, new)[0] == 1


@pytest.mark.parametrize("arguments", [(), ("0.5.23",), ("a", "b", "c"), ("a", "b", "--no-such")])
def test_wrong_arguments(run, arguments):
    assert run("diff", *arguments)[0] == 2


def test_debts_of_plugins_are_compared(run, bench, old, new, monkeypatch):
    from hookspecs import TritonWorkaround
    from kunhook import discovery

    record = TritonWorkaround(
        target="sglang.m.moves", replacement="x:y", reason="no Triton", sglang=">=0.5.17", remove_when="never"
    )
    plugins = (bench.device(), bench.plugin("fixes", get_triton_workarounds={"m": record}))
    monkeypatch.setattr(discovery, "candidates", lambda: plugins)
    monkeypatch.setattr("kunhook.plan.candidates", lambda: plugins)
    monkeypatch.setattr(targets, "TARGETS", ())
    code, out, err = run("diff", old, new, "--json")
    assert (code, err) == (1, "")
    (finding,) = json.loads(out)["targets"]
    assert (finding["hook"], finding["path"], finding["role"]) == ("get_triton_workarounds", "sglang.m:moves", "debt")
    assert finding["moved_to"] == "sglang.n:moves"


def test_a_plugin_that_cannot_be_asked_is_named(run, bench, old, new, monkeypatch):
    from kunhook import discovery

    plugins = (bench.device(), bench.source("broken", "raise RuntimeError('no such symbol')\n"))
    monkeypatch.setattr(discovery, "candidates", lambda: plugins)
    monkeypatch.setattr("kunhook.plan.candidates", lambda: plugins)
    code, _, err = run("diff", old, new)
    assert code == 1
    assert "debts of plugin 'broken' are left out" in err
    assert "no such symbol" in err


def test_open_tree_raises_usage_errors():
    with pytest.raises(UsageError, match="is no file, no folder and no version"):
        diff.open_tree("no-such-thing")


def test_the_hooks_used_here_exist():
    assert {"get_op_impls", "get_kv_pool_cls", "get_triton_workarounds", "init_backend"} <= set(HOOKS)
