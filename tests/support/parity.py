"""Compare tokens of a server with the reference, and tell a near tie from a wrong result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.support.reference import Continuation

TOLERANCE = 0.25
"""Largest distance of two logits, in bfloat16, that counts as a near tie.

The best logits of the model reach 38, where neighbouring bfloat16 numbers are 0.25 apart: it is one step there, two
steps below 32. Between bfloat16 and float32 the reference itself moves the gap of its two best tokens by 0.06 in the
median, by up to 0.29 in 99 of 100 steps and by 0.45 at most; ``test_parity`` measures that anew.
"""


class NearTie(NamedTuple):
    """Where a server took another token than the reference, and the reference was undecided."""

    case: str
    step: int
    expected: int
    got: int
    gap: float

    def __str__(self) -> str:
        return (
            f"{self.case}: step {self.step}, token {self.got} instead of {self.expected}, logits {self.gap:.4f} apart"
        )


class Mismatch(NamedTuple):
    """Where a server took a token the reference had ruled out."""

    case: str
    step: int
    expected: int | None
    got: int | None
    gap: float

    def __str__(self) -> str:
        return (
            f"{self.case}: step {self.step}, expected token {self.expected}, got {self.got}, "
            f"which the reference puts {self.gap:.4f} behind (tolerance {TOLERANCE})"
        )


def compare(
    case: str, continuation: Continuation, tokens: Sequence[int], asked: int | None = None
) -> NearTie | Mismatch | None:
    """The first difference between a continuation and the ``asked`` tokens of a server; None when they are equal."""
    steps = continuation.steps[:asked]
    for number, (step, got) in enumerate(zip(steps, tokens, strict=False)):
        expected = step.ids[0]
        if got == expected:
            continue
        gap = step.behind(got)
        # The distance to the best token is at least the gap of the two best, so both are below the tolerance.
        kind = NearTie if gap <= TOLERANCE else Mismatch
        return kind(case, number, expected, got, gap)
    if len(tokens) != len(steps):
        number = min(len(tokens), len(steps))
        longer = [*(step.ids[0] for step in steps), None][number], [*tokens, None][number]
        return Mismatch(case, number, *longer, float("inf"))
    return None


def compare_all(
    label: str,
    reference: Mapping[str, Continuation],
    generated: Mapping[str, Sequence[int]],
    asked: int | None = None,
) -> Iterator[NearTie | Mismatch]:
    """First differences of many prompts."""
    for name, tokens in generated.items():
        found = compare(f"{name}, {label}", reference[name], tokens, asked)
        if found is not None:
            yield found
