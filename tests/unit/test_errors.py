"""Texts people read, and how a process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kunhook.errors import KunhookError, StartupError, UsageError, describe, nearest


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("kunlun-grph", ["kunlun-graph", "kunlun-xccl"], "Did you mean kunlun-graph"),
        ("zzz", ["b", "a", "a"], "Known: a, b."),
        ("zzz", [f"name-{i}" for i in range(13)], "There are 13; none is close."),
        ("zzz", [], "There are none."),
    ],
)
def test_nearest(name: str, known: list[str], text: str) -> None:
    assert nearest(name, known).startswith(text)


def test_nearest_gives_at_most_three() -> None:
    assert nearest("name-1", [f"name-{i}" for i in range(20)]).count("name-") == 3


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\n   lines"), "ValueError: two lines"),
        (SystemExit(), "SystemExit"),
        (ImportError("undefined symbol: _Z3foo"), "ImportError: undefined symbol: _Z3foo"),
    ],
)
def test_describe_has_type_and_text_on_one_line(error: BaseException, text: str) -> None:
    assert describe(error) == text


def test_exit_codes() -> None:
    assert (KunhookError.exit_code, UsageError.exit_code) == (1, 2)
    assert issubclass(UsageError, KunhookError)


def test_a_startup_error_passes_except_exception_and_prints_once() -> None:
    """SGLang catches ``Exception`` around plugin calls; this one has to get through."""
    code = (
        "from kunhook.errors import StartupError\n"
        "try:\n    raise StartupError('plugin x failed')\n"
        "except Exception:\n    pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "kunhook: plugin x failed\n")
    assert isinstance(StartupError(""), SystemExit)
