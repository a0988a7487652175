"""Debts against SGLang's real hook registry."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from hookspecs import TritonWorkaround
from kunhook.bound import Bound
from kunhook.errors import KunhookError
from kunhook.seams import debts
from kunhook.seams.readback import Readbacks
from tests.support.workbench import Workbench

MODULE = "sglang.made_for_debts"


def replacement(x):
    return ("ours", x)


@pytest.fixture
def target(monkeypatch):
    """A function of SGLang's, held by its module and by one that imported it by name."""
    module = ModuleType(MODULE)
    exec("def launch(x): return ('theirs', x)", vars(module))
    importer = ModuleType(f"{MODULE}_importer")
    importer.launch = module.launch
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setitem(sys.modules, importer.__name__, importer)
    return module, importer


@pytest.fixture
def registry():
    from sglang.srt.plugins.hook_registry import HookRegistry

    yield HookRegistry
    HookRegistry.reset()


@pytest.fixture
def take_on(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def take_on(sets=(), **records):
        workbench = Workbench(monkeypatch, tmp_path)
        plan = workbench.compose(workbench.plugin("fixes", get_triton_workarounds=records), sets=sets)
        assert plan.problems == ()
        readbacks = Readbacks()
        debts.take_on(Bound(plan), readbacks)
        return plan, readbacks

    return take_on


def _record(path="launch", **fields):
    fields.setdefault("sglang", ">=0.5.17")
    return TritonWorkaround(
        target=f"{MODULE}.{path}",
        replacement=replacement,
        reason="no compiler",
        remove_when="SGLang asks the platform",
        **fields,
    )


def test_a_debt_takes_and_is_read_back(target, registry, take_on):
    module, importer = target
    plan, readbacks = take_on(softcap=_record())
    assert module.launch(1) == importer.launch(1) == ("ours", 1)
    assert readbacks.state_of(debts.HOOK, "softcap", "")[0] == "active"
    (debt,) = debts.debts_of(plan)
    assert (debt.target, debt.plugin, debt.reason) == (f"{MODULE}.launch", "fixes", "no compiler")
    assert debt.off_switch == 'hooks.get_triton_workarounds.keys.softcap.use = "none"'


def test_its_off_switch_works(target, registry, take_on):
    module, _ = target
    plan, _ = take_on(sets=["hooks.get_triton_workarounds.keys.softcap.use=none"], softcap=_record())
    assert module.launch(1) == ("theirs", 1)
    assert debts.debts_of(plan) == ()


def test_p07_two_for_one_target(target, registry, take_on):
    """P7: the last of two REPLACE hooks wins with a warning; here both are named."""
    with pytest.raises(KunhookError, match=r"\[again\] and .*\[softcap\] both replace"):
        take_on(softcap=_record(), again=_record())


def test_p08_target_hooked_by_somebody_else(target, registry, take_on):
    """P8: a hook on a target that is already patched is ignored for ever."""
    from sglang.srt.plugins.hook_registry import HookType

    registry.register(f"{MODULE}.launch", lambda result, *args: None, HookType.AFTER)
    registry.apply_hooks()
    with pytest.raises(KunhookError, match="already hooked by another plugin"):
        take_on(softcap=_record())


@pytest.mark.parametrize("path", ["launche", "Missing.launch"])
def test_p09_wrong_target(target, registry, take_on, path):
    """P9: a wrong path is logged and logged again; here the start ends."""
    with pytest.raises(KunhookError, match=rf"{path.partition('.')[0]}.*(does not exist|cannot be found)"):
        take_on(softcap=_record(path))


def test_a_debt_for_another_version(target, registry, take_on):
    with pytest.raises(KunhookError, match=r"for another version: sglang .* is installed, wanted sglang<0\.5"):
        take_on(softcap=_record(sglang="<0.5"))


def test_too_late(target, registry, take_on, monkeypatch):
    """B32, B33, B35: a module that made its own copy keeps the old function; it is named."""
    module, importer = target
    importer.TABLE = {"softcap": module.launch}
    with pytest.raises(KunhookError, match=r"also held by sglang\.made_for_debts_importer\.TABLE\['softcap'\]"):
        take_on(softcap=_record())
    assert module.launch(1) == ("theirs", 1)
