"""What was read back from SGLang in this process. Only that counts as active."""

from __future__ import annotations

from typing import Any

from kunhook.bound import Bound
from kunhook.errors import KunhookError


class Readbacks:
    """Findings by (hook, key)."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[str, str]] = {}

    def took(self, hook: str, key: str, detail: str) -> None:
        """SGLang holds our answer."""
        self._found[hook, key] = ("active", detail)

    def unused(self, hook: str, key: str, detail: str) -> None:
        """SGLang could hold our answer but, for a good reason, does not."""
        self._found[hook, key] = ("inactive", detail)

    def called(self, hook: str, bound: Bound) -> None:
        """Every implementation of a hook of mode EACH was called in this process."""
        if hook in bound.plan.calls:
            bound.used[hook] += 1
            self._found[hook, ""] = ("active", "called in this process")

    def compare(self, bound: Bound, hook: str, key: str, found: Any, wanted: Any, where: str) -> None:
        """Record that ``found`` is ``wanted``, by identity or equality.

        Raises:
            KunhookError: SGLang holds something else; the text names hook, seam and both values.
        """
        if found is not wanted and found != wanted:
            raise KunhookError(
                f"{bound.source(hook, key)} did not take: {where} holds {found!r}, not {wanted!r}. "
                f"Another plugin or patch changed it, or this SGLang version is not supported."
            )
        self.took(hook, key, f"read back from {where}")

    def state_of(self, hook: str, key: str, why: str) -> tuple[str, str]:
        """State and reason for a row the plan calls active."""
        found = self._found.get((hook, key))
        if found is None:
            return "inactive", "not used in this process"
        state, detail = found
        return state, f"{why}; {detail}" if state == "active" else detail

    def count(self) -> int:
        """Number of active connections."""
        return sum(state == "active" for state, _ in self._found.values())
