"""Every name of SGLang this project depends on, by version: data only, importable without SGLang.

``kunhook diff`` compares two versions of SGLang at these names, ``signatures.check`` compares them
with the SGLang that is running. A name whose signature changed has one entry for each range. The
ranges were read from the sources of the versions in ``VERIFIED``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from kunhook import versions
from kunhook.seams.catalogue import SUPPORTED

VERIFIED = ("0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
"""Versions whose sources the entries were compared with, oldest first."""

EVERY_HOOK = "*"
"""Hook of a name that all hooks depend on."""


class Role(StrEnum):
    """What this project does with a name."""

    OVERRIDE = "override"
    """Defines a method of the same name in a subclass, or a function SGLang calls in its place."""
    CALL = "call"
    """Calls it."""
    SUBCLASS = "subclass"
    """Derives from it, or requires an answer that does."""
    READ = "read"
    """Reads it, or depends on it being there."""
    DEBT = "debt"
    """Would replace it through SGLang's hook registry; no official seam does the same."""
    AVAILABLE = "available"
    """Not used yet: an official extension point that could serve ``hook``."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One name of SGLang in a range of versions.

    Attributes:
        hook: the hook it serves, or would serve.
        path: ``package.module:Class.member``. A last part with ``()`` is a call that has to be in
            the function or module before it.
        signature: parameters, with ``...`` for any default and no annotations; or one of
            ``class``, ``property``, ``value``, ``call``.
        sglang: versions in which the name exists in this form and this project relies on it.
        role: what this project does with it.
    """

    hook: str
    path: str
    signature: str
    sglang: str = SUPPORTED
    role: Role


_TO_17 = ">=0.5.17,<0.5.18"
_TO_18 = ">=0.5.17,<0.5.19"
_TO_21 = ">=0.5.17,<0.5.22"
_FROM_18 = ">=0.5.18,<0.6"
_FROM_19 = ">=0.5.19,<0.6"
_FROM_20 = ">=0.5.20,<0.6"
_FROM_21 = ">=0.5.21,<0.6"
_FROM_22 = ">=0.5.22,<0.6"
_FROM_23 = ">=0.5.23,<0.6"

_PLATFORM = "sglang.srt.platforms.interface:SRTPlatform"
_CAPABILITIES = "sglang.srt.platforms.interface:PlatformCapabilities"
_ATTENTION = "sglang.srt.layers.attention.base_attn_backend:AttentionBackend"
_QUANTIZATION = "sglang.srt.layers.quantization.base_config"
_POOL = "sglang.srt.mem_cache.memory_pool"
_ALLOCATOR = "sglang.srt.mem_cache.allocator:PagedTokenToKVPoolAllocator"
_RUNNER = "sglang.srt.model_executor.runner.base_cuda_graph_runner:BaseCudaGraphRunner"
_GRAPH = "sglang.srt.model_executor.runner_backend.base_cuda_graph_backend:BaseCudaGraphBackend"
_ARGS = "sglang.srt.server_args"
_HOST = "sglang.srt.mem_cache.pool_host.common"
_KERNELS = "sglang.kernels"


def _t(hook: str, role: Role, path: str, signature: str, sglang: str = SUPPORTED) -> Target:
    return Target(hook=hook, path=path, signature=signature, sglang=sglang, role=role)


def _platform(hook: str, name: str, signature: str = "(self)", sglang: str = SUPPORTED) -> Target:
    return _t(hook, Role.OVERRIDE, f"{_PLATFORM}.{name}", signature, sglang)


def _spare(hook: str, path: str, signature: str, sglang: str = SUPPORTED) -> Target:
    return _t(hook, Role.AVAILABLE, path, signature, sglang)


def _choices(hook: str, name: str, role: Role = Role.AVAILABLE) -> tuple[Target, Target]:
    """An extender of command line choices: a function first, since 0.5.19 the ``extend`` of a list."""
    path = f"{_ARGS}:{name}"
    return _t(hook, role, path, "(choices)", _TO_18), _t(hook, role, path, "(iterable, /)", _FROM_19)


def _all(hook: str, role: Role, start: str, names: str, signature: str = "value") -> tuple[Target, ...]:
    return tuple(_t(hook, role, f"{start}.{name}", signature) for name in names.split())


_DEVICE = "get_device_runtime"

_PLATFORM_CLASS = (
    _t("detect_device", Role.READ, "sglang.srt.plugins:PLATFORM_PLUGINS_GROUP", "value"),
    _t("detect_device", Role.READ, "sglang.srt.platforms:current_platform", "value"),
    _t("detect_device", Role.READ, "sglang.srt.platforms.device_mixin:PlatformEnum.OOT", "value"),
    _t(_DEVICE, Role.SUBCLASS, _PLATFORM, "class"),
    _t(_DEVICE, Role.READ, "sglang.srt.platforms.device_mixin:DeviceMixin", "class"),
    _t(_DEVICE, Role.CALL, "sglang.srt.platforms.device_mixin:DeviceCapability", "class"),
    *_all(_DEVICE, Role.OVERRIDE, _PLATFORM, "_enum device_name device_type"),
    _platform(_DEVICE, "get_device", "(self, device_id=...)"),
    _platform(_DEVICE, "set_device", "(self, device)"),
    _platform(_DEVICE, "get_device_total_memory", "(self, device_id=...)"),
    _platform(_DEVICE, "get_current_memory_usage", "(self, device=...)"),
    _platform(_DEVICE, "get_available_memory", "(self, device_id=...)"),
    _platform(_DEVICE, "get_device_capability", "(self, device_id=...)"),
    _platform(_DEVICE, "get_device_name", "(self, device_id=...)"),
    _platform(_DEVICE, "get_device_uuid", "(self, device_id=...)"),
    _platform(_DEVICE, "empty_cache"),
    _platform(_DEVICE, "synchronize"),
    _platform(_DEVICE, "is_pin_memory_available", "(self, device=...)"),
    _platform(_DEVICE, "get_torch_profiler_activity"),
    _platform(_DEVICE, "get_torch_profiler_activity_str"),
    _platform(_DEVICE, "get_dispatch_key_name"),
    _platform(_DEVICE, "support_cuda_graph", sglang=_TO_21),
    _platform(_DEVICE, "support_piecewise_cuda_graph", sglang=_TO_21),
    _platform(_DEVICE, "capabilities", "value", _FROM_22),
    _t(_DEVICE, Role.CALL, _CAPABILITIES, "class", _FROM_22),
    _t(_DEVICE, Role.READ, f"{_CAPABILITIES}.graph_capture", "value", _FROM_22),
    _t(_DEVICE, Role.READ, f"{_CAPABILITIES}.piecewise_graph", "value", _FROM_22),
    _t(_DEVICE, Role.READ, f"{_CAPABILITIES}.hicache_device_kernels", "value", _FROM_22),
    _t(_DEVICE, Role.READ, f"{_CAPABILITIES}.supports_pynccl", "value", _FROM_23),
    _t("get_triton_support", Role.READ, f"{_CAPABILITIES}.supports_triton", "value", _FROM_22),
    _platform("init_backend", "init_backend"),
    _t("init_backend", Role.READ, "sglang.srt.model_executor.model_runner:init_backend()", "call"),
    _platform("post_load_model", "post_load_model", "(self, model)", _FROM_22),
    _platform("get_server_arg_defaults", "apply_server_args_defaults", "(self, server_args)"),
    _platform("check_server_args", "apply_server_args_defaults", "(self, server_args)"),
    _platform("get_launch_env", "apply_server_args_defaults", "(self, server_args)"),
    _platform("get_default_attn_backend", "get_default_attention_backend"),
    _platform("get_kv_pool_cls", "get_kv_pool_cls", "(self, *, kind)", _FROM_22),
    _platform("get_kv_pool_cls", "get_mha_kv_pool_cls", sglang=_TO_21),
    _platform("get_kv_pool_cls", "get_mla_kv_pool_cls", sglang=_TO_21),
    _platform("get_kv_pool_cls", "get_dsa_kv_pool_cls", sglang=_TO_21),
    _platform("get_paged_allocator_cls", "get_paged_allocator_cls"),
    _platform("get_comm_backend", "get_torch_distributed_backend_str"),
    _platform("get_communicator_cls", "get_communicator_class"),
    _platform("get_group_device", "get_group_coordinator_device", "(self, local_rank)", _FROM_23),
    _platform("get_graph_runner_cls", "get_graph_runner_cls"),
    _platform("get_graph_backend_cls", "get_full_graph_backend_cls", sglang=_FROM_21),
    _platform("get_compile_backend", "get_compile_backend", "(self, mode=...)"),
    _platform("get_quantization_config", "get_quantization_config", "(self, quantization)"),
    _platform("get_quantization_config", "supported_quantization", "value"),
    _platform("supports_algorithm", "supports_speculative_algorithm", "(self, algorithm)", _FROM_21),
    _platform(
        "supports_algorithm", "supports_speculative_draft_attention_backend", "(self, algorithm, backend)", _FROM_21
    ),
    _platform("supports_algorithm", "get_default_speculative_draft_attention_backend", "(self, algorithm)", _FROM_21),
    _platform("get_spec_worker_cls", "get_speculative_worker_cls", "(self, algorithm)", _FROM_23),
    _platform("get_draft_graph_runner_cls", "get_speculative_graph_runner_cls", "(self, algorithm, phase)", _FROM_23),
    _platform("get_cache_locs_fn", "get_speculative_cache_locs_fn", sglang=_FROM_21),
)

_LOADING = (
    _t(EVERY_HOOK, Role.READ, "sglang.srt.plugins:GENERAL_PLUGINS_GROUP", "value"),
    _t(EVERY_HOOK, Role.READ, "sglang.srt.plugins:load_plugins", "()"),
    _t(EVERY_HOOK, Role.READ, "sglang.launch_server:load_plugins()", "call"),
    _t(EVERY_HOOK, Role.READ, "sglang.cli.serve:serve.load_plugins()", "call"),
    _t(EVERY_HOOK, Role.READ, "sglang.srt.entrypoints.engine:Engine.__init__.load_plugins()", "call"),
    _t(EVERY_HOOK, Role.READ, "sglang.srt.entrypoints.engine:Engine._launch_subprocesses.load_plugins()", "call"),
    _t(EVERY_HOOK, Role.READ, "sglang.srt.managers.scheduler:run_scheduler_process.load_plugins()", "call"),
    _t(
        EVERY_HOOK,
        Role.READ,
        "sglang.srt.managers.detokenizer_manager:run_detokenizer_process.load_plugins()",
        "call",
        _FROM_22,
    ),
    _t(
        EVERY_HOOK,
        Role.READ,
        "sglang.srt.managers.data_parallel_controller:run_data_parallel_controller_process.load_plugins()",
        "call",
        _FROM_22,
    ),
    _t(EVERY_HOOK, Role.CALL, "sglang.cli.main:main", "()"),
)

_DEFAULTS = "get_server_arg_defaults"
_CONFIG_PARSER = "server_args_config_parser:ConfigArgumentMerger"

_SERVER_ARGS = (
    _t(_DEFAULTS, Role.READ, f"{_ARGS}:ServerArgs", "class"),
    _t(_DEFAULTS, Role.CALL, f"{_ARGS}:ServerArgs.add_cli_args", "(parser)"),
    _t(_DEFAULTS, Role.READ, "sglang.srt.arg_groups.pipeline:run_resolution_pipeline._raw_input", "value", _FROM_19),
    _t(
        _DEFAULTS,
        Role.CALL,
        f"sglang.srt.utils.{_CONFIG_PARSER}.__init__",
        "(self, parser=..., boolean_actions=...)",
        _FROM_19,
    ),
    _t(
        _DEFAULTS,
        Role.CALL,
        f"sglang.srt.utils.{_CONFIG_PARSER}.merge_config_with_args",
        "(self, cli_args)",
        _FROM_19,
    ),
)

_ATTN = "get_attn_backend_cls"
_FORWARD = "(self, q, k, v, layer, forward_batch, save_kv_cache=..., **kwargs)"
_BATCH = "sglang.srt.model_executor.forward_batch_info"

_ATTENTION_BACKENDS = (
    _t(_ATTN, Role.READ, f"{_ARGS}:ATTENTION_BACKEND_CHOICES", "value"),
    _t(_ATTN, Role.READ, f"{_ARGS}:DETERMINISTIC_ATTENTION_BACKEND_CHOICES", "value"),
    *_choices(_ATTN, "add_attention_backend_choices", Role.CALL),
    *_choices(_ATTN, "add_deterministic_attention_backend_choices", Role.CALL),
    _t(_ATTN, Role.CALL, "sglang.srt.layers.attention.attention_registry:register_attention_backend", "(name)"),
    _t(_ATTN, Role.READ, "sglang.srt.layers.attention.attention_registry:ATTENTION_BACKENDS", "value"),
    _t(_ATTN, Role.SUBCLASS, _ATTENTION, "class"),
    _t(_ATTN, Role.OVERRIDE, f"{_ATTENTION}.init_forward_metadata", "(self, forward_batch)"),
    _t(
        _ATTN,
        Role.OVERRIDE,
        f"{_ATTENTION}.init_forward_metadata_out_graph",
        "(self, forward_batch, in_capture=...)",
    ),
    _t(_ATTN, Role.OVERRIDE, f"{_ATTENTION}.init_cuda_graph_state", "(self, max_bs, max_num_tokens)"),
    _t(_ATTN, Role.OVERRIDE, f"{_ATTENTION}.get_cuda_graph_seq_len_fill_value", "(self)"),
    _t(_ATTN, Role.OVERRIDE, f"{_ATTENTION}.support_triton", "(self)"),
    _t(_ATTN, Role.OVERRIDE, f"{_ATTENTION}.forward_decode", _FORWARD),
    _t(_ATTN, Role.OVERRIDE, f"{_ATTENTION}.forward_extend", _FORWARD),
    _t(_ATTN, Role.READ, "sglang.srt.layers.radix_attention:AttentionType.DECODER", "value"),
    *_all(
        _ATTN,
        Role.READ,
        "sglang.srt.layers.radix_attention:RadixAttention",
        "layer_id tp_q_head_num tp_k_head_num tp_v_head_num qk_head_dim v_head_dim scaling logit_cap "
        "sliding_window_size is_cross_attention attn_type",
    ),
    *_all(
        _ATTN,
        Role.READ,
        "sglang.srt.model_executor.model_runner:ModelRunner",
        "model device dtype kv_cache_dtype token_to_kv_pool req_to_token_pool",
    ),
    *_all(
        _ATTN,
        Role.READ,
        f"{_BATCH}:ForwardBatch",
        "forward_mode batch_size seq_lens seq_lens_cpu req_pool_indices out_cache_loc extend_seq_lens_cpu "
        "extend_prefix_lens_cpu",
    ),
    *_all(
        _ATTN,
        Role.CALL,
        f"{_BATCH}:ForwardMode",
        "is_idle is_decode is_decode_or_idle is_target_verify is_dllm_extend is_draft_extend_v2",
        "(self)",
    ),
    *_all(_ATTN, Role.CALL, f"{_POOL}:KVCache", "get_key_buffer get_value_buffer", "(self, layer_id)"),
    *_all(_ATTN, Role.READ, f"{_POOL}:KVCache", "dtype layer_num start_layer"),
    _t(_ATTN, Role.READ, f"{_POOL}:ReqToTokenPool.req_to_token", "value"),
    *_all(
        _ATTN,
        Role.READ,
        "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool",
        "full_kv_pool swa_kv_pool swa_layer_nums layers_mapping",
    ),
    _t(
        _ATTN,
        Role.CALL,
        "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool.translate_loc_from_full_to_swa",
        "(self, kv_indices)",
    ),
)

_OPS = "get_op_impls"
_FUSED = f"{_KERNELS}.fused_op:BaseFusedOp"
_MULTI = "sglang.srt.layers.utils.multi_platform:MultiPlatformOp"
_REGISTER_OOT = "(cls, op_cls, fn, platform_key)"
_NORM = "sglang.srt.layers.layernorm:RMSNorm"
_ROTARY = "sglang.srt.layers.rotary_embedding.base:RotaryEmbedding"

_OPERATORS = (
    _t(_OPS, Role.CALL, f"{_MULTI}.register_oot_forward", _REGISTER_OOT, _TO_17),
    _t(_OPS, Role.READ, f"{_MULTI}._oot_forward_registry", "value", _TO_17),
    _t(_OPS, Role.CALL, f"{_FUSED}.register_oot_forward", _REGISTER_OOT, _FROM_18),
    _t(_OPS, Role.READ, f"{_FUSED}._oot_forward_registry", "value", _FROM_18),
    _t(_OPS, Role.READ, _NORM, "class"),
    _t(_OPS, Role.OVERRIDE, f"{_NORM}.forward_native", "(self, x, residual=..., post_residual_addition=...)", _TO_17),
    _t(
        _OPS,
        Role.OVERRIDE,
        f"{_NORM}.forward_native",
        "(self, x, residual=..., post_residual_addition=..., quant_linear=...)",
        _FROM_18,
    ),
    _t(_OPS, Role.READ, "sglang.srt.layers.activation:SiluAndMul", "class"),
    _t(_OPS, Role.OVERRIDE, "sglang.srt.layers.activation:SiluAndMul.forward_native", "(self, x)"),
    _t(_OPS, Role.READ, _ROTARY, "class"),
    _t(
        _OPS,
        Role.OVERRIDE,
        f"{_ROTARY}.forward_native",
        "(self, positions, query, key, offsets=..., fused_set_kv_buffer_arg=...)",
    ),
)

_KV = "get_kv_pool_cls"
_QUANT = "get_quantization_config"
_STORAGE = "sglang.srt.mem_cache.storage.backend_factory:StorageBackendFactory"
_LINEAR = (
    "(self, layer, input_size_per_partition, output_partition_sizes, input_size, output_size, params_dtype, "
    "**extra_weight_attrs)"
)

_ANSWERS = (
    _t(_KV, Role.SUBCLASS, f"{_POOL}:MHATokenToKVPool", "class"),
    _t(_KV, Role.SUBCLASS, f"{_POOL}:MLATokenToKVPool", "class"),
    _t(_KV, Role.SUBCLASS, f"{_POOL}:DSATokenToKVPool", "class"),
    _t("get_paged_allocator_cls", Role.SUBCLASS, _ALLOCATOR, "class"),
    _t(
        "get_paged_allocator_cls",
        Role.OVERRIDE,
        f"{_ALLOCATOR}.__init__",
        "(self, size, page_size, dtype, device, kvcache, need_sort)",
    ),
    _t("get_graph_runner_cls", Role.SUBCLASS, _RUNNER, "class"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.__init__", "(self, model_runner)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.warmup", "(self)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.can_run_graph", "(self, forward_batch)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.load_batch", "(self, forward_batch, **kwargs)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.execute", "(self, forward_batch, **kwargs)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.capture_prepare", "(self, size, *args, **kwargs)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.capture", "(self)"),
    _t("get_graph_runner_cls", Role.OVERRIDE, f"{_RUNNER}.capture_one_shape", "(self, size, *args, **kwargs)"),
    _t("get_graph_backend_cls", Role.SUBCLASS, _GRAPH, "class"),
    _t("get_graph_backend_cls", Role.OVERRIDE, f"{_GRAPH}.capture_session", "(self, stream)"),
    _t(
        "get_graph_backend_cls",
        Role.OVERRIDE,
        f"{_GRAPH}.capture_one",
        "(self, shape_key, forward_fn, capture_inputs=..., post_warmup_hook=...)",
    ),
    _t("get_graph_backend_cls", Role.OVERRIDE, f"{_GRAPH}.can_run", "(self, forward_batch, shape_key)"),
    _t("get_graph_backend_cls", Role.OVERRIDE, f"{_GRAPH}.replay_session", "(self)"),
    _t(
        "get_graph_backend_cls",
        Role.OVERRIDE,
        f"{_GRAPH}.replay",
        "(self, shape_key, static_forward_batch, **kwargs)",
    ),
    _t("get_graph_backend_cls", Role.OVERRIDE, f"{_GRAPH}.cleanup", "(self)"),
    _t(
        "get_cache_locs_fn",
        Role.OVERRIDE,
        f"{_KERNELS}.ops.speculative.cache_locs:assign_extend_cache_locs",
        "(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len, bs_upper)",
    ),
    _t(_QUANT, Role.CALL, "sglang.srt.layers.quantization:get_quantization_config", "(quantization)"),
    _t(_QUANT, Role.READ, "sglang.srt.layers.quantization:QUANTIZATION_METHODS", "value"),
    _t(_QUANT, Role.SUBCLASS, f"{_QUANTIZATION}:QuantizationConfig", "class"),
    _t(_QUANT, Role.OVERRIDE, f"{_QUANTIZATION}:QuantizationConfig.get_name", "(self)"),
    _t(_QUANT, Role.OVERRIDE, f"{_QUANTIZATION}:QuantizationConfig.from_config", "(cls, config)"),
    _t(_QUANT, Role.OVERRIDE, f"{_QUANTIZATION}:QuantizationConfig.get_quant_method", "(self, layer, prefix)"),
    _t(_QUANT, Role.OVERRIDE, f"{_QUANTIZATION}:LinearMethodBase.create_weights", _LINEAR),
    _t(_QUANT, Role.OVERRIDE, f"{_QUANTIZATION}:LinearMethodBase.apply", "(self, layer, x, bias=...)"),
    _t("get_hicache_storage", Role.CALL, f"{_STORAGE}.register_backend", "(cls, name, module_path, class_name)"),
    _t("get_hicache_storage", Role.SUBCLASS, "sglang.srt.mem_cache.hicache_storage:HiCacheStorage", "class"),
)

_HOOKS = "sglang.srt.plugins.hook_registry"
_ALLOCATE = "(dims, dtype, device, pin_memory, allocator)"
_ALLOCATE_19 = "(dims, dtype, device, pin_memory, allocator, registration_granularity_bytes=...)"

_DEBTS = (
    _t(
        "get_triton_workarounds",
        Role.CALL,
        f"{_HOOKS}:HookRegistry.register",
        "(cls, target, hook, hook_type=..., *, source=...)",
    ),
    _t("get_triton_workarounds", Role.CALL, f"{_HOOKS}:HookRegistry.apply_hooks", "(cls)"),
    _t("get_triton_workarounds", Role.READ, f"{_HOOKS}:HookType.REPLACE", "value"),
    _t("get_host_allocator", Role.AVAILABLE, f"{_HOST}:ALLOC_MEMORY_FUNCS", "value"),
    _t("get_host_allocator", Role.AVAILABLE, f"{_HOST}:alloc_with_host_register", _ALLOCATE, _TO_18),
    _t("get_host_allocator", Role.AVAILABLE, f"{_HOST}:alloc_with_host_register", _ALLOCATE_19, _FROM_19),
    _t(
        "get_kv_transfer",
        Role.AVAILABLE,
        "sglang.srt.disaggregation.utils:get_kv_class",
        "(transfer_backend, class_type)",
    ),
    _t("get_kv_transfer", Role.AVAILABLE, "sglang.srt.disaggregation.utils:TransferBackend", "class"),
    *_all(
        "get_kv_transfer",
        Role.AVAILABLE,
        "sglang.srt.disaggregation.utils:KVClassType",
        "MANAGER SENDER RECEIVER BOOTSTRAP_SERVER",
    ),
)

_MOE = "sglang.srt.layers.moe.moe_runner"
_SPECULATIVE = "(cls, name, *, supports_overlap=..., validate_server_args=..., spec_class=...)"

_SPARES = (
    # Official points that could take over from a debt.
    *_choices("get_kv_transfer", "add_disagg_transfer_backend_choices"),
    _spare("get_triton_workarounds", f"{_KERNELS}.registry:register_kernel", "(spec)"),
    _spare("get_triton_workarounds", f"{_KERNELS}.spec:KernelBackend.PLUGIN", "value", _FROM_23),
    # More for hooks that exist.
    _spare(_DEVICE, f"{_PLATFORM}.reindex_device_id", "(self, device_id)", _FROM_20),
    _spare(_DEVICE, f"{_PLATFORM}.cpu_arch", "property", _FROM_22),
    _spare(_DEVICE, f"{_PLATFORM}.get_cpu_architecture", "(cls)"),
    _spare(_DEVICE, f"{_PLATFORM}.inference_mode", "(cls)"),
    _spare(_DEVICE, f"{_PLATFORM}.seed_everything", "(cls, seed=...)"),
    _spare(_DEVICE, f"{_PLATFORM}.support_mamba_cache_extra_buffer", "(self)", _FROM_22),
    _spare(_DEVICE, f"{_PLATFORM}.is_sail", "(self)", _FROM_23),
    _spare(_DEVICE, "sglang.srt.runtime_context:override_platform", "(**facts)", _FROM_19),
    _spare(_QUANT, f"{_PLATFORM}.verify_quantization", "(self, quant)"),
    _spare(_QUANT, f"{_PLATFORM}.supports_fp8", "(self)", _TO_21),
    _spare(_DEFAULTS, f"sglang.srt.{_CONFIG_PARSER}.merge_config_with_args", "(self, cli_args)", _TO_18),
    *_choices(_QUANT, "add_quantization_method_choices"),
    _spare("get_graph_backend_cls", f"{_PLATFORM}.get_piecewise_backend_cls", "(self)"),
    _spare("get_graph_runner_cls", f"{_RUNNER}.cuda_graph_output_rows", "(self, output)", _FROM_21),
    _spare("get_graph_runner_cls", f"{_RUNNER}.model_context", "(self)", _FROM_23),
    _spare(
        "get_capture_policy",
        "sglang.srt.model_executor.model_runner:ModelRunner.capture_head_hooks",
        "value",
        _FROM_23,
    ),
    *_choices("get_attn_backend_cls", "add_radix_supported_deterministic_attention_backend_choices"),
    _spare(_ATTN, f"{_ARGS}:add_chunked_prefix_cache_attention_backend", "(backend_name)", _TO_18),
    _spare(_ATTN, f"{_ARGS}:add_chunked_prefix_cache_attention_backend", "(object, /)", _FROM_19),
    _spare("supports_algorithm", f"{_ARGS}:add_draft_attention_backend_choices", "(iterable, /)", _FROM_19),
    _spare(
        _ATTN,
        "sglang.srt.models.deepseek_common.attention_backend_handler:AttentionBackendRegistry.register",
        "(cls, backend_name, handler_func)",
    ),
    _spare(_ATTN, f"{_ATTENTION}.shared_read_ends", "(self, fm)", _FROM_18),
    _spare(_ATTN, f"{_ATTENTION}.init_forward_metadata_in_graph", "(self, forward_batch)"),
    _spare(
        "get_vendor_ops",
        "sglang.srt.utils.custom_op:register_custom_op",
        "(fn=..., *, op_name=..., mutates_args=..., eager=..., **extra_kwargs)",
    ),
    _spare("get_spec_worker_cls", "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.register", _SPECULATIVE),
    _spare("get_server_arg_defaults", "sglang.srt.arg_groups.overrides:register_model_override", "(architecture)"),
    _spare(
        "get_server_arg_defaults",
        "sglang.srt.arg_groups.resolution_hooks:register_resolution_hook",
        "(name)",
        _FROM_20,
    ),
    _spare(
        "get_hicache_storage",
        "sglang.srt.mem_cache.unified_cache.linker_factory:create_unified_cache_linker",
        "(server_args, params, *, backend, config, components, forward_stream=...)",
        _FROM_23,
    ),
    _spare("collect_metrics", f"{_KERNELS}:enable_fused_op_trace", "()"),
    _spare("collect_metrics", f"{_KERNELS}:get_fused_op_trace", "()"),
    # For hooks that do not exist yet.
    _spare("get_sampler_backend", "sglang.srt.layers.sampler:register_sampler_backend", "(backend, factory)"),
    _spare(
        "get_grammar_backend",
        "sglang.srt.constrained.base_grammar_backend:register_grammar_backend",
        "(name, init_func)",
    ),
    *_choices("get_grammar_backend", "add_grammar_backend_choices"),
    _spare("get_lora_backend", "sglang.srt.lora.backend.lora_registry:register_lora_backend", "(name)"),
    _spare("get_moe_runner", f"{_MOE}.runner:register_moe_runner_core", "(backend_name, factory)", _FROM_19),
    _spare("get_moe_runner", "sglang.srt.layers.moe.utils:register_moe_runner_backend_name", "(name)", _FROM_19),
    _spare("get_moe_runner", f"{_MOE}.base:register_fused_func", "(a2a_backend_name, runner_backend_name)"),
    _spare("get_moe_runner", f"{_MOE}.base:register_pre_permute", "(dispatch_output_name, runner_backend_name)"),
    _spare("get_moe_runner", f"{_MOE}.base:register_post_permute", "(runner_backend_name, combine_input_name)"),
    *_choices("get_moe_runner", "add_moe_runner_backend_choices"),
    *_choices("get_gemm_backend", "add_fp8_gemm_runner_backend_choices"),
    *_choices("get_gemm_backend", "add_fp4_gemm_runner_backend_choices"),
    *_choices("get_linear_attn_backend", "add_linear_attn_kernel_backend_choices"),
    _spare(
        "get_linear_attn_backend",
        "sglang.srt.configs.linear_attn_model_registry:register_linear_attn_model",
        "(spec)",
    ),
    *_choices("get_model_loader", "add_load_format_choices"),
    _spare("get_model_loader", "sglang.srt.model_loader.auto_loader:register_weight_remap", "(*class_names)"),
    _spare(
        "get_model_classes",
        "sglang.srt.models.registry:_ModelRegistry.register",
        "(self, package_name, overwrite=..., strict=...)",
    ),
    _spare(
        "get_model_classes",
        "sglang.srt.configs.model_config_parser_registry:register_model_config_parser",
        "(name)",
    ),
    _spare(
        "get_model_classes",
        "sglang.srt.configs.model_config:register_model_config_factory",
        "(server_args_type, factory)",
        _FROM_21,
    ),
    _spare("get_radix_cache", "sglang.srt.mem_cache.registry:register_radix_cache_backend", "(name, factory)"),
    *_choices("get_radix_cache", "add_radix_eviction_policy_choices"),
    _spare(
        "get_radix_cache",
        "sglang.srt.mem_cache.unified_cache.tree_core_registry:register_tree_core_backend",
        "(name, factory)",
    ),
    _spare(
        "get_embedding_store",
        "sglang.srt.mem_cache.embedding_store:EmbeddingStoreFactory.register_backend",
        "(cls, name, module_path, class_name)",
        _FROM_18,
    ),
    _spare(
        "get_kv_event_publisher",
        "sglang.srt.disaggregation.kv_events:EventPublisherFactory.register_publisher",
        "(cls, name, ctor)",
    ),
    _spare("get_serve_backend", "sglang.cli.serve_backends:ServeBackend", "class", _FROM_18),
)

TARGETS: tuple[Target, ...] = (
    *_PLATFORM_CLASS,
    *_LOADING,
    *_SERVER_ARGS,
    *_ATTENTION_BACKENDS,
    *_OPERATORS,
    *_ANSWERS,
    *_DEBTS,
    *_SPARES,
)


def valid_in(sglang: str, targets: Iterable[Target] = TARGETS) -> tuple[Target, ...]:
    """Targets that are expected in one version of SGLang."""
    known = tuple(targets)
    fitting = {
        wanted
        for wanted in {target.sglang for target in known}
        if versions.unmet(versions.SGLANG, sglang, wanted) is None
    }
    return tuple(target for target in known if target.sglang in fitting)
