"""The hooks of ``kunlun-xccl``."""

from __future__ import annotations

from hookspecs import DeviceDetection, PluginInfo, hookimpl
from kunlun_backend.device.detection import DEVICE, XPU

plugin_info = PluginInfo(
    summary="Process groups over XCCL; over gloo on the software Kunlun.",
    device=DEVICE,
    sglang=">=0.5.17,<0.6",
)


@hookimpl
def get_comm_backend(detection: DeviceDetection) -> str:
    # torch_xmlir answers to the name "nccl" with XCCL.
    return "nccl" if detection.variant == XPU else "gloo"


@hookimpl
def get_group_device(detection: DeviceDetection) -> str | None:
    # SGLang's default for an unknown device is the CPU, which is what the software Kunlun wants.
    return "cuda:{local_rank}" if detection.variant == XPU else None
