"""Tables of one step, built once and shared by all layers.

Layers that read the same slots through the same window share a *view*: the slots new tokens are written
to and the block table old ones are read from. A model has one view, or two when some layers have a
sliding window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kunlun_backend.kernels.kv_layout import KVLayout


class ViewKey(NamedTuple):
    """What distinguishes views: the pool slots belong to, and keys visible before a query (-1: all)."""

    window_pool: bool
    window: int


@dataclass(slots=True)
class DecodeView:
    """One new token per request.

    Attributes:
        slots: int32 [batch], where the new tokens are written.
        lens_cpu, lens: int32 [batch], keys each request reads, on host and device.
        tables: int32 [batch, blocks]; padding repeats a request's own last block.
        longest: upper bound of ``lens``.
        window: keys visible before the query that the operator still has to enforce; -1 when the
            table holds nothing else.
    """

    slots: torch.Tensor
    lens_cpu: torch.Tensor
    lens: torch.Tensor
    tables: torch.Tensor
    longest: int
    window: int


@dataclass(slots=True)
class ExtendView:
    """Any number of new tokens per request.

    Attributes:
        slots: int32 [tokens], where the new tokens are written.
        tables: int32 [batch, blocks] over prefix and new tokens.
        window: keys visible before a query; -1 is unlimited.
    """

    slots: torch.Tensor
    tables: torch.Tensor
    window: int


@dataclass(slots=True)
class ExtendStep:
    """Lengths of an extend step: int32 prefix sums [batch + 1] on host and device, and the views.

    Attributes:
        tokens: new tokens of all requests; the batch may be padded beyond them.
        has_prefix: some request has cached tokens.
    """

    q_lod_cpu: torch.Tensor
    q_lod: torch.Tensor
    kv_lod_cpu: torch.Tensor
    kv_lod: torch.Tensor
    tokens: int
    has_prefix: bool
    views: list[ExtendView]


@dataclass(slots=True)
class DecodeStep:
    """The views of a decode step."""

    views: list[DecodeView]


class StepTables:
    """Builds the steps of one model runner."""

    def __init__(self, layout: KVLayout, req_to_token: torch.Tensor, views: list[ViewKey], device: Any) -> None:
        self._layout = layout
        self._req_to_token = req_to_token
        self._views = views
        self._device = device
        self._static: list[DecodeView] = []

    def decode(self, batch: Any) -> DecodeStep:
        """Tables of a decode batch (``forward_mode`` DECODE)."""
        lens_cpu = _host_lengths(batch)
        slots = batch.out_cache_loc.to(torch.int32)
        return DecodeStep([self._decode_view(key, batch, lens_cpu, slots) for key in self._views])

    def extend(self, batch: Any) -> ExtendStep:
        """Tables of a batch with any number of new tokens per request."""
        new, cached = batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu
        if new is None or cached is None:
            new, cached = batch.extend_seq_lens.tolist(), batch.extend_prefix_lens.tolist()
        total = [a + b for a, b in zip(new, cached, strict=True)]
        q_lod_cpu, kv_lod_cpu = _prefix_sum(new), _prefix_sum(total)
        longest = max(total, default=0)
        lens = torch.tensor(total, dtype=torch.int32).to(self._device)
        tables = self._block_table(batch.req_pool_indices[: len(total)], lens, None, longest)
        slots = batch.out_cache_loc.to(torch.int32)
        views = []
        for key in self._views:
            mapped = key.window_pool
            views.append(
                ExtendView(
                    self._layout.window_slots(slots) if mapped else slots,
                    self._layout.window_slots(tables) if mapped else tables,
                    key.window,
                )
            )
        return ExtendStep(
            q_lod_cpu=q_lod_cpu,
            q_lod=q_lod_cpu.to(self._device),
            kv_lod_cpu=kv_lod_cpu,
            kv_lod=kv_lod_cpu.to(self._device),
            tokens=sum(new),
            has_prefix=any(cached),
            views=views,
        )

    def reserve(self, max_batch: int) -> None:
        """Allocate the tables of captured decode steps, whose addresses must not change."""
        width = -(-self._req_to_token.size(1) // self._layout.block_size)
        self._static = []
        for key in self._views:
            trimmed = key.window >= 0 and self._layout.block_size == 1
            columns = min(width, key.window + 1) if trimmed else width
            self._static.append(
                DecodeView(
                    slots=torch.zeros(max_batch, dtype=torch.int32, device=self._device),
                    lens_cpu=torch.ones(max_batch, dtype=torch.int32),
                    lens=torch.ones(max_batch, dtype=torch.int32, device=self._device),
                    tables=torch.zeros(max_batch, columns, dtype=torch.int32, device=self._device),
                    longest=columns * self._layout.block_size,
                    window=-1 if trimmed else key.window,
                )
            )

    def decode_static(self, batch: Any) -> DecodeStep:
        """Refresh the reserved tables for ``batch`` and return them; host copies included."""
        size = batch.batch_size
        views = []
        for static, fresh in zip(self._static, self.decode(batch).views, strict=True):
            static.slots[: fresh.slots.size(0)].copy_(fresh.slots)
            static.lens_cpu[:size].copy_(fresh.lens_cpu)
            static.lens[:size].copy_(fresh.lens)
            static.tables[:size, : fresh.tables.size(1)].copy_(fresh.tables)
            views.append(
                DecodeView(
                    slots=static.slots[: fresh.slots.size(0)],
                    lens_cpu=static.lens_cpu[:size],
                    lens=static.lens[:size],
                    tables=static.tables[:size],
                    longest=static.longest,
                    window=static.window,
                )
            )
        return DecodeStep(views)

    def _decode_view(self, key: ViewKey, batch: Any, lens_cpu: torch.Tensor, slots: torch.Tensor) -> DecodeView:
        lens, start, window = batch.seq_lens.to(torch.int32), None, key.window
        if window >= 0 and self._layout.block_size == 1:
            # A block per token lets the table itself be the window: nothing older is gathered.
            start = (lens - (window + 1)).clamp_(min=0)
            lens, lens_cpu, window = lens - start, lens_cpu.clamp(max=window + 1), -1
        longest = int(lens_cpu.max()) if lens_cpu.numel() else 0
        tables = self._block_table(batch.req_pool_indices, lens, start, longest)
        if key.window_pool:
            tables, slots = self._layout.window_slots(tables), self._layout.window_slots(slots)
        return DecodeView(slots, lens_cpu, lens, tables, longest, window)

    def _block_table(
        self, requests: torch.Tensor, lens: torch.Tensor, start: torch.Tensor | None, longest: int
    ) -> torch.Tensor:
        """Blocks of tokens ``start`` to ``start + lens`` of each request, int32 [requests, blocks].

        Padding repeats the request's own last block, so that masked reads stay inside the request.
        """
        size = self._layout.block_size
        columns = torch.arange(0, longest, size, dtype=torch.int32, device=self._device)
        # A captured batch may hold padded requests without tokens; they read their slot 0.
        tokens = torch.minimum(columns.unsqueeze(0), (lens - 1).clamp(min=0).unsqueeze(1))
        if start is not None:
            tokens = tokens + start.unsqueeze(1)
        table = self._req_to_token[requests.long().unsqueeze(1), tokens.long()]
        return table if size == 1 else table // size


def _prefix_sum(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def _host_lengths(batch: Any) -> torch.Tensor:
    """int32 host copy of ``seq_lens``; one device read when SGLang kept none."""
    host = batch.seq_lens_cpu
    return (batch.seq_lens.cpu() if host is None else host).to(torch.int32)
