"""The hooks of ``kunlun-device``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookspecs import (
    ArgDefault,
    DeviceCapabilities,
    DeviceDetection,
    DeviceRuntime,
    EnvDefault,
    PluginInfo,
    hookimpl,
)
from kunlun_backend.device import threads
from kunlun_backend.device.detection import DEVICE, RUNTIME_MODULE, SIM, XPU, detect

plugin_info = PluginInfo(
    summary="Finds the Kunlun XPU or the software Kunlun and names it to SGLang.",
    device=DEVICE,
    sglang=">=0.5.17,<0.6",
    libraries=(RUNTIME_MODULE,),
)

_SIM_KV_TOKENS = 65536


@hookimpl
def detect_device(full: bool) -> DeviceDetection:
    return detect(full)


@hookimpl
def get_device_runtime(detection: DeviceDetection) -> DeviceRuntime:
    if detection.variant == SIM:
        return DeviceRuntime(
            device_name=DEVICE,
            device_type="cpu",
            dispatch_key=DEVICE,
            driver="kunlun_backend.runtime.sim:SimDriver",
        )
    return DeviceRuntime(
        device_name=DEVICE,
        # torch_xmlir stands in for the CUDA runtime below torch, so tensors live on "cuda".
        device_type="cuda",
        dispatch_key=DEVICE,
        driver="kunlun_backend.runtime.xpu:XpuDriver",
        capabilities=DeviceCapabilities(graph_capture=True, pin_memory=True),
        # Below Hopper, so that SGLang's Hopper and Blackwell branches stay closed.
        compute_capability=(8, 0),
        profiler_activity="CUDA",
    )


@hookimpl
def get_process_env(detection: DeviceDetection) -> Mapping[str, EnvDefault]:
    defaults = {
        "SGLANG_ROPE_CACHE_FP32": EnvDefault(
            value="1", reason="SGLang keeps cos/sin in fp32 on CUDA only; in bf16 long positions lose accuracy"
        ),
        "SGLANG_ENABLE_WAR_BARRIER": EnvDefault(
            value="1", reason="SGLang guards reused index buffers on CUDA only; the overlap scheduler needs it"
        ),
    }
    if detection.variant == XPU:
        defaults["SGLANG_IS_FLASHINFER_AVAILABLE"] = EnvDefault(
            value="False", reason="importing flashinfer would start a CUDA build on the masquerading device"
        )
    return defaults


@hookimpl
def get_launch_env(server_args: Any) -> Mapping[str, EnvDefault] | None:
    if server_args.device != "cpu":
        return None
    ranks = threads.ranks_on_this_host(server_args)
    cores = threads.available_cores()
    return {
        threads.BIND_VARIABLE: EnvDefault(
            value=threads.binding(ranks, cores), reason=f"{ranks} rank(s) share {len(cores)} core(s)"
        )
    }


@hookimpl
def get_server_arg_defaults(detection: DeviceDetection) -> Mapping[str, ArgDefault] | None:
    if detection.variant != SIM:
        return None
    return {
        "max_total_tokens": ArgDefault(
            value=_SIM_KV_TOKENS, reason="the software device would otherwise fill most of the host's memory"
        ),
    }
