"""A second turn finds the first in the prefix cache, and the cache changes no token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.parity import TOLERANCE
from tests.support.server import Server

pytestmark = pytest.mark.serving

FIRST = [
    {"role": "system", "content": "You are a helpful assistant who answers in short sentences."},
    {"role": "user", "content": "Tell me one thing about the moon."},
]
FOLLOW_UP = {"role": "user", "content": "And one thing about the sun?"}
TOKENS = 32


def ids_of(tokenizer: Any, messages: Sequence[Any]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer.encode(text))


def test_a_second_turn_hits_the_cache_and_gives_the_same_tokens(server: Server, model_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    server.flush()
    opening = ids_of(tokenizer, FIRST)
    answer = server.generate(opening, TOKENS)
    assert answer["meta_info"]["cached_tokens"] == 0
    text = tokenizer.decode(answer["output_ids"], skip_special_tokens=True)
    second = ids_of(tokenizer, [*FIRST, {"role": "assistant", "content": text}, FOLLOW_UP])

    cached = server.generate(second, TOKENS, top=8)
    # The whole first turn is reused: its prompt, and the answer as far as it is tokenized the same way again.
    assert cached["meta_info"]["cached_tokens"] >= len(opening)

    server.flush()
    uncached = server.generate(second, TOKENS)
    assert uncached["meta_info"]["cached_tokens"] == 0
    pairs = zip(cached["output_ids"], uncached["output_ids"], strict=False)
    differing = [step for step, (one, other) in enumerate(pairs) if one != other]
    if differing:
        # Only another order of summation, so only where tokens were as good as equal.
        step = differing[0]
        best = cached["meta_info"]["output_top_logprobs"][step]
        near = {token for logprob, token, _ in best if best[0][0] - logprob <= TOLERANCE}
        print(f"step {step}: {cached['output_ids'][step]}, without the cache {uncached['output_ids'][step]}: {best}")
        assert {cached["output_ids"][step], uncached["output_ids"][step]} <= near
    else:
        assert uncached["output_ids"] == cached["output_ids"]
