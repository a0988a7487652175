"""Triton on the device."""

from __future__ import annotations

from collections.abc import Mapping

from hookspecs.markers import Mode, hookspec
from hookspecs.records import DeviceDetection, TritonSupport, TritonWorkaround


@hookspec(mode=Mode.ONE, since=1, none="Triton counts as unsupported; SGLang takes its torch paths.")
def get_triton_support(detection: DeviceDetection) -> TritonSupport | None:
    """Say whether Triton kernels can launch on the device.

    Asked while the plan is composed. The answer replaces ``supports_triton`` of the device's
    capabilities, so that a plugin that brings a Triton port can be added on its own.

    Args:
        detection: the detection that won.

    Returns:
        A record with the answer and the reason.

    Errors:
        None of its own.

    Example::

        @hookimpl
        def get_triton_support():
            return TritonSupport(supported=False, reason="no Triton compiler for acme")
    """


@hookspec(mode=Mode.MERGE, since=1, none="Kernels are launched as SGLang wrote them.")
def get_triton_workarounds(detection: DeviceDetection) -> Mapping[str, TritonWorkaround] | None:
    """Replace functions that launch a Triton kernel the device cannot run.

    Asked while the plan is composed; applied through SGLang's hook registry. Every answer is a debt
    with a target, a reason, a version range and the condition under which it goes away.

    Args:
        detection: the detection that won.

    Returns:
        A short name of the workaround to its record.

    Errors:
        A target that does not exist in the installed SGLang, or that is a Triton kernel object
        itself, stops startup and names the target.

    Example::

        @hookimpl
        def get_triton_workarounds():
            return {"softcap": TritonWorkaround(
                target="sglang.kernels.ops.activation.softcap.softcap_inplace_logits",
                replacement="acme_backend.triton:softcap", reason="no Triton compiler",
                sglang=">=0.5.17", remove_when="SGLang asks the platform")}
    """
