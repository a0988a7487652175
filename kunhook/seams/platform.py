"""The platform class SGLang instantiates, built from the plan and from what the installed base has.

SGLang loads this module in the middle of ``import sglang``: only ``sglang.srt.platforms`` may be
imported at the top, everything else inside methods that run later.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from sglang.srt.platforms.device_mixin import DeviceMixin, PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform

from hookspecs import DeviceRuntime
from hookspecs.device import DeviceDriver
from kunhook import refs
from kunhook.bound import Bound
from kunhook.errors import KunhookError

_classes: dict[str, type[SRTPlatform]] = {}


def class_path(bound: Bound) -> str:
    """Build the platform class of a bound plan and return the path SGLang loads it by."""
    runtime: DeviceRuntime = bound.plan.value("get_device_runtime")
    name = f"{runtime.device_name.title().replace('-', '').replace('_', '')}Platform"
    if name not in _classes:
        _classes[name] = _build(name, bound, runtime)
    return f"{__name__}:{name}"


def platform_class(bound: Bound) -> type[SRTPlatform]:
    """The class SGLang got for this plan."""
    return _classes[class_path(bound).rpartition(":")[2]]


def __getattr__(name: str) -> type[SRTPlatform]:
    try:
        return _classes[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def _driver(bound: Bound, runtime: DeviceRuntime) -> DeviceDriver:
    source = bound.source("get_device_runtime")
    driver: DeviceDriver = refs.resolve(runtime.driver, wanted_by=source)()
    wanted = [name for name, value in vars(DeviceDriver).items() if inspect.isfunction(value) and name[0] != "_"]
    missing = [name for name in wanted if not callable(getattr(driver, name, None))]
    if missing:
        raise KunhookError(f"{source}: driver {refs.name_of(runtime.driver)} lacks {', '.join(missing)}.")
    return driver


def _capabilities(bound: Bound, runtime: DeviceRuntime) -> dict[str, bool]:
    declared = msgspec.structs.asdict(runtime.capabilities)
    triton = bound.plan.value("get_triton_support")
    if triton is not None:
        declared["supports_triton"] = triton.supported
    # A device that can capture still needs a runner, and the graph plugin may be switched off.
    declared["graph_capture"] &= bound.plan.value("get_graph_runner_cls") is not None
    return declared


def _build(name: str, bound: Bound, runtime: DeviceRuntime) -> type[SRTPlatform]:
    driver = _driver(bound, runtime)
    declared = _capabilities(bound, runtime)
    members: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{runtime.device_name}, composed from plan {bound.plan.digest}.",
        "_enum": PlatformEnum.OOT,
        "device_name": runtime.device_name,
        "device_type": runtime.device_type,
        "supported_quantization": sorted(bound.plan.named("get_quantization_config")),
    }
    members |= _identity(bound, driver, runtime, declared) | _lifecycle(bound) | _factories(bound)
    offered = _offered()
    body = {key: value for key, value in members.items() if key[0] == "_" or key in offered}
    # Newer versions check the class as it is created, so it is complete from the start.
    cls: type[SRTPlatform] = type(SRTPlatform)(name, (SRTPlatform,), body)
    return cls


def _offered() -> set[str]:
    """Public names the installed base has. Newer versions refuse a class with any other."""
    return {name for base in (SRTPlatform, DeviceMixin) for name in dir(base) if name[0] != "_"}


def _identity(bound: Bound, driver: DeviceDriver, runtime: DeviceRuntime, declared: dict[str, bool]) -> dict[str, Any]:
    indexed = runtime.device_type != "cpu"

    def get_device(self: Any, device_id: int | None = 0) -> str:
        bound.used["get_device_runtime"] += 1
        return f"{runtime.device_type}:{device_id}" if indexed and device_id is not None else runtime.device_type

    def set_device(self: Any, device: Any) -> None:
        driver.set_device(device if isinstance(device, int) else (device.index or 0))

    def get_device_total_memory(self: Any, device_id: int = 0) -> int:
        return driver.total_memory(device_id or 0)

    def get_current_memory_usage(self: Any, device: Any = None) -> float:
        return float(driver.used_memory(driver.current_device()))

    def get_available_memory(self: Any, device_id: int = 0) -> tuple[int, int]:
        total = driver.total_memory(device_id)
        return total - driver.used_memory(device_id), total

    def get_device_capability(self: Any, device_id: int = 0) -> Any:
        from sglang.srt.platforms.device_mixin import DeviceCapability

        return DeviceCapability(*runtime.compute_capability) if runtime.compute_capability else None

    def get_torch_profiler_activity(self: Any) -> Any:
        import torch

        return getattr(torch.profiler.ProfilerActivity, runtime.profiler_activity)

    members: dict[str, Any] = {
        "get_device": get_device,
        "set_device": set_device,
        "get_device_total_memory": get_device_total_memory,
        "get_current_memory_usage": get_current_memory_usage,
        "get_available_memory": get_available_memory,
        "get_device_capability": get_device_capability,
        "get_device_name": lambda self, device_id=0: driver.device_label(device_id),
        "get_device_uuid": lambda self, device_id=0: driver.device_uuid(device_id),
        "empty_cache": lambda self: driver.empty_cache(),
        "synchronize": lambda self: driver.synchronize(),
        "is_pin_memory_available": lambda self, device=None: declared["pin_memory"],
        "get_torch_profiler_activity": get_torch_profiler_activity,
        "get_torch_profiler_activity_str": lambda self: runtime.profiler_activity,
        "get_dispatch_key_name": lambda self: runtime.dispatch_key,
        "support_cuda_graph": lambda self: declared["graph_capture"],
        "support_piecewise_cuda_graph": lambda self: declared["piecewise_graph"],
    }
    try:
        from sglang.srt.platforms.interface import PlatformCapabilities
    except ImportError:
        return members
    fields = {field.name for field in msgspec.structs.fields(PlatformCapabilities)}
    members["capabilities"] = PlatformCapabilities(**{k: v for k, v in declared.items() if k in fields})
    return members


def _lifecycle(bound: Bound) -> dict[str, Any]:
    def apply_server_args_defaults(self: Any, server_args: Any) -> None:
        from kunhook.seams import connect

        connect.on_server_args(server_args)

    def init_backend(self: Any) -> None:
        from kunhook.seams import connect

        connect.on_worker()

    def post_load_model(self: Any, model: Any) -> None:
        from kunhook.seams import connect

        connect.on_model(model)

    return {
        "apply_server_args_defaults": apply_server_args_defaults,
        "init_backend": init_backend,
        "post_load_model": post_load_model,
    }


def _factories(bound: Bound) -> dict[str, Any]:
    def get_default_attention_backend(self: Any) -> str:
        return bound.ask_value("get_default_attn_backend") or "torch_native"

    def get_kv_pool_cls(self: Any, *, kind: str) -> Any:
        return bound.ask("get_kv_pool_cls", kind)

    def get_torch_distributed_backend_str(self: Any) -> str:
        backend: str | None = bound.ask_value("get_comm_backend")
        return backend or str(SRTPlatform.get_torch_distributed_backend_str(self))

    def get_group_coordinator_device(self: Any, local_rank: int) -> Any:
        import torch

        return torch.device((bound.ask_value("get_group_device") or "cpu").format(local_rank=local_rank))

    def supports_speculative_algorithm(self: Any, algorithm: str) -> bool:
        record = bound.ask_value("supports_algorithm", algorithm)
        return record is not None and record.supported

    def supports_speculative_draft_attention_backend(self: Any, algorithm: str, backend: str) -> bool:
        record = bound.ask_value("supports_algorithm", algorithm)
        return record is not None and backend in record.draft_attn_backends

    def get_default_speculative_draft_attention_backend(self: Any, algorithm: str) -> str:
        record = bound.ask_value("supports_algorithm", algorithm)
        name = record.default_draft_attn_backend if record else None
        return name or get_default_attention_backend(self)

    members: dict[str, Any] = {
        "get_default_attention_backend": get_default_attention_backend,
        "get_kv_pool_cls": get_kv_pool_cls,
        "get_paged_allocator_cls": lambda self: bound.ask("get_paged_allocator_cls"),
        "get_torch_distributed_backend_str": get_torch_distributed_backend_str,
        "get_communicator_class": lambda self: bound.ask("get_communicator_cls"),
        "get_group_coordinator_device": get_group_coordinator_device,
        "get_graph_runner_cls": lambda self: bound.ask("get_graph_runner_cls"),
        "get_full_graph_backend_cls": lambda self: bound.ask("get_graph_backend_cls", "decode"),
        "get_compile_backend": lambda self, mode=None: bound.ask_value("get_compile_backend") or "eager",
        "get_quantization_config": lambda self, quantization: bound.ask("get_quantization_config", quantization),
        "supports_speculative_algorithm": supports_speculative_algorithm,
        "supports_speculative_draft_attention_backend": supports_speculative_draft_attention_backend,
        "get_default_speculative_draft_attention_backend": get_default_speculative_draft_attention_backend,
        "get_speculative_worker_cls": lambda self, algorithm: bound.ask("get_spec_worker_cls", algorithm),
        "get_speculative_graph_runner_cls": lambda self, algorithm, phase: bound.ask(
            "get_draft_graph_runner_cls", phase
        ),
        "get_speculative_cache_locs_fn": lambda self: bound.ask("get_cache_locs_fn"),
    }
    if not hasattr(SRTPlatform, "get_kv_pool_cls"):
        members |= _pools_before_23(bound)
    return members


def _pools_before_23(bound: Bound) -> dict[str, Any]:
    """Up to 0.5.21 an out-of-tree platform must name pools and allocator even to keep SGLang's own."""

    def pool(kind: str, in_tree: str) -> Any:
        def method(self: Any) -> Any:
            return bound.ask("get_kv_pool_cls", kind) or refs.resolve(
                f"sglang.srt.mem_cache.memory_pool:{in_tree}", wanted_by=f"get_kv_pool_cls[{kind}]"
            )

        return method

    def get_paged_allocator_cls(self: Any) -> Any:
        return bound.ask("get_paged_allocator_cls") or refs.resolve(
            "sglang.srt.mem_cache.allocator:PagedTokenToKVPoolAllocator", wanted_by="get_paged_allocator_cls"
        )

    return {
        "get_mha_kv_pool_cls": pool("mha", "MHATokenToKVPool"),
        "get_mla_kv_pool_cls": pool("mla", "MLATokenToKVPool"),
        "get_dsa_kv_pool_cls": pool("dsa", "DSATokenToKVPool"),
        "get_paged_allocator_cls": get_paged_allocator_cls,
    }
