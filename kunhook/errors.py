"""Errors people see. Each text names the thing, the value, the limit and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KunhookError(Exception):
    """A check failed. Commands exit with 1."""

    exit_code = 1


class UsageError(KunhookError):
    """What the user wrote cannot be right. Commands exit with 2 and nothing is started."""

    exit_code = 2


class StartupError(SystemExit):
    """Ends a process that must not serve.

    A ``SystemExit``, because SGLang catches ``Exception`` around plugin calls and would go on.
    Python prints the text once on stderr, without a traceback, and exits with status 1.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"kunhook: {message}")


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence with the known names closest to ``name``, or all of them when few."""
    names = sorted(set(known))
    if not names:
        return "There are none."
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if matches:
        return f"Did you mean {' or '.join(matches)}?"
    if len(names) <= 12:
        return f"Known: {', '.join(names)}."
    return f"There are {len(names)}; none is close."


def describe(error: BaseException) -> str:
    """Exception type and text on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
