"""Is there a Kunlun here? Three stages, told apart: wheel present, runtime loads, device visible.

``KUNLUN_DEVICE`` decides what is looked for: ``auto`` (default) and ``xpu`` mean the card behind the
vendor runtime, ``sim`` the software Kunlun on the CPU.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
import os
from importlib import metadata

from hookspecs import DetectionStage, DeviceDetection

DEVICE = "kunlun"
DEVICE_VARIABLE = "KUNLUN_DEVICE"
SIM, XPU, AUTO = "sim", "xpu", "auto"

RUNTIME_MODULE = "torch_xmlir"
DEVICE_NODES = "/dev/xpu[0-9]*"


def detect(full: bool) -> DeviceDetection:
    """Look for the device; with ``full`` also load the vendor runtime to prove that it works."""
    wanted = os.environ.get(DEVICE_VARIABLE, AUTO).strip().lower() or AUTO
    if wanted == SIM:
        return DeviceDetection(
            device=DEVICE,
            present=True,
            variant=SIM,
            reason=f"software Kunlun on the CPU ({DEVICE_VARIABLE}={SIM})",
            stages=(DetectionStage(name="device", ok=True, detail="the CPU of this machine"),),
        )
    if wanted not in (XPU, AUTO):
        return DeviceDetection(
            device=DEVICE,
            present=False,
            broken=True,
            reason=f"{DEVICE_VARIABLE}={wanted!r} is not one of {AUTO}, {SIM}, {XPU}",
        )
    return _card(full)


def _card(full: bool) -> DeviceDetection:
    wheel = _wheel()
    visible = _visible()
    if wheel.ok and visible.ok and full:
        runtime = _runtime()
    else:
        why = "not tried in a listing" if wheel.ok and visible.ok else "not tried: an earlier stage failed"
        runtime = DetectionStage(name="runtime", ok=None, detail=why)
    stages = (wheel, runtime, visible)
    failed = next((stage for stage in stages if stage.ok is False), None)
    return DeviceDetection(
        device=DEVICE,
        present=failed is None,
        variant=XPU,
        reason=failed.detail if failed else visible.detail,
        broken=failed is runtime,
        stages=stages,
    )


def _wheel() -> DetectionStage:
    if importlib.util.find_spec(RUNTIME_MODULE) is None:
        detail = (
            f"no Kunlun device found: the vendor runtime {RUNTIME_MODULE} is not installed "
            f"({DEVICE_VARIABLE}={SIM} runs the software Kunlun)"
        )
        return DetectionStage(name="wheel", ok=False, detail=detail)
    try:
        version = metadata.version(RUNTIME_MODULE)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    return DetectionStage(name="wheel", ok=True, detail=f"{RUNTIME_MODULE} {version}")


def _visible() -> DetectionStage:
    nodes = glob.glob(DEVICE_NODES)
    if not nodes:
        return DetectionStage(name="device", ok=False, detail=f"no Kunlun device found: nothing matches {DEVICE_NODES}")
    hidden = os.environ.get("XPU_VISIBLE_DEVICES")
    if hidden is not None and not hidden.strip():
        detail = "no Kunlun device found: XPU_VISIBLE_DEVICES is empty and hides every card"
        return DetectionStage(name="device", ok=False, detail=detail)
    return DetectionStage(name="device", ok=True, detail=f"{len(nodes)} Kunlun card(s) under {DEVICE_NODES}")


def _runtime() -> DetectionStage:
    try:
        importlib.import_module(RUNTIME_MODULE)
        import torch

        count = torch.cuda.device_count()
    except Exception as error:
        detail = f"the vendor runtime does not load: {type(error).__name__}: {error}"
        return DetectionStage(name="runtime", ok=False, detail=detail)
    if count == 0:
        detail = "the vendor runtime loads but sees no card; check XPU_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES"
        return DetectionStage(name="runtime", ok=False, detail=detail)
    return DetectionStage(name="runtime", ok=True, detail=f"the vendor runtime sees {count} card(s)")
