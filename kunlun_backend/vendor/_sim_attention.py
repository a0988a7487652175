"""Attention of the software Kunlun on CPU torch.

Work is arranged for a small CPU: requests are batched instead of looped over, query heads that share a
key head are folded into the query rows (a matrix product instead of many vector products), keys are
gathered head-major so that the inner kernel reads dense memory, and everything that depends on lengths
alone is built once and reused by all layers of a step, keyed by the lengths themselves.

Scores and sums are float32; inputs and outputs keep their dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch

from kunlun_backend.vendor._sim_plan import (
    UNLIMITED,
    Group,
    blocks,
    decode_groups,
    needs_blocks,
    prefill_groups,
)

_PREFIX_PIECE = 4096
"""Cached keys of a large request are gathered in pieces of this many tokens."""
_FOLD_BELOW = 16
"""Groups with fewer queries per request than this fold query heads into rows."""
_HEAD_MAJOR_FROM = 320
"""From this many keys on, gathering head-major is worth the larger index."""
_PLANS_KEPT = 16

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""PyTorch's fused CPU attention; unlike ``scaled_dot_product_attention`` it also returns the log-sum-exp."""

_P = TypeVar("_P")


class _PlanCache:
    """The last few plans by value of everything they were built from."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, object] = {}

    def get(self, key: Hashable, build: Callable[[], _P]) -> _P:
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            plan = self._plans[key] = build()
        return plan  # type: ignore[return-value]


class _Rows(NamedTuple):
    """Where a group's rows are in a packed ``[tokens, ...]`` tensor.

    ``start``/``stop`` when they are consecutive and unpadded, else ``take`` (int64, padded positions
    repeat the request's last row), ``keep`` (int64, unpadded rows of the padded result; None when all)
    and ``put`` (int64, the tokens they belong to).
    """

    start: int
    stop: int
    take: torch.Tensor | None
    keep: torch.Tensor | None
    put: torch.Tensor | None


class _GroupPlan(NamedTuple):
    group: Group
    requests: torch.Tensor | None
    queries: _Rows
    keys: _Rows | None
    mask: torch.Tensor | None
    causal: bool
    fold: bool


class _Setup(NamedTuple):
    """What stays the same within one call."""

    scale: float
    logit_cap: float
    sink: torch.Tensor | None
    heads: int
    kv_heads: int


def _rows(lod: Sequence[int], group: Group, padded: int) -> _Rows:
    members = group.requests
    lengths = [lod[i + 1] - lod[i] for i in members]
    consecutive = members == tuple(range(members[0], members[-1] + 1))
    if consecutive and all(length == padded for length in lengths):
        return _Rows(lod[members[0]], lod[members[-1] + 1], None, None, None)
    take: list[int] = []
    keep: list[int] = []
    put: list[int] = []
    for row, (i, length) in enumerate(zip(members, lengths, strict=True)):
        take += [lod[i] + min(position, length - 1) for position in range(padded)]
        keep += range(row * padded, row * padded + length)
        put += range(lod[i], lod[i] + length)
    whole = len(keep) == len(take)
    return _Rows(0, 0, torch.tensor(take), None if whole else torch.tensor(keep), torch.tensor(put))


def _pick(packed: torch.Tensor, rows: _Rows) -> torch.Tensor:
    return packed[rows.start : rows.stop] if rows.take is None else packed.index_select(0, rows.take)


def _place(out: torch.Tensor, rows: _Rows, result: torch.Tensor) -> None:
    """Write ``result`` [requests, queries, heads, dim] to the tokens it belongs to."""
    if rows.put is None:
        out[rows.start : rows.stop].view(result.shape).copy_(result)
        return
    flat = result.reshape(-1, *out.shape[1:])
    out.index_copy_(0, rows.put, flat if rows.keep is None else flat.index_select(0, rows.keep))


def _group_mask(
    group: Group,
    q_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    left: int,
    right: int,
    dtype: torch.dtype,
) -> torch.Tensor | None:
    """Additive mask [requests, 1, queries, keys]; None when every query sees every key."""
    q_len = torch.tensor([q_lengths[i] for i in group.requests]).view(-1, 1, 1)
    kv_len = torch.tensor([kv_lengths[i] for i in group.requests]).view(-1, 1, 1)
    query = torch.arange(group.q_len).view(1, -1, 1)
    key = torch.arange(group.kv_len).view(1, 1, -1)
    position = query + (kv_len - q_len)
    visible = (key < kv_len) & (key <= position + right) & (key >= position - left)
    # A padded query must see something, or its softmax has no terms.
    visible |= (query >= q_len) & (key == 0)
    if bool(visible.all()):
        return None
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, float("-inf")).unsqueeze(1)


def _block_mask(rows: int, keys: int, offset: int, left: int, right: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Additive mask [1, 1, rows, keys] where row r stands at key position ``offset + r``."""
    position = torch.arange(offset, offset + rows).view(-1, 1)
    key = torch.arange(keys).view(1, -1)
    visible = (key <= position + right) & (key >= position - left)
    if bool(visible.all()):
        return None
    return torch.zeros(rows, keys, dtype=dtype).masked_fill_(~visible, float("-inf"))[None, None]


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, setup: _Setup
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [b, heads, rows, dim] over k, v [b, kv_heads, keys, dim].

    Returns output [b, heads, rows, v_dim] in the dtype of q and log-sum-exp [b, heads, rows] in float32.
    """
    if not setup.logit_cap and q.size(-1) == v.size(-1):
        return _flash(q, k, v, 0.0, causal, attn_mask=mask, scale=setup.scale)  # type: ignore[no-any-return]
    batch, heads, rows, dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    folded = q.reshape(batch, kv_heads, heads // kv_heads * rows, dim).float()
    scores = torch.matmul(folded, k.float().transpose(-1, -2)).mul_(setup.scale)
    if setup.logit_cap:
        scores = scores.div_(setup.logit_cap).tanh_().mul_(setup.logit_cap)
    scores = scores.view(batch, heads, rows, keys)
    if causal:
        scores.masked_fill_(torch.ones(rows, keys, dtype=torch.bool).triu_(1), float("-inf"))
    if mask is not None:
        scores.add_(mask)
    total = scores.logsumexp(-1)
    weights = scores.sub_(total.unsqueeze(-1)).exp_().view(batch, kv_heads, -1, keys)
    return torch.matmul(weights, v.float()).view(batch, heads, rows, -1).to(q.dtype), total


def _with_sink(output: torch.Tensor, total: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """Let a logit per head, broadcastable to ``total``, take part in a finished softmax."""
    return (output * torch.sigmoid(total - sink).unsqueeze(-1)).to(output.dtype)


def _gather(cache: torch.Tensor, table: torch.Tensor, keys: int) -> torch.Tensor:
    """Keys or values of the blocks in ``table`` [b, n] as [b, kv_heads, keys, dim]."""
    blocks_, kv_heads, block_size, dim = cache.shape
    batch, count = table.shape
    if block_size == 1 and keys < _HEAD_MAJOR_FROM:
        rows = cache.view(blocks_, kv_heads * dim).index_select(0, table.reshape(-1))
        return rows.view(batch, keys, kv_heads, dim).transpose(1, 2)
    heads = torch.arange(kv_heads, dtype=table.dtype).view(1, -1, 1)
    index = torch.add(heads, table.unsqueeze(1), alpha=kv_heads).view(-1)
    rows = cache.view(blocks_ * kv_heads, block_size * dim).index_select(0, index)
    return rows.view(batch, kv_heads, count * block_size, dim)[:, :, :keys]


class SimAttention:
    """The two attention operators, without their argument checks."""

    def __init__(self) -> None:
        self._plans = _PlanCache()

    def decode(
        self,
        out: torch.Tensor,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        lengths: tuple[int, ...],
        tables: torch.Tensor,
        left: int,
        scale: float,
        logit_cap: float,
        sink: torch.Tensor | None,
    ) -> None:
        """q and out [batch, qlen, heads, dim] over cached keys; see ``speculative_attention``."""
        batch, q_len, heads, dim = q.shape
        kv_heads = k_cache.size(1)
        setup = _Setup(scale, logit_cap, sink, heads, kv_heads)

        def build() -> list[_GroupPlan]:
            plans = []
            for group in decode_groups(lengths, q_len, kv_heads * dim):
                lod = range(0, (batch + 1) * q_len, q_len)
                mask = _group_mask(group, [q_len] * batch, lengths, left, 0, q.dtype)
                plans.append(self._finish(group, batch, lod, None, mask, False, heads // kv_heads))
            return plans

        key = ("decode", lengths, q_len, heads, kv_heads, dim, left, q.dtype)
        flat_q, flat_out = q.reshape(-1, heads, dim), out.view(-1, heads, out.size(-1))
        for plan in self._plans.get(key, build):
            self._run_group(plan, flat_q, k_cache, v_cache, flat_out, tables, setup)

    def prefill(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        q_lod: tuple[int, ...],
        kv_lod: tuple[int, ...],
        tables: torch.Tensor | None,
        left: int,
        right: int,
        scale: float,
        logit_cap: float,
        sink: torch.Tensor | None,
    ) -> None:
        """Packed q [tokens, heads, dim] over packed keys (tables None) or cached ones."""
        heads, dim = q.shape[1:]
        kv_heads = k.size(1)
        setup = _Setup(scale, logit_cap, sink, heads, kv_heads)
        flash = not logit_cap and dim == v.size(-1)
        key = ("prefill", q_lod, kv_lod, tables is None, left, right, heads, kv_heads, dim, q.dtype, flash)

        def build() -> tuple[list[_GroupPlan], list[int]]:
            q_lengths = [b - a for a, b in pairwise(q_lod)]
            kv_lengths = [b - a for a, b in pairwise(kv_lod)]
            groups, large = prefill_groups(q_lengths, kv_lengths, kv_heads * dim)
            plans = []
            for group in groups:
                # Without a prefix, padding needs no mask: padded keys come after all real queries.
                causal = right == 0 and left >= group.kv_len
                causal = causal and all(q_lengths[i] == kv_lengths[i] for i in group.requests)
                mask = None if causal else _group_mask(group, q_lengths, kv_lengths, left, right, q.dtype)
                source = kv_lod if tables is None else None
                fold = heads // kv_heads
                plans.append(self._finish(group, len(q_lengths), q_lod, source, mask, causal, fold))
            return plans, large

        plans, large = self._plans.get(key, build)
        for plan in plans:
            self._run_group(plan, q, k, v, out, tables, setup)
        for request in large:
            self._run_large(request, q, k, v, out, q_lod, kv_lod, tables, left, right, setup)

    @staticmethod
    def _finish(
        group: Group,
        batch: int,
        q_lod: Sequence[int],
        kv_lod: Sequence[int] | None,
        mask: torch.Tensor | None,
        causal: bool,
        share: int,
    ) -> _GroupPlan:
        fold = not causal and share > 1 and group.q_len < _FOLD_BELOW
        if fold and mask is not None and group.q_len > 1:
            mask = mask.repeat(1, 1, share, 1)
        everyone = group.requests == tuple(range(batch))
        return _GroupPlan(
            group=group,
            requests=None if everyone else torch.tensor(group.requests),
            queries=_rows(q_lod, group, group.q_len),
            keys=None if kv_lod is None else _rows(kv_lod, group, group.kv_len),
            mask=mask,
            causal=causal,
            fold=fold,
        )

    @staticmethod
    def _run_group(
        plan: _GroupPlan,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        tables: torch.Tensor | None,
        setup: _Setup,
    ) -> None:
        members, q_len, kv_len = len(plan.group.requests), plan.group.q_len, plan.group.kv_len
        heads, kv_heads, dim = setup.heads, setup.kv_heads, q.size(-1)
        if tables is None:
            assert plan.keys is not None
            keys = _pick(k, plan.keys).view(members, kv_len, kv_heads, dim).transpose(1, 2)
            values = _pick(v, plan.keys).view(members, kv_len, kv_heads, -1).transpose(1, 2)
        else:
            table = tables if plan.requests is None else tables.index_select(0, plan.requests)
            table = table[:, : -(-kv_len // k.size(2))]
            keys, values = _gather(k, table, kv_len), _gather(v, table, kv_len)
        queries = _pick(q, plan.queries).view(members, q_len, heads, dim)
        sink = setup.sink
        if not plan.fold:
            result, total = _attend(queries.transpose(1, 2), keys, values, plan.mask, plan.causal, setup)
            if sink is not None:
                result = _with_sink(result, total, sink.view(1, -1, 1))
            _place(out, plan.queries, result.transpose(1, 2))
            return
        share = heads // kv_heads
        if q_len == 1:
            folded = queries.view(members, kv_heads, share, dim)
        else:
            folded = queries.view(members, q_len, kv_heads, share, dim).permute(0, 2, 3, 1, 4)
            folded = folded.reshape(members, kv_heads, share * q_len, dim)
        result, total = _attend(folded, keys, values, plan.mask, False, setup)
        if sink is not None:
            result = _with_sink(result, total, sink.view(1, kv_heads, share).repeat_interleave(q_len, 2))
        if q_len == 1:
            _place(out, plan.queries, result.reshape(members, 1, heads, -1))
        else:
            result = result.view(members, kv_heads, share, q_len, -1).permute(0, 3, 1, 2, 4)
            _place(out, plan.queries, result.reshape(members, q_len, heads, -1))

    def _run_large(
        self,
        request: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        q_lod: tuple[int, ...],
        kv_lod: tuple[int, ...],
        tables: torch.Tensor | None,
        left: int,
        right: int,
        setup: _Setup,
    ) -> None:
        start, stop = q_lod[request : request + 2]
        q_len, kv_len = stop - start, kv_lod[request + 1] - kv_lod[request]
        prefix = kv_len - q_len
        queries = q[start:stop].transpose(0, 1).unsqueeze(0)

        def span(source: torch.Tensor, first: int, last: int) -> torch.Tensor:
            """Keys ``[first, last)`` of the request as [1, kv_heads, n, dim]."""
            if tables is None:
                base = kv_lod[request]
                return source[base + first : base + last].transpose(0, 1).unsqueeze(0)
            block_size = source.size(2)
            skip = first // block_size
            row = tables[request : request + 1, skip : -(-last // block_size)]
            return _gather(source, row, last - skip * block_size)[:, :, first - skip * block_size :]

        flash = not setup.logit_cap and q.size(-1) == v.size(-1)
        if flash and left >= kv_len and (right >= kv_len or (right == 0 and prefix == 0)):
            result, total = _attend(queries, span(k, 0, kv_len), span(v, 0, kv_len), None, right == 0, setup)
        elif flash and left >= kv_len and right == 0 and needs_blocks(q_len, kv_len):
            result, total = self._with_prefix(queries, k, v, prefix, kv_len, span, setup)
        else:
            for block in blocks(q_len, kv_len, left, right):
                rows, keys = block.q_stop - block.q_start, block.kv_stop - block.kv_start
                offset = prefix + block.q_start - block.kv_start
                mask = self._block_mask(rows, keys, offset, left, right, q.dtype)
                result, total = _attend(
                    queries[:, :, block.q_start : block.q_stop],
                    span(k, block.kv_start, block.kv_stop),
                    span(v, block.kv_start, block.kv_stop),
                    mask,
                    False,
                    setup,
                )
                if setup.sink is not None:
                    result = _with_sink(result, total, setup.sink.view(1, -1, 1))
                out[start + block.q_start : start + block.q_stop].copy_(result[0].transpose(0, 1))
            return
        if setup.sink is not None:
            result = _with_sink(result, total, setup.sink.view(1, -1, 1))
        out[start:stop].copy_(result[0].transpose(0, 1))

    def _block_mask(
        self, rows: int, keys: int, offset: int, left: int, right: int, dtype: torch.dtype
    ) -> torch.Tensor | None:
        key = ("block", rows, keys, offset, left, right, dtype)
        return self._plans.get(key, lambda: (_block_mask(rows, keys, offset, left, right, dtype),))[0]

    @staticmethod
    def _with_prefix(
        queries: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        prefix: int,
        kv_len: int,
        span: Callable[[torch.Tensor, int, int], torch.Tensor],
        setup: _Setup,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Causal attention after a cached prefix, without a mask.

        New keys are a causal square and every prefix piece is a full rectangle; the parts are merged by
        their log-sum-exp. This skips the upper triangle that a mask would compute and then discard.
        """
        wide = queries.float()

        def attend(first: int, last: int, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
            return _attend(wide, span(k, first, last).float(), span(v, first, last).float(), None, causal, setup)

        result, total = attend(prefix, kv_len, True)
        for first in range(0, prefix, _PREFIX_PIECE):
            last = min(prefix, first + _PREFIX_PIECE)
            part, part_total = attend(first, last, False)
            weight = torch.sigmoid(part_total - total).unsqueeze(-1)
            result = torch.lerp(result, part, weight)
            total = torch.logaddexp(total, part_total)
        return result, total


def visible_left(count: int) -> int:
    """A window argument of the contract as a bound: -1 is unlimited."""
    return UNLIMITED if count < 0 else count
