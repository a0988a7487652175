"""The attention backend: SGLang's layers on the vendor's attention operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

from kunlun_backend.kernels.kv_layout import KVLayout
from kunlun_backend.kernels.metadata import DecodeStep, ExtendStep, StepTables, ViewKey
from kunlun_backend.kernels.support import layer_problems, refuse, runner_problems

if TYPE_CHECKING:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner


class KunlunAttnBackend(AttentionBackend):
    """Paged attention for MHA and GQA models, with sliding windows, soft-cap and sinks.

    New keys and values are written with ``reshape_and_cache``; decode runs ``speculative_attention``
    and everything else ``prefill_attention``. Tables are built once per step from host-side lengths;
    a layer's call does no work per request and reads no device data.

    Args:
        model_runner: SGLang's model runner, after the model was loaded and the pools were created.
        ops: bound vendor operators; None takes those of the composed plan.

    Raises:
        NotImplementedError: the model, its layers or the pool need something the operators lack.
    """

    def __init__(self, model_runner: ModelRunner, ops: Any = None) -> None:
        super().__init__()
        if ops is None:
            from kunhook.bound import vendor_ops

            ops = vendor_ops()
        refuse(runner_problems(model_runner, ops))
        layers = [module for module in model_runner.model.modules() if isinstance(module, RadixAttention)]
        refuse(problem for layer in layers for problem in layer_problems(layer, model_runner, ops.features))
        self._write, self._prefill, self._decode = (
            ops.reshape_and_cache,
            ops.prefill_attention,
            ops.speculative_attention,
        )
        self._layout = KVLayout(model_runner.token_to_kv_pool)
        self._view_of, views = self._assign_views(layers)
        req_to_token = model_runner.req_to_token_pool.req_to_token
        self._tables = StepTables(self._layout, req_to_token, views, model_runner.device)
        self.forward_metadata: DecodeStep | ExtendStep | None = None

    def _assign_views(self, layers: list[RadixAttention]) -> tuple[list[int], list[ViewKey]]:
        """The view of each layer, as an index by layer id into the list of distinct views."""
        views: list[ViewKey] = []
        view_of: dict[int, int] = {}
        for layer in layers:
            key = ViewKey(self._layout.in_window_pool(layer.layer_id), layer.sliding_window_size)
            if key not in views:
                views.append(key)
            index = view_of.setdefault(layer.layer_id, views.index(key))
            if views[index] != key:
                windows = f"{views[index].window} and {key.window}"
                refuse([f"layer {layer.layer_id}: two attentions with windows {windows}"])
        return [view_of.get(layer_id, -1) for layer_id in range(max(view_of, default=-1) + 1)], views

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Build the tables of an eager step."""
        mode = forward_batch.forward_mode
        if mode.is_idle():
            self.forward_metadata = None
        elif mode.is_decode():
            self.forward_metadata = self._tables.decode(forward_batch)
        elif mode.is_target_verify() or mode.is_dllm_extend() or mode.is_draft_extend_v2():
            refuse([f"forward mode {mode.name}"])
        else:
            self.forward_metadata = self._tables.extend(forward_batch)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Reserve the tables of captured decode steps for up to ``max_bs`` requests."""
        self._tables.reserve(max_bs)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Padded requests of a captured batch have one token: the operators need at least one key."""
        return 1

    def init_forward_metadata_out_graph(self, forward_batch: ForwardBatch, in_capture: bool = False) -> None:
        """Refresh the reserved tables before a capture or a replay, host length tables included."""
        mode = forward_batch.forward_mode
        if not mode.is_decode_or_idle():
            refuse([f"capture of forward mode {mode.name}"])
        self.forward_metadata = self._tables.decode_static(forward_batch)

    def support_triton(self) -> bool:
        """The operators need no Triton and the device may have none."""
        return False

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
        *,
        sinks: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """One new token per request: q [batch, heads * dim], result [batch, heads * v_dim].

        Without ``save_kv_cache`` the cache already holds the new keys and values.
        """
        if kwargs:
            _refuse_arguments(layer, kwargs)
        step = self.forward_metadata
        assert type(step) is DecodeStep, "init_forward_metadata was not called for this batch"
        view = step.views[self._view_of[layer.layer_id]]
        k_cache, v_cache = self._layout.caches(layer.layer_id)
        if save_kv_cache and k is not None:
            self._write(k, v, k_cache, v_cache, view.slots, None, None, 0)
        heads, dim, v_dim = layer.tp_q_head_num, layer.qk_head_dim, layer.v_head_dim
        q = q.reshape(-1, 1, heads, dim)
        batch = q.size(0)
        out = q.new_empty((batch, heads * v_dim))
        options = {"logit_cap": layer.logit_cap} if layer.logit_cap else {}
        self._decode(
            out.view(batch, 1, heads, v_dim),
            q,
            k_cache,
            v_cache,
            view.lens_cpu,
            view.lens,
            batch,
            1,
            view.longest,
            heads,
            dim,
            layer.scaling,
            layer.tp_k_head_num,
            self._layout.block_size,
            view.tables.size(1),
            view.window,
            view.tables,
            sinks,
            **options,
        )
        return out

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
        *,
        sinks: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Any number of new tokens per request: q [tokens, heads * dim], result [tokens, heads * v_dim].

        Keys come from the call when no request has cached ones, else from the cache. Without
        ``save_kv_cache`` the cache already holds the new keys and values.
        """
        if kwargs:
            _refuse_arguments(layer, kwargs)
        step = self.forward_metadata
        assert type(step) is ExtendStep, "init_forward_metadata was not called for this batch"
        view = step.views[self._view_of[layer.layer_id]]
        k_cache, v_cache = self._layout.caches(layer.layer_id)
        if save_kv_cache and k is not None:
            self._write(k, v, k_cache, v_cache, view.slots[: k.size(0)], None, None, 0)
        heads, dim, v_dim, tokens = layer.tp_q_head_num, layer.qk_head_dim, layer.v_head_dim, step.tokens
        q = q.reshape(-1, heads, dim)
        out = q.new_empty((q.size(0), heads * v_dim))
        if q.size(0) > tokens:
            out[tokens:].zero_()
            q = q[:tokens]
        factor = layer.scaling * dim**0.5
        if abs(factor - 1.0) > 1e-6:
            # The operator's scale is fixed; the rest goes into the queries.
            q = q * factor
        cached = step.has_prefix or k is None
        options = {"logit_cap": layer.logit_cap} if layer.logit_cap else {}
        causal = layer.attn_type is AttentionType.DECODER
        self._prefill(
            q,
            k_cache if cached else k[:tokens],
            v_cache if cached else v[:tokens],
            out[:tokens].view(tokens, heads, v_dim),
            causal,
            cached,
            view.tables if cached else None,
            step.q_lod_cpu,
            step.q_lod,
            step.kv_lod_cpu,
            step.kv_lod,
            None,
            None,
            view.window,
            0 if view.window >= 0 else -1,
            sinks,
            **options,
        )
        return out


def _refuse_arguments(layer: RadixAttention, arguments: dict[str, Any]) -> None:
    refuse(
        f"layer {layer.layer_id}: argument {name} of type {type(value).__name__}"
        for name, value in arguments.items()
        if value is not None and value is not False
    )
