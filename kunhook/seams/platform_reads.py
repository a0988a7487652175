"""Read the platform class back: does SGLang's platform object answer what the plan says?"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from kunhook.bound import Bound
from kunhook.errors import KunhookError
from kunhook.seams.readback import Readbacks


class _Read(msgspec.Struct, frozen=True):
    """How to ask the platform about one hook. ``heavy`` answers are classes, loaded in workers only."""

    hook: str
    where: str
    ask: Callable[[Any, str], Any]
    heavy: bool = False


_READS = (
    _Read(
        "get_default_attn_backend", "get_default_attention_backend()", lambda p, _: p.get_default_attention_backend()
    ),
    _Read(
        "get_comm_backend", "get_torch_distributed_backend_str()", lambda p, _: p.get_torch_distributed_backend_str()
    ),
    _Read("get_compile_backend", "get_compile_backend()", lambda p, _: p.get_compile_backend()),
    _Read("get_kv_pool_cls", "get_kv_pool_cls()", lambda p, kind: p.get_kv_pool_cls(kind=kind), heavy=True),
    _Read("get_paged_allocator_cls", "get_paged_allocator_cls()", lambda p, _: p.get_paged_allocator_cls(), heavy=True),
    _Read("get_communicator_cls", "get_communicator_class()", lambda p, _: p.get_communicator_class(), heavy=True),
    _Read("get_graph_runner_cls", "get_graph_runner_cls()", lambda p, _: p.get_graph_runner_cls(), heavy=True),
    _Read(
        "get_graph_backend_cls", "get_full_graph_backend_cls()", lambda p, _: p.get_full_graph_backend_cls(), heavy=True
    ),
    _Read(
        "get_spec_worker_cls",
        "get_speculative_worker_cls()",
        lambda p, algorithm: p.get_speculative_worker_cls(algorithm),
        heavy=True,
    ),
    _Read(
        "get_draft_graph_runner_cls",
        "get_speculative_graph_runner_cls()",
        lambda p, phase: p.get_speculative_graph_runner_cls("EAGLE", phase),
        heavy=True,
    ),
    _Read(
        "get_cache_locs_fn",
        "get_speculative_cache_locs_fn()",
        lambda p, _: p.get_speculative_cache_locs_fn(),
        heavy=True,
    ),
)


def check(bound: Bound, readbacks: Readbacks, *, worker: bool) -> None:
    """Compare the platform object SGLang uses with the plan.

    Raises:
        KunhookError: SGLang uses another platform, or one of its answers is not the plan's.
    """
    with bound.uncounted():
        _check(bound, readbacks, worker)


def _check(bound: Bound, readbacks: Readbacks, worker: bool) -> None:
    from sglang.srt.platforms import current_platform

    from kunhook.seams.platform import platform_class

    wanted = platform_class(bound)
    if type(current_platform) is not wanted:
        raise KunhookError(
            f"SGLang uses platform {type(current_platform).__module__}.{type(current_platform).__qualname__}, "
            f"not {wanted.__qualname__}. Set SGLANG_PLATFORM to the platform you want, or uninstall the other."
        )
    runtime = bound.plan.value("get_device_runtime")
    platform = "current_platform"
    readbacks.took("detect_device", bound.plan.device.device if bound.plan.device else "", platform)
    readbacks.compare(
        bound,
        "get_device_runtime",
        "",
        (current_platform.device_name, current_platform.device_type),
        (runtime.device_name, runtime.device_type),
        platform,
    )
    _environment(bound, readbacks)
    for read in _READS:
        if read.heavy and not worker:
            continue
        for key in bound.plan.named(read.hook):
            expected = bound.object(read.hook, key) if read.heavy else bound.plan.value(read.hook, key)
            readbacks.compare(
                bound, read.hook, key, read.ask(current_platform, key), expected, f"{platform}.{read.where}"
            )
    _structured(bound, readbacks, current_platform)
    if worker:
        for hook in ("get_capture_policy", "get_comm_init_sizing"):
            for key in bound.plan.named(hook):
                readbacks.took(hook, key, "held by the plan")


def _environment(bound: Bound, readbacks: Readbacks) -> None:
    for variable, default in bound.plan.named("get_process_env").items():
        found = os.environ.get(variable)
        if found == default.value:
            readbacks.took("get_process_env", variable, f"{variable}={found}")
        else:
            readbacks.unused("get_process_env", variable, f"the operator set {variable}={found}")


def _structured(bound: Bound, readbacks: Readbacks, platform: Any) -> None:
    """Answers that reach the platform in another shape than they were given in."""
    import torch

    device = bound.plan.value("get_group_device")
    if device is not None and hasattr(platform, "get_group_coordinator_device"):
        found = platform.get_group_coordinator_device(0)
        wanted = torch.device(device.format(local_rank=0))
        readbacks.compare(
            bound, "get_group_device", "", found, wanted, "current_platform.get_group_coordinator_device()"
        )
    triton = bound.plan.value("get_triton_support")
    if triton is not None and hasattr(platform, "capabilities"):
        readbacks.compare(
            bound,
            "get_triton_support",
            "",
            platform.capabilities.supports_triton,
            triton.supported,
            "current_platform.capabilities",
        )
    for algorithm, record in bound.plan.named("supports_algorithm").items():
        readbacks.compare(
            bound,
            "supports_algorithm",
            algorithm,
            platform.supports_speculative_algorithm(algorithm),
            record.supported,
            "current_platform.supports_speculative_algorithm()",
        )
