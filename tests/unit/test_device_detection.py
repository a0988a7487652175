"""Is there a Kunlun: three stages told apart, and what the plugins answer about each kind of device."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from hookspecs import DeviceDetection
from kunhook.discovery import Candidate
from kunhook.plan import Plan, compose
from kunlun_backend.device import detection
from kunlun_backend.device.detection import detect
from tests.support.workbench import Workbench

pytestmark = pytest.mark.usefixtures("isolated")

RUNTIME = "acme_runtime_under_test"


class Machine:
    """A machine with or without vendor wheel and cards."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._folder = folder
        monkeypatch.setattr(detection, "RUNTIME_MODULE", RUNTIME)
        monkeypatch.setattr(detection, "DEVICE_NODES", str(folder / "xpu[0-9]*"))
        monkeypatch.setattr(detection, "importlib", SimpleNamespace(util=importlib.util, import_module=self._import))
        self.imported: list[str] = []
        self._error: Exception | None = None

    def wheel(self, *, cards: int = 1, error: Exception | None = None) -> Machine:
        module = ModuleType(RUNTIME)
        module.__spec__ = SimpleNamespace(name=RUNTIME)
        self._monkeypatch.setitem(sys.modules, RUNTIME, module)
        self._monkeypatch.setitem(
            sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: cards))
        )
        self._error = error
        return self

    def nodes(self, count: int) -> Machine:
        for number in range(count):
            (self._folder / f"xpu{number}").touch()
        (self._folder / "xpuctrl").touch()
        return self

    def _import(self, name: str) -> ModuleType:
        self.imported.append(name)
        if self._error:
            raise self._error
        return sys.modules[name]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def stages(found: DeviceDetection) -> dict[str, bool | None]:
    return {stage.name: stage.ok for stage in found.stages}


@pytest.mark.parametrize("value", ["sim", " SIM "])
@pytest.mark.parametrize("full", [False, True])
def test_the_software_device(monkeypatch: pytest.MonkeyPatch, value: str, full: bool) -> None:
    monkeypatch.setenv("KUNLUN_DEVICE", value)
    found = detect(full)
    assert (found.device, found.present, found.variant, found.broken) == ("kunlun", True, "sim", False)
    assert "KUNLUN_DEVICE=sim" in found.reason


def test_an_unknown_word_stops_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUNLUN_DEVICE", "p800")
    found = detect(full=False)
    assert (found.present, found.broken) == (False, True)
    assert found.reason == "KUNLUN_DEVICE='p800' is not one of auto, sim, xpu"


@pytest.mark.parametrize("value", [None, "", "auto", "XPU"])
def test_no_wheel(machine: Machine, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv("KUNLUN_DEVICE", value)
    found = detect(full=True)
    assert (found.present, found.broken) == (False, False)
    assert found.reason.startswith(f"no Kunlun device found: the vendor runtime {RUNTIME} is not installed")
    assert "KUNLUN_DEVICE=sim" in found.reason
    assert stages(found) == {"wheel": False, "runtime": None, "device": False}


def test_a_wheel_and_no_card(machine: Machine) -> None:
    found = detect(full=machine.wheel().nodes(0) is machine)
    assert (found.present, found.broken) == (False, False)
    assert found.reason.startswith("no Kunlun device found: nothing matches ")
    assert stages(found) == {"wheel": True, "runtime": None, "device": False}
    assert machine.imported == []


def test_a_card_and_no_wheel(machine: Machine) -> None:
    machine.nodes(1)
    assert stages(detect(full=True)) == {"wheel": False, "runtime": None, "device": True}


@pytest.mark.parametrize(("visible", "present"), [("", False), (" ", False), ("0", True)])
def test_cards_that_are_hidden(machine: Machine, monkeypatch: pytest.MonkeyPatch, visible: str, present: bool) -> None:
    machine.wheel().nodes(2)
    monkeypatch.setenv("XPU_VISIBLE_DEVICES", visible)
    found = detect(full=True)
    assert (found.present, found.broken) == (present, False)
    assert present or "XPU_VISIBLE_DEVICES is empty and hides every card" in found.reason


def test_a_listing_loads_nothing(machine: Machine) -> None:
    machine.wheel(error=OSError("must not be tried")).nodes(2)
    found = detect(full=False)
    assert (found.present, found.variant, found.broken) == (True, "xpu", False)
    assert found.reason.startswith("2 Kunlun card(s) under ")
    assert stages(found) == {"wheel": True, "runtime": None, "device": True}
    assert machine.imported == []


def test_everything_works(machine: Machine) -> None:
    found = detect(full=bool(machine.wheel(cards=2).nodes(2)))
    assert (found.present, found.broken) == (True, False)
    assert stages(found) == {"wheel": True, "runtime": True, "device": True}
    assert machine.imported == [RUNTIME]


@pytest.mark.parametrize(
    ("wheel", "reason"),
    [
        (
            {"error": ImportError("libxpurt.so: undefined symbol: xpu_malloc")},
            "the vendor runtime does not load: ImportError: libxpurt.so: undefined symbol: xpu_malloc",
        ),
        ({"cards": 0}, "the vendor runtime loads but sees no card; check XPU_VISIBLE_DEVICES"),
    ],
)
def test_a_runtime_that_does_not_work_is_broken(machine: Machine, wheel: dict[str, object], reason: str) -> None:
    machine.wheel(**wheel).nodes(1)
    found = detect(full=True)
    assert (found.present, found.broken) == (False, True)
    assert found.reason.startswith(reason)
    assert stages(found) == {"wheel": True, "runtime": False, "device": True}


# -- the plugins on each kind of device


def plan_of(bench: Workbench) -> Plan:
    found = tuple(
        Candidate(name=f"kunlun-{name}", distribution="kunhook", version="0", value=f"kunlun_backend.{name}.plugin")
        for name in ("device", "xccl")
    )
    plan = compose(bench.profile(candidate.name for candidate in found), full=True, found=found)
    assert plan.problems == ()
    return plan


def test_the_plan_of_the_software_device(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUNLUN_DEVICE", "sim")
    plan = plan_of(bench)
    runtime = plan.value("get_device_runtime")
    assert (runtime.device_name, runtime.device_type, runtime.dispatch_key) == ("kunlun", "cpu", "kunlun")
    assert not runtime.capabilities.graph_capture
    assert (plan.value("get_comm_backend"), plan.value("get_group_device")) == ("gloo", None)
    assert plan.value("get_server_arg_defaults", "max_total_tokens").value == 65536
    assert "SGLANG_IS_FLASHINFER_AVAILABLE" not in plan.named("get_process_env")


def test_the_plan_of_the_card(bench: Workbench, machine: Machine) -> None:
    machine.wheel().nodes(1)
    plan = plan_of(bench)
    runtime = plan.value("get_device_runtime")
    assert (runtime.device_name, runtime.device_type) == ("kunlun", "cuda")
    assert runtime.compute_capability < (9, 0)
    assert (plan.value("get_comm_backend"), plan.value("get_group_device")) == ("nccl", "cuda:{local_rank}")
    assert plan.named("get_server_arg_defaults") == {}
    assert plan.value("get_process_env", "SGLANG_IS_FLASHINFER_AVAILABLE").value == "False"


def test_the_plan_without_a_device(bench: Workbench, machine: Machine) -> None:
    plan = plan_of(bench)
    assert {row.state for row in plan.rows} == {"inactive"}
    assert plan.absent_reason.startswith("no Kunlun device found")
