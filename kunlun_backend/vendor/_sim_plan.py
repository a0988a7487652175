"""How the software Kunlun splits one attention call into batched pieces.

Requests of very different length waste work when padded to one length, and a call per request wastes
time on call overhead. The functions here choose between the two from host-side lengths alone; they
import no torch and return plain tuples, so that a plan can be reused by every layer of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

UNLIMITED = 1 << 40
"""A window bound no sequence reaches."""

_GROUP_OVERHEAD = 80_000
"""Cost of one more group, in key elements gathered and multiplied (measured: about 100 microseconds)."""
_SMALL_PAIRS = 1 << 16
"""Requests with at most this many query-key pairs are batched; larger ones fill the machine alone."""
_MASK_PAIRS = 1 << 19
"""Largest mask, in query-key pairs, built for one large request."""
_BLOCK_ROWS = 512
"""Query rows per block where a large request needs a mask."""


class Group(NamedTuple):
    """Requests computed by one batched call, padded to common lengths."""

    requests: tuple[int, ...]
    q_len: int
    kv_len: int


class Block(NamedTuple):
    """Query rows ``[q_start, q_stop)`` of one request with the keys ``[kv_start, kv_stop)`` they may see."""

    q_start: int
    q_stop: int
    kv_start: int
    kv_stop: int


def split_by_length(order: Sequence[int], length: Callable[[int], int], unit: int, overhead: int) -> list[list[int]]:
    """Cut requests into runs of similar length.

    Args:
        order: request numbers.
        length: length of a request.
        unit: cost of one padded position.
        overhead: cost of one more run.

    Returns:
        The runs, longest first. A cut is made where it saves more padding than a run costs.
    """
    ordered = sorted(order, key=length, reverse=True)
    pending, runs = [ordered], []
    while pending:
        run = pending.pop()
        longest = length(run[0])
        best, cut = 0, 0
        for position in range(1, len(run)):
            saving = (len(run) - position) * (longest - length(run[position]))
            if saving > best:
                best, cut = saving, position
        if best * unit > overhead:
            pending += [run[cut:], run[:cut]]
        else:
            runs.append(run)
    return runs


def decode_groups(lengths: Sequence[int], q_len: int, key_width: int) -> list[Group]:
    """Groups for requests with ``q_len`` queries each; ``key_width`` is kv_heads * head_dim."""
    runs = split_by_length(range(len(lengths)), lengths.__getitem__, key_width, _GROUP_OVERHEAD)
    # Request order inside a group keeps whole-batch groups free of any reordering.
    return [Group(tuple(sorted(run)), q_len, max(lengths[i] for i in run)) for run in runs]


def prefill_groups(
    q_lengths: Sequence[int], kv_lengths: Sequence[int], key_width: int
) -> tuple[list[Group], list[int]]:
    """Split a ragged batch into groups of small requests and a list of large ones.

    Requests without queries appear in neither.
    """
    small = [i for i, q in enumerate(q_lengths) if q > 0 and q * kv_lengths[i] <= _SMALL_PAIRS]
    large = [i for i, q in enumerate(q_lengths) if q > 0 and q * kv_lengths[i] > _SMALL_PAIRS]
    groups: list[Group] = []
    if small:
        widest = max(kv_lengths[i] for i in small)
        for run in split_by_length(small, q_lengths.__getitem__, widest * key_width, _GROUP_OVERHEAD * 8):
            q_len = max(q_lengths[i] for i in run)
            for part in split_by_length(run, kv_lengths.__getitem__, q_len * key_width, _GROUP_OVERHEAD):
                group_q = max(q_lengths[i] for i in part)
                groups.append(Group(tuple(sorted(part)), group_q, max(kv_lengths[i] for i in part)))
    return groups, large


def needs_blocks(q_len: int, kv_len: int) -> bool:
    """Whether one mask for the whole request would be too large."""
    return q_len * kv_len > _MASK_PAIRS


def blocks(q_len: int, kv_len: int, left: int, right: int) -> list[Block]:
    """Query blocks of one request and the keys each can see.

    ``left`` and ``right`` count keys visible before and after a query's own position; queries are the
    last ``q_len`` positions of ``kv_len``.
    """
    rows = max(32, min(_BLOCK_ROWS, _MASK_PAIRS // min(kv_len, left + _BLOCK_ROWS)))
    first = kv_len - q_len
    result = []
    for start in range(0, q_len, rows):
        stop = min(q_len, start + rows)
        result.append(Block(start, stop, max(0, first + start - left), min(kv_len, first + stop + min(right, kv_len))))
    return result
