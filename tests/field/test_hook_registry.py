"""What SGLang's hook registry breaks in silence, row by row: here it works or is refused by name."""

from __future__ import annotations

import functools
import sys
from types import ModuleType

import pytest

from kunhook.seams import debts

MODULE = "sglang.made_for_this_test"


@pytest.fixture
def place(monkeypatch):
    """A module that counts as SGLang's, filled with what a test puts into it."""
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)

    def put(source: str) -> ModuleType:
        exec(compile(source, MODULE, "exec"), vars(module))
        return module

    return put


def _unfit(module: ModuleType, name: str) -> str | None:
    owner, _, attribute = name.rpartition(".")
    holder = vars(module)[owner] if owner else module
    return debts.unfit(f"{MODULE}.{name}", vars(holder)[attribute])


def test_a_plain_function_is_fit(place):
    """A function that nobody else holds is replaced by the registry as promised."""
    assert _unfit(place("def launch(x): return x"), "launch") is None


def test_a_plain_method_is_fit(place):
    """So is a method of a class."""
    assert _unfit(place("class Pool:\n    def move(self): return 1"), "Pool.move") is None


def test_p01_triton_kernel(place):
    """P1: a wrapped Triton kernel loses ``kernel[grid]``."""
    module = place(
        "class JITFunction:\n    def run(self): ...\n    def __getitem__(self, grid): ...\nkernel = JITFunction()"
    )
    assert "kernel object (JITFunction)" in _unfit(module, "kernel")


def test_p02_cached_function(place):
    """P2: a wrapped cached function loses ``cache_clear``."""
    module = place("import functools\n@functools.lru_cache\ndef capability(): return (8, 0)")
    assert "cache_clear" in _unfit(module, "capability")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("async def target(): ...", "coroutine"),
        ("def target(): yield 1", "generator"),
        ("async def target(): yield 1", "async generator"),
    ],
)
def test_p03_functions_of_another_kind(place, source, kind):
    """P3: a hook on a coroutine function gets the coroutine, and nobody awaits it."""
    assert kind in _unfit(place(source), "target")


@pytest.mark.parametrize("decorator", ["property", "functools.cached_property"])
def test_p05_property(place, decorator):
    """P5: reading a wrapped property gives a method."""
    module = place(f"import functools\nclass Pool:\n    @{decorator}\n    def size(self): return 1")
    assert "is a property" in _unfit(module, "Pool.size")


@pytest.mark.parametrize(
    ("holder", "named"),
    [
        ("TABLE = {'softcap': target}", "TABLE['softcap']"),
        ("LIST = [target]", "LIST (list)"),
        ("import functools\nPART = functools.partial(target, 1)", "PART (partial)"),
        ("def caller(f=target): return f(1)", "caller (default argument)"),
        ("def caller(*, f=target): return f(1)", "caller (default argument)"),
        ("class Runner:\n    launch = target", "Runner.launch"),
        ("class Runner:\n    launch = staticmethod(target)", "Runner.launch"),
        ("def outer(f):\n    def inner(): return f\n    return inner\nheld = outer(target)", "held (closure)"),
    ],
)
def test_p06_held_elsewhere(place, holder, named):
    """P6: dictionaries, partials, defaults and class attributes keep the old function."""
    assert f"{MODULE}.{named}" in _unfit(place(f"def target(x): return x\n{holder}"), "target")


def test_p06_module_level_names_are_rebound_and_fine(place, monkeypatch):
    """P6: ``from x import f`` is rebound by the registry, so it is no reason to refuse."""
    module = place("def target(x): return x")
    other = ModuleType(f"{MODULE}_importer")
    other.alias = module.target
    monkeypatch.setitem(sys.modules, other.__name__, other)
    assert _unfit(module, "target") is None
    assert f"{MODULE}_importer.alias" in set(debts.holders(module.target))


def test_p10_class_with_subclasses(place):
    """P10: subclasses of a replaced class keep the old base; they are named."""
    problem = _unfit(place("class Base: ...\nclass Derived(Base): ..."), "Base")
    assert "Derived" in problem
    assert "Name its methods" in problem


def test_p11_class_without_subclasses(place):
    """P11: instances made earlier cannot be pickled after the class was replaced."""
    assert "is a class" in _unfit(place("class Lone: ..."), "Lone")


def test_holders_do_not_trigger_lazy_modules(monkeypatch):
    """A walk over modules reads dictionaries only; attributes of lazy modules stay asleep."""

    class Lazy(ModuleType):
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

    monkeypatch.setitem(sys.modules, f"{MODULE}_lazy", Lazy(f"{MODULE}_lazy"))
    assert list(debts.holders(functools.reduce)) == []
