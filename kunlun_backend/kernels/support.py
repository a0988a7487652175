"""What the attention backend refuses, found before the first request.

Everything knowable from the loaded model, the pool and the bound operators is checked together, and one
``NotImplementedError`` names every layer, feature and value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kunlun_backend.kernels.kv_layout import pool_problems

_OPERATORS = ("reshape_and_cache", "prefill_attention", "speculative_attention")
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def refuse(problems: Iterable[str]) -> None:
    """Raise one ``NotImplementedError`` with all problems; do nothing when there are none."""
    found = list(problems)
    if found:
        raise NotImplementedError("the kunlun attention backend does not support: " + "; ".join(found))


def runner_problems(runner: Any, ops: Any) -> list[str]:
    """Problems of the model runner as a whole."""
    problems = [f"missing vendor operator {name}" for name in ops.missing if name.split(".")[-1] in _OPERATORS]
    if getattr(runner, "use_mla_backend", False):
        problems.append("MLA attention; choose a backend with MLA")
        return problems
    speculative = getattr(runner, "spec_algorithm", None)
    if speculative is not None and not speculative.is_none():
        problems.append(f"speculative decoding {speculative.name}: draft trees need masks the operators lack")
    dcp_size = getattr(getattr(runner, "server_args", None), "dcp_size", None) or 1
    if dcp_size > 1:
        problems.append(f"decode context parallelism: dcp_size {dcp_size}")
    dtype, kv_dtype = runner.dtype, runner.kv_cache_dtype
    if dtype not in _DTYPES:
        problems.append(f"activations of dtype {dtype}")
    elif kv_dtype != dtype:
        problems.append(f"KV cache dtype {kv_dtype} with {dtype} activations; use --kv-cache-dtype auto")
    else:
        problems += pool_problems(runner.token_to_kv_pool)
    if getattr(getattr(runner, "model_config", None), "is_encoder_decoder", False):
        problems.append("encoder-decoder models: cross-attention")
    return problems


def layer_problems(layer: Any, runner: Any, features: frozenset[str]) -> list[str]:
    """Problems of one ``RadixAttention`` layer."""
    chunked = getattr(getattr(runner, "model_config", None), "attention_chunk_size", None)
    kind = getattr(layer.attn_type, "value", layer.attn_type)
    windowed = layer.sliding_window_size > -1
    found = []
    if layer.is_cross_attention:
        found.append("cross-attention")
    if kind not in ("decoder", "encoder_only"):
        found.append(f"attention type {kind}")
    if kind == "encoder_only" and windowed:
        found.append(f"a window of {layer.sliding_window_size} on an encoder")
    heads = (layer.tp_q_head_num, layer.tp_k_head_num, layer.tp_v_head_num)
    if heads[0] % heads[1] or heads[1] != heads[2]:
        found.append(f"query, key and value heads {heads}")
    if layer.logit_cap:
        if "logit_cap" not in features:
            found.append(f"logit soft-cap {layer.logit_cap}, which the bound operators lack")
        if getattr(layer, "logit_capping_method", "tanh") != "tanh":
            found.append(f"soft-cap method {layer.logit_capping_method}")
    if getattr(layer, "pos_encoding_mode", "NONE") != "NONE":
        found.append(f"position encoding {layer.pos_encoding_mode} inside attention")
    if (getattr(layer, "xai_temperature_len", -1) or -1) > 0:
        found.append(f"attention temperature length {layer.xai_temperature_len}")
    if getattr(layer, "use_irope", False) and chunked:
        found.append(f"chunked local attention of {chunked}")
    return [f"layer {layer.layer_id}: {problem}" for problem in found]
