"""Fresh interpreters for contract tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.server import clean_env

SECONDS = 300


def run(
    code: str,
    scratch: Path,
    *,
    env: Mapping[str, str] | None = None,
    path: Sequence[Path] = (),
    arguments: Sequence[str] = (),
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that knows nothing of this one.

    Args:
        code: what it runs; ``sys.argv[1:]`` are ``arguments``.
        scratch: an existing folder; the interpreter's cwd is its subfolder ``cwd``.
        env: variables added to the clean environment.
        path: folders for ``PYTHONPATH``.
        arguments: command line of the code.
        options: options of the interpreter itself.
    """
    (scratch / "cwd").mkdir(exist_ok=True)
    extra = dict(env or {})
    if path:
        extra["PYTHONPATH"] = ":".join(map(str, path))
    return subprocess.run(
        [sys.executable, *options, "-c", code, *arguments],
        env=clean_env(scratch, extra),
        cwd=scratch / "cwd",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
