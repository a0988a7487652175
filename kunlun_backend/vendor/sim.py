"""The software Kunlun: the vendor's operator contract on CPU torch.

Every operator checks what the contract says about dtype, shape, layout and documented limits before it
computes, so that a call the card would get wrong fails here by name. Beyond the vendor's own argument
lists, both attention operators take the keyword ``logit_cap`` (feature ``"logit_cap"``).

Rounding follows HuggingFace's modules: RMSNorm rounds before the weight, rotary rounds each product.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn import functional

from kunlun_backend.vendor._sim_attention import SimAttention, visible_left
from kunlun_backend.vendor.checks import (
    check_contiguous,
    check_dtype,
    check_fixed,
    check_host_table,
    check_limit,
    check_rank,
    check_rows,
    check_shape,
    refuse,
)
from kunlun_backend.vendor.contract import CONTRACT, OPERATORS
from kunlun_backend.vendor.table import VendorTable

__all__ = ["FEATURES", "OPERATORS", "bind"]

FEATURES: tuple[str, ...] = ("logit_cap",)
"""Abilities beyond the vendor's argument lists."""

_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_INTEGERS = (torch.int64, torch.int32)
_ROTARY_TOKENS = CONTRACT["flashinfer_rotary_embedding"].limit("tokens")
_DECODE_BATCH = CONTRACT["speculative_attention"].limit("batch_num")
_DECODE_REMEDY = "Lower --max-running-requests and the largest graph batch size."


def bind() -> VendorTable:
    """A table with every contract operator. Each call returns independent state."""
    attention = _Attention()
    return VendorTable(
        "sim",
        {
            "rmsnorm": rmsnorm,
            "add_rmsnorm": add_rmsnorm,
            "swiglu": swiglu,
            "reshape_and_cache": reshape_and_cache,
            "prefill_attention": attention.prefill_attention,
            "speculative_attention": attention.speculative_attention,
            "flashinfer_rotary_embedding": flashinfer_rotary_embedding,
        },
        FEATURES,
    )


# Operators that a decode step calls hundreds of times decide in one expression whether a call is within
# the contract, and run the named checks, which are slower, only to say what is wrong.


def _rows_match(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Both are contiguous matrices of one shape and one supported dtype."""
    return (
        x.dtype is other.dtype
        and x.dtype in _FLOATS
        and x.dim() == 2 == other.dim()
        and x.size(0) == other.size(0)
        and x.size(1) == other.size(1)
        and x.is_contiguous()
        and other.is_contiguous()
    )


def _fits(weight: torch.Tensor, x: torch.Tensor) -> bool:
    return weight.dtype is x.dtype and weight.dim() == 1 and weight.size(0) == x.size(1)


def _check_norm(name: str, x: torch.Tensor, weight: torch.Tensor | None, **same: torch.Tensor) -> None:
    check_rank(name, "x", x, 2)
    check_dtype(name, "x", x, _FLOATS)
    check_contiguous(name, "x", x)
    for argument, tensor in same.items():
        check_shape(name, argument, tensor, x.shape)
        check_dtype(name, argument, tensor, (x.dtype,))
        check_contiguous(name, argument, tensor)
    if weight is not None:
        check_shape(name, "weight", weight, x.shape[1:])
        check_dtype(name, "weight", weight, (x.dtype,))


def _norm(x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, eps: float) -> None:
    normed = torch.rms_norm(x, (x.size(1),), None, eps)
    if weight is None:
        out.copy_(normed)
    else:
        torch.mul(normed, weight, out=out)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, eps: float) -> None:
    """Write the RMS norm of ``x`` [tokens, hidden] times ``weight`` [hidden] (None: ones) to ``out``."""
    if not (_rows_match(x, out) and (weight is None or _fits(weight, x))):
        _check_norm("rmsnorm", x, weight, out=out)
    _norm(x, weight, out, eps)


def add_rmsnorm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    out: torch.Tensor,
    eps: float,
    reserved_5: bool,
    reserved_6: bool,
    reserved_7: None,
    reserved_8: None,
    residual_output: torch.Tensor,
    reserved_10: None,
) -> None:
    """Write ``x + residual`` to ``residual_output`` and its RMS norm to ``out``, all [tokens, hidden]."""
    name = "add_rmsnorm"
    if reserved_5 is not False or reserved_6 is not True:
        check_fixed(name, "reserved_5", reserved_5)
        check_fixed(name, "reserved_6", reserved_6)
    if reserved_7 is not None or reserved_8 is not None or reserved_10 is not None:
        check_fixed(name, "reserved_7", reserved_7)
        check_fixed(name, "reserved_8", reserved_8)
        check_fixed(name, "reserved_10", reserved_10)
    matching = _rows_match(x, out) and _rows_match(x, residual) and _rows_match(x, residual_output)
    if not (matching and (weight is None or _fits(weight, x))):
        _check_norm(name, x, weight, residual=residual, out=out, residual_output=residual_output)
    torch.add(x, residual, out=residual_output)
    _norm(residual_output, weight, out, eps)


def swiglu(x: torch.Tensor, y: torch.Tensor) -> None:
    """Write silu of the first half of ``x`` [tokens, 2n] times its second half to ``y`` [tokens, n]."""
    if (
        x.dtype is y.dtype
        and x.dtype in _FLOATS
        and x.dim() == 2 == y.dim()
        and x.size(0) == y.size(0)
        and x.size(1) == 2 * y.size(1)
        and x.is_contiguous()
        and y.is_contiguous()
    ):
        gate, up = x.chunk(2, 1)
        torch.mul(functional.silu(gate), up, out=y)
        return
    check_rank("swiglu", "x", x, 2)
    check_dtype("swiglu", "x", x, _FLOATS)
    check_contiguous("swiglu", "x", x)
    half = x.size(1) // 2
    if x.size(1) != 2 * half:
        refuse("swiglu", "last dimension of x", x.size(1), "even sizes", "Join the gate and up projections.")
    check_shape("swiglu", "y", y, (x.size(0), half))
    check_dtype("swiglu", "y", y, (x.dtype,))
    check_contiguous("swiglu", "y", y)


def reshape_and_cache(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_max: None,
    v_max: None,
    quant_mode: int,
) -> None:
    """Write ``k``, ``v`` [tokens, kv_heads, dim] to the slots of 4-D caches; ``slot_mapping`` is int32."""
    name = "reshape_and_cache"
    if k_max is not None or v_max is not None or quant_mode != 0:
        check_fixed(name, "k_max", k_max)
        check_fixed(name, "v_max", v_max)
        check_fixed(name, "quant_mode", quant_mode)
    # Everything is checked before anything is written.
    if not (_writable(k, k_cache, slot_mapping) and _writable(v, v_cache, slot_mapping)):
        _check_write(k, v, k_cache, v_cache, slot_mapping)
    slots = slot_mapping.long()
    for source, cache in ((k, k_cache), (v, v_cache)):
        blocks, kv_heads, block_size, dim = cache.shape
        if block_size == 1:
            cache.view(blocks, kv_heads, dim).index_copy_(0, slots, source)
        else:
            cache[slots // block_size, :, slots % block_size] = source


def _writable(source: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> bool:
    return (
        source.dtype is cache.dtype
        and source.dtype in _FLOATS
        and slots.dtype is torch.int32
        and source.dim() == 3
        and cache.dim() == 4
        and slots.dim() == 1
        and source.size(0) == slots.size(0)
        and source.size(1) == cache.size(1)
        and source.size(2) == cache.size(3) == source.stride(1)
        and source.stride(2) == 1
        and cache.is_contiguous()
    )


def _check_write(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    name = "reshape_and_cache"
    check_dtype(name, "slot_mapping", slots, (torch.int32,))
    check_shape(name, "slot_mapping", slots, (k.size(0),))
    for argument, source, cache in (("k", k, k_cache), ("v", v, v_cache)):
        check_rank(name, argument, source, 3)
        check_dtype(name, argument, source, (cache.dtype,))
        check_dtype(name, f"{argument}_cache", cache, _FLOATS)
        check_rows(name, argument, source)
        _check_cache(name, f"{argument}_cache", cache)
        check_shape(name, argument, source, (k.size(0), cache.size(1), cache.size(3)))


def _check_cache(name: str, argument: str, cache: torch.Tensor) -> None:
    check_rank(name, argument, cache, 4)
    check_contiguous(name, argument, cache)


def flashinfer_rotary_embedding(
    positions: torch.Tensor,
    rotary_dim: int,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox_style: bool,
    query: torch.Tensor,
    key: torch.Tensor,
    offsets: None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated copies of ``query`` and ``key`` [tokens, heads, head_size] at ``positions`` [tokens]."""
    name = "flashinfer_rotary_embedding"
    if offsets is not None:
        check_fixed(name, "offsets", "a tensor")
    tokens = positions.size(0)
    if not (
        tokens <= _ROTARY_TOKENS
        and query.dtype is key.dtype
        and query.dtype in _FLOATS
        and cos_sin_cache.dtype in (torch.float32, query.dtype)
        and positions.dtype in _INTEGERS
        and positions.dim() == 1
        and query.dim() == 3 == key.dim()
        and query.size(0) == tokens == key.size(0)
        and query.size(2) == head_size == key.size(2)
        and query.stride(2) == 1 == key.stride(2)
        and query.stride(1) == head_size == key.stride(1)
        and rotary_dim <= head_size
        and cos_sin_cache.size(1) == rotary_dim
        and rotary_dim % 2 == 0
    ):
        _check_rotary(positions, rotary_dim, head_size, cos_sin_cache, query, key)
    table = cos_sin_cache.index_select(0, positions).to(query.dtype)
    half = rotary_dim // 2
    cos, sin = table.view((tokens, 1, 2, 1, half) if is_neox_style else (tokens, 1, 2, half, 1)).unbind(2)
    return (
        _rotate(query, cos, sin, half, is_neox_style),
        _rotate(key, cos, sin, half, is_neox_style),
    )


def _check_rotary(
    positions: torch.Tensor,
    rotary_dim: int,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
) -> None:
    name, tokens = "flashinfer_rotary_embedding", positions.size(0)
    check_rank(name, "positions", positions, 1)
    check_dtype(name, "positions", positions, _INTEGERS)
    check_limit(name, "tokens", tokens, "Call it once per 256 tokens.")
    check_dtype(name, "query", query, _FLOATS)
    check_dtype(name, "cos_sin_cache", cos_sin_cache, (torch.float32, query.dtype))
    if rotary_dim > head_size or rotary_dim % 2 or cos_sin_cache.size(-1) != rotary_dim:
        found = f"{rotary_dim} with head size {head_size} and a cache {cos_sin_cache.size(-1)} wide"
        limit = "an even width of at most one head, as wide as the cache"
        refuse(name, "rotary_dim", found, limit, "Check the model.")
    for argument, heads in (("query", query), ("key", key)):
        check_rank(name, argument, heads, 3)
        check_shape(name, argument, heads, (tokens, heads.size(1), head_size))
        check_dtype(name, argument, heads, (query.dtype,))
        check_rows(name, argument, heads)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, half: int, neox: bool) -> torch.Tensor:
    tokens, heads, head_size = x.shape
    whole = 2 * half == head_size
    turned = x if whole else x[..., : 2 * half]
    at = 2 if neox else 3
    pairs = turned.view((tokens, heads, 2, half) if neox else (tokens, heads, half, 2))
    rotated, crossed = pairs * cos, pairs * sin
    first, second = rotated.unbind(at)
    crossed_first, crossed_second = crossed.unbind(at)
    first.sub_(crossed_second)
    second.add_(crossed_first)
    rotated = rotated.view(tokens, heads, 2 * half)
    return rotated if whole else torch.cat((rotated, x[..., 2 * half :]), -1)


class _Attention:
    """The attention operators of one table; they share a small cache of per-step plans."""

    def __init__(self) -> None:
        self._kernel = SimAttention()

    def prefill_attention(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        is_causal: bool,
        is_prefix_cache: bool,
        block_table: torch.Tensor | None,
        context_qlen_lod_cpu: torch.Tensor,
        context_qlen_lod_xpu: torch.Tensor,
        context_kvlen_lod_cpu: torch.Tensor,
        context_kvlen_lod_xpu: torch.Tensor,
        alibi_slopes: None = None,
        softmax_lse: None = None,
        swa_left: int = -1,
        swa_right: int = -1,
        sink: torch.Tensor | None = None,
        *,
        logit_cap: float = 0.0,
    ) -> None:
        """Attention of packed queries [tokens, heads, dim], scaled by ``dim ** -0.5``, to ``out``.

        Keys are packed [tokens, kv_heads, dim], or 4-D caches when ``is_prefix_cache``. Queries are the
        last tokens of their request. ``logit_cap`` c > 0 squashes scores to ``c * tanh(score / c)``.
        """
        name = "prefill_attention"
        if alibi_slopes is not None or softmax_lse is not None:
            check_fixed(name, "alibi_slopes", alibi_slopes)
            check_fixed(name, "softmax_lse", softmax_lse)
        self._check_queries(name, q, out, 3)
        tables, lods = context_qlen_lod_cpu.numel(), []
        for argument, host, device in (
            ("context_qlen_lod", context_qlen_lod_cpu, context_qlen_lod_xpu),
            ("context_kvlen_lod", context_kvlen_lod_cpu, context_kvlen_lod_xpu),
        ):
            check_host_table(name, f"{argument}_cpu", host, tables)
            check_dtype(name, f"{argument}_xpu", device, (torch.int32,))
            check_shape(name, f"{argument}_xpu", device, (tables,))
            lods.append(tuple(host.tolist()))
        q_lod, kv_lod = lods
        if not q_lod or q_lod[-1] != q.size(0):
            refuse(name, "context_qlen_lod_cpu", q_lod[-1:], f"an end of {q.size(0)}", "Count the tokens of q.")
        if is_prefix_cache:
            self._check_caches(name, q, k, v, out)
            longest = max((b - a for a, b in pairwise(kv_lod)), default=0)
            self._check_block_table(name, "block_table", block_table, tables - 1, longest, k.size(2))
        else:
            self._check_packed(name, q, k, v, out, kv_lod[-1])
            if block_table is not None:
                refuse(name, "block_table", "a tensor", "None without is_prefix_cache", "Leave it out.")
        self._check_sink(name, q, sink)
        right = 0 if is_causal else visible_left(swa_right)
        scale = q.size(-1) ** -0.5
        self._kernel.prefill(
            q, k, v, out, q_lod, kv_lod, block_table, visible_left(swa_left), right, scale, logit_cap, sink
        )

    def speculative_attention(
        self,
        out: torch.Tensor,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        context_lens_cpu: torch.Tensor,
        context_lens_xpu: torch.Tensor,
        batch_num: int,
        qlen: int,
        max_context_len: int,
        head_num: int,
        head_dim: int,
        scale: float,
        kv_head_num: int,
        block_size: int,
        max_num_blocks_per_seq: int,
        max_window_size: int,
        block_tables: torch.Tensor,
        sink: torch.Tensor | None = None,
        *,
        logit_cap: float = 0.0,
    ) -> None:
        """Attention of ``qlen`` new tokens of each request, [batch, qlen, heads, dim], over the caches."""
        name = "speculative_attention"
        if not (
            batch_num <= _DECODE_BATCH
            and q.dtype is out.dtype is k_cache.dtype is v_cache.dtype
            and q.dtype in _FLOATS
            and context_lens_cpu.dtype is context_lens_xpu.dtype is torch.int32
            and context_lens_cpu.shape == context_lens_xpu.shape == (batch_num,)
            and context_lens_cpu.is_cpu
            and q.shape == (batch_num, qlen, head_num, head_dim)
            and q.stride(3) == 1
            and q.stride(2) == head_dim
            and k_cache.shape[1:] == (kv_head_num, block_size, head_dim)
            and v_cache.shape[:3] == k_cache.shape[:3]
            and out.shape == (batch_num, qlen, head_num, v_cache.size(3))
            and head_num % kv_head_num == 0
            and out.is_contiguous()
            and k_cache.is_contiguous()
            and v_cache.is_contiguous()
        ):
            check_limit(name, "batch_num", batch_num, _DECODE_REMEDY)
            self._check_queries(name, q, out, 4)
            check_shape(name, "q", q, (batch_num, qlen, head_num, head_dim))
            check_host_table(name, "context_lens_cpu", context_lens_cpu, batch_num)
            check_dtype(name, "context_lens_xpu", context_lens_xpu, (torch.int32,))
            check_shape(name, "context_lens_xpu", context_lens_xpu, (batch_num,))
            self._check_caches(name, q, k_cache, v_cache, out)
        if k_cache.shape[1:3] != (kv_head_num, block_size):
            found, limit = str((kv_head_num, block_size)), str(tuple(k_cache.shape[1:3]))
            refuse(name, "(kv_head_num, block_size)", found, limit, "Read them off the cache.")
        if batch_num == 0:
            return
        lengths = tuple(context_lens_cpu.tolist())
        if max(lengths) > max_context_len or min(lengths) < qlen:
            limit = f"{qlen} to max_context_len {max_context_len}"
            found = f"{min(lengths)} to {max(lengths)}"
            refuse(name, "context_lens_cpu", found, limit, "Count the new tokens too.")
        self._check_block_table(name, "block_tables", block_tables, batch_num, max(lengths), block_size)
        check_shape(name, "block_tables", block_tables, (batch_num, max_num_blocks_per_seq))
        self._check_sink(name, q, sink)
        left = visible_left(max_window_size)
        self._kernel.decode(out, q, k_cache, v_cache, lengths, block_tables, left, scale, logit_cap, sink)

    @staticmethod
    def _check_queries(name: str, q: torch.Tensor, out: torch.Tensor, rank: int) -> None:
        check_rank(name, "q", q, rank)
        check_dtype(name, "q", q, _FLOATS)
        check_rows(name, "q", q)
        check_shape(name, "out", out, (*q.shape[:-1], out.size(-1)))
        check_dtype(name, "out", out, (q.dtype,))
        check_contiguous(name, "out", out)

    @staticmethod
    def _check_heads(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        check_dtype(name, "k", k, (q.dtype,))
        check_dtype(name, "v", v, (q.dtype,))
        heads, kv_heads = q.size(-2), k.size(1)
        if heads % kv_heads or v.size(1) != kv_heads:
            found = f"{heads} query, {kv_heads} key and {v.size(1)} value heads"
            limit = "as many value as key heads, dividing the query heads"
            refuse(name, "heads", found, limit, "Check the model.")
        if k.size(-1) != q.size(-1) or v.size(-1) != out.size(-1):
            found = f"q {q.size(-1)}, k {k.size(-1)}, v {v.size(-1)}, out {out.size(-1)}"
            refuse(name, "head dimension", found, "q like k, and v like out", "Check the layer and the pool.")

    def _check_caches(
        self, name: str, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        _check_cache(name, "k_cache", k_cache)
        _check_cache(name, "v_cache", v_cache)
        check_shape(name, "v_cache", v_cache, (*k_cache.shape[:3], v_cache.size(3)))
        self._check_heads(name, q, k_cache, v_cache, out)

    def _check_packed(
        self, name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, tokens: int
    ) -> None:
        for argument, tensor in (("k", k), ("v", v)):
            check_rank(name, argument, tensor, 3)
            check_rows(name, argument, tensor)
            check_shape(name, argument, tensor, (tokens, *tensor.shape[1:]))
        self._check_heads(name, q, k, v, out)

    @staticmethod
    def _check_block_table(
        name: str, argument: str, table: torch.Tensor | None, requests: int, longest: int, block_size: int
    ) -> None:
        if table is None:
            refuse(name, argument, "None", "an int32 tensor when keys are cached", "Pass the table.")
        check_rank(name, argument, table, 2)
        check_dtype(name, argument, table, (torch.int32,))
        if table.size(0) != requests or table.size(1) * block_size < longest:
            found = f"{tuple(table.shape)} with block size {block_size}"
            limit = f"{requests} rows naming at least {longest} tokens"
            refuse(name, f"shape of {argument}", found, limit, "One row per request.")

    @staticmethod
    def _check_sink(name: str, q: torch.Tensor, sink: torch.Tensor | None) -> None:
        if sink is not None:
            check_shape(name, "sink", sink, (q.size(-2),))
            check_dtype(name, "sink", sink, (torch.float32, q.dtype))
