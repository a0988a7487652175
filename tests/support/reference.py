"""What transformers generates for the same prompts, and how sure it is at every step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

_KEPT = 8


class Step(NamedTuple):
    """One generated token: the best candidates and their logits, best first."""

    ids: tuple[int, ...]
    logits: tuple[float, ...]

    def behind(self, token: int) -> float:
        """How far the logit of ``token`` is behind the best one; infinite when it is not among the best."""
        return self.logits[0] - self.logits[self.ids.index(token)] if token in self.ids else float("inf")


class Continuation(NamedTuple):
    """Greedy continuation of one prompt."""

    prompt: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def tokens(self) -> list[int]:
        return [step.ids[0] for step in self.steps]


class Reference:
    """A model in transformers.

    Args:
        folder: where the model is.
        dtype: dtype of weights and activations.
    """

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        from transformers import AutoModelForCausalLM

        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self._end: int = self._model.generation_config.eos_token_id

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int], tokens: int) -> Continuation:
        """Up to ``tokens`` tokens, the end token included."""
        fed, cache, steps = torch.tensor([list(prompt)]), None, []
        for _ in range(tokens):
            out = self._model(fed, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            steps.append(_best(out.logits[0, -1]))
            token = steps[-1].ids[0]
            if token == self._end:
                break
            fed = torch.tensor([[token]])
        return Continuation(tuple(prompt), tuple(steps))

    @torch.inference_mode()
    def gaps(self, continuation: Continuation) -> list[float]:
        """This model's logit gap between the two best candidates of every step of a continuation.

        The model reads the continuation in one pass, so every step sees the continuation's prefix.
        """
        tokens = continuation.tokens
        ids = torch.tensor([[*continuation.prompt, *tokens[:-1]]])
        logits = self._model(ids, logits_to_keep=len(tokens)).logits[0].float()
        return [float(row[s.ids[0]] - row[s.ids[1]]) for row, s in zip(logits, continuation.steps, strict=True)]


def _best(logits: torch.Tensor) -> Step:
    # A stable sort gives equal logits the order argmax gives them: the lower id first.
    values, ids = torch.sort(logits.float(), descending=True, stable=True)
    return Step(tuple(ids[:_KEPT].tolist()), tuple(values[:_KEPT].tolist()))


class Noise(NamedTuple):
    """How much top-2 gaps of one model move between two precisions."""

    median: float
    p99: float
    maximum: float


def noise(continuations: Sequence[Continuation], exact: Reference) -> Noise:
    """Compare the gaps of continuations with those of a model in higher precision."""
    moved = sorted(
        abs(step.logits[0] - step.logits[1] - gap)
        for continuation in continuations
        for step, gap in zip(continuation.steps, exact.gaps(continuation), strict=True)
    )
    return Noise(statistics.median(moved), moved[int(len(moved) * 0.99)], moved[-1])
