"""Where each hook meets SGLang, by version: data only, importable without SGLang."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from kunhook import versions

SUPPORTED = ">=0.5.17,<0.6"
"""Versions of SGLang whose seams are catalogued."""

TESTED = ("0.5.23",)
"""Versions on which the serving tests run."""


class Kind(StrEnum):
    """How an answer reaches SGLang."""

    PLATFORM = "platform"
    """A method or attribute of the platform class."""
    REGISTRY = "registry"
    """A ``register_*`` or ``add_*_choices`` function of SGLang."""
    ENVIRONMENT = "environment"
    """Environment variables SGLang documents."""
    OWN = "own"
    """Used by this package or by a plugin; SGLang does not ask for it."""
    DEBT = "debt"
    """No seam exists; SGLang's hook registry is used and the use is recorded as a debt."""
    NONE = "none"
    """No seam exists and none is connected; an answer stops startup."""


class Seam(msgspec.Struct, frozen=True, kw_only=True):
    """One way a hook reaches SGLang in a range of versions."""

    hook: str
    kind: Kind
    target: str
    sglang: str = SUPPORTED


def _platform(hook: str, *methods: str, sglang: str = SUPPORTED) -> Seam:
    target = "SRTPlatform." + ", ".join(methods or (hook,))
    return Seam(hook=hook, kind=Kind.PLATFORM, target=target, sglang=sglang)


_BEFORE_22 = ">=0.5.17,<0.5.22"
_FROM_22 = ">=0.5.22,<0.6"
_FROM_23 = ">=0.5.23,<0.6"

SEAMS: tuple[Seam, ...] = (
    Seam(hook="detect_device", kind=Kind.PLATFORM, target="entry point group sglang.srt.platforms"),
    _platform("get_device_runtime", "device_name, device_type, capabilities and the memory methods"),
    Seam(hook="get_process_env", kind=Kind.ENVIRONMENT, target="os.environ, before SGLang reads it"),
    Seam(hook="get_launch_env", kind=Kind.ENVIRONMENT, target="os.environ of the launcher, inherited"),
    _platform("init_backend"),
    _platform("post_load_model", sglang=_FROM_22),
    _platform("get_server_arg_defaults", "apply_server_args_defaults"),
    _platform("check_server_args", "apply_server_args_defaults"),
    _platform("get_kv_pool_cls", sglang=_FROM_22),
    _platform(
        "get_kv_pool_cls", "get_mha_kv_pool_cls", "get_mla_kv_pool_cls", "get_dsa_kv_pool_cls", sglang=_BEFORE_22
    ),
    _platform("get_paged_allocator_cls"),
    Seam(hook="get_host_allocator", kind=Kind.NONE, target="mem_cache.pool_host.common.ALLOC_MEMORY_FUNCS"),
    Seam(
        hook="get_attn_backend_cls",
        kind=Kind.REGISTRY,
        target="attention_registry.register_attention_backend, add_attention_backend_choices",
    ),
    _platform("get_default_attn_backend", "get_default_attention_backend"),
    _platform("get_comm_backend", "get_torch_distributed_backend_str"),
    Seam(hook="get_comm_init_sizing", kind=Kind.OWN, target="the device's communicator"),
    _platform("get_communicator_cls", "get_communicator_class"),
    _platform("get_group_device", "get_group_coordinator_device", sglang=_FROM_23),
    _platform("get_graph_runner_cls"),
    _platform("get_graph_backend_cls", "get_full_graph_backend_cls", sglang=">=0.5.21,<0.6"),
    Seam(hook="get_capture_policy", kind=Kind.OWN, target="the device's graph runner"),
    _platform("get_compile_backend"),
    Seam(hook="get_vendor_ops", kind=Kind.OWN, target="bound once per worker, handed to OpImpl.make"),
    Seam(hook="get_op_impls", kind=Kind.REGISTRY, target="BaseFusedOp.register_oot_forward", sglang=">=0.5.18,<0.6"),
    Seam(
        hook="get_op_impls",
        kind=Kind.REGISTRY,
        target="MultiPlatformOp.register_oot_forward",
        sglang=">=0.5.17,<0.5.18",
    ),
    _platform("get_triton_support", "capabilities.supports_triton", sglang=_FROM_22),
    Seam(hook="get_triton_workarounds", kind=Kind.DEBT, target="HookRegistry.register(REPLACE)"),
    _platform("get_quantization_config"),
    _platform("supports_algorithm", "supports_speculative_algorithm", sglang=">=0.5.21,<0.6"),
    _platform("get_spec_worker_cls", "get_speculative_worker_cls", sglang=_FROM_23),
    _platform("get_draft_graph_runner_cls", "get_speculative_graph_runner_cls", sglang=_FROM_23),
    _platform("get_cache_locs_fn", "get_speculative_cache_locs_fn", sglang=">=0.5.21,<0.6"),
    Seam(hook="get_hicache_storage", kind=Kind.REGISTRY, target="StorageBackendFactory.register_backend"),
    Seam(hook="get_kv_transfer", kind=Kind.NONE, target="disaggregation.utils.get_kv_class"),
    Seam(hook="collect_metrics", kind=Kind.OWN, target="the process manifest"),
)


def seams_of(hook: str) -> tuple[Seam, ...]:
    """Every catalogued seam of a hook, over all versions."""
    return tuple(seam for seam in SEAMS if seam.hook == hook)


def seam_for(hook: str, sglang: str | None) -> Seam | None:
    """The seam of a hook in one version of SGLang; the newest when SGLang is not installed."""
    for seam in seams_of(hook):
        if sglang is None or versions.unmet("sglang", sglang, seam.sglang) is None:
            return seam
    return None


def seam_of(hook: str, sglang: str | None) -> str:
    """The seam as one line for a listing; empty for rows about a plugin as a whole."""
    if not seams_of(hook):
        return ""
    seam = seam_for(hook, sglang)
    return f"{seam.kind}: {seam.target}" if seam else f"none in SGLang {sglang}"
