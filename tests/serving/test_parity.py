"""The software Kunlun generates what transformers generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.serving.conftest import TOKENS, Check
from tests.support.parity import TOLERANCE
from tests.support.prompts import SHARED_PREFIX
from tests.support.reference import Continuation, Reference, noise
from tests.support.server import Server

pytestmark = pytest.mark.serving

TOKENS_TOGETHER = TOKENS // 2
"""Of prompts that run together; a step of eight takes the CPU three times as long as a step of one."""


def test_the_tolerance_is_within_what_the_dtype_itself_moves(
    reference: Mapping[str, Continuation], model_dir: Path
) -> None:
    import torch

    measured = noise(list(reference.values()), Reference(model_dir, torch.float32))
    print(measured)
    assert measured.median < TOLERANCE < measured.p99


def test_one_at_a_time(
    reference: Mapping[str, Continuation],
    server: Server,
    prompt_ids: Mapping[str, Sequence[int]],
    matches_reference: Check,
) -> None:
    generated = {}
    for name, ids in prompt_ids.items():
        server.flush()
        generated[name] = server.tokens(ids, TOKENS)
    matches_reference("alone", generated)


def test_eight_at_a_time(
    reference: Mapping[str, Continuation],
    server: Server,
    prompt_ids: Mapping[str, Sequence[int]],
    matches_reference: Check,
) -> None:
    names, generated = list(prompt_ids), {}
    for first in range(0, len(names), 8):
        group = names[first : first + 8]
        server.flush()
        answers = server.batch_tokens((prompt_ids[name] for name in group), TOKENS_TOGETHER)
        generated |= zip(group, answers, strict=True)
    matches_reference("eight at a time", generated, TOKENS_TOGETHER)


def test_a_shared_prefix_from_the_cache(
    reference: Mapping[str, Continuation],
    server: Server,
    prompt_ids: Mapping[str, Sequence[int]],
    matches_reference: Check,
) -> None:
    first, second = SHARED_PREFIX
    server.flush()
    without = server.generate(prompt_ids[second], TOKENS)
    assert without["meta_info"]["cached_tokens"] == 0
    matches_reference("without its prefix in the cache", {second: without["output_ids"]})

    server.flush()
    server.generate(prompt_ids[first], 1)
    cached = server.generate(prompt_ids[second], TOKENS)
    assert cached["meta_info"]["cached_tokens"] == len(prompt_ids[first])
    matches_reference("with its prefix in the cache", {second: cached["output_ids"]})

    # Both at once, the prefix known: one request extends nothing, the other extends by its tail.
    together = server.batch_tokens((prompt_ids[name] for name in SHARED_PREFIX), TOKENS)
    matches_reference("together, prefix in the cache", dict(zip(SHARED_PREFIX, together, strict=True)))
