"""Which process is this, who started it, and does it run the same plan.

The first process that activates a plan is the launcher. It leaves its pid, start time and digest in
the environment; processes that inherit it must compose the same digest.
"""

from __future__ import annotations

import os

from kunhook.errors import KunhookError

LAUNCHER_VARIABLE = "KUNHOOK_LAUNCHER"

_TITLES = (
    ("sglang::scheduler", "scheduler"),
    ("sglang::detokenizer", "detokenizer"),
    ("sglang::data_parallel_controller", "data-parallel controller"),
    ("sglang::tokenizer_worker", "tokenizer worker"),
)


def start_time(pid: int) -> float | None:
    """When a process started, in seconds since the epoch; None when it is gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError):
        return None


def is_alive(pid: int, started: float) -> bool:
    """Whether the very process that started at ``started`` still runs; pids are reused."""
    import psutil

    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):
        return False


def role_of(pid: int, launcher: int) -> str:
    """What a process does, from the title SGLang gave it."""
    import psutil

    if pid == launcher:
        return "launcher"
    try:
        title = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return "unknown"
    for prefix, role in _TITLES:
        if title.startswith(prefix):
            suffix = title[len(prefix) :].strip(" _:").split(" ")[0]
            return f"{role} {suffix}".strip() if role == "scheduler" else role
    return "child"


def launcher() -> tuple[int, float, str] | None:
    """Pid, start time and digest of the launcher, as inherited; None in a launcher itself.

    A launcher that no longer runs left a stale variable: it counts as none.
    """
    text = os.environ.get(LAUNCHER_VARIABLE)
    if not text:
        return None
    try:
        pid_text, started_text, digest = text.split(":")
        pid, started = int(pid_text), float(started_text)
    except ValueError:
        raise KunhookError(f"{LAUNCHER_VARIABLE}={text!r} is not of this program's making. Unset it.") from None
    if pid == os.getpid() or not is_alive(pid, started):
        return None
    return pid, started, digest


def compare_with_launcher(digest: str) -> None:
    """Become the launcher, or prove to run the launcher's plan.

    Raises:
        KunhookError: the launcher runs another plan.
    """
    above = launcher()
    if above is None:
        own_start = start_time(os.getpid())
        os.environ[LAUNCHER_VARIABLE] = f"{os.getpid()}:{own_start}:{digest}"
    elif above[2] != digest:
        raise KunhookError(
            f"process {os.getpid()} composed plan {digest}, but its launcher {above[0]} runs plan {above[2]}. "
            f"They must agree: same environment, profile, plugins and versions. To start a separate "
            f"server from inside a running one, unset {LAUNCHER_VARIABLE} for it."
        )


def launcher_pid() -> int:
    """Pid of the launcher of this process; its own when it is the launcher."""
    above = launcher()
    return above[0] if above else os.getpid()
