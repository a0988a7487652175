"""Which process is this, and does it run its launcher's plan."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from kunhook import processes
from kunhook.errors import KunhookError

pytestmark = pytest.mark.usefixtures("isolated")

VARIABLE = processes.LAUNCHER_VARIABLE


def started(pid: int) -> float:
    return psutil.Process(pid).create_time()


def test_the_first_process_is_the_launcher() -> None:
    assert processes.launcher() is None
    processes.compare_with_launcher("aa")
    assert os.environ[VARIABLE] == f"{os.getpid()}:{started(os.getpid())}:aa"
    assert processes.launcher_pid() == os.getpid()
    processes.compare_with_launcher("bb")
    assert os.environ[VARIABLE].endswith(":bb"), "a launcher may compose again"


def test_a_child_with_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    above = os.getppid()
    monkeypatch.setenv(VARIABLE, f"{above}:{started(above)}:aa")
    processes.compare_with_launcher("aa")
    assert processes.launcher() == (above, started(above), "aa")
    assert processes.launcher_pid() == above
    assert os.environ[VARIABLE] == f"{above}:{started(above)}:aa"


def test_a_child_with_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    above = os.getppid()
    monkeypatch.setenv(VARIABLE, f"{above}:{started(above)}:aa")
    with pytest.raises(KunhookError) as caught:
        processes.compare_with_launcher("bb")
    assert f"process {os.getpid()} composed plan bb, but its launcher {above} runs plan aa" in str(caught.value)
    assert f"unset {VARIABLE}" in str(caught.value)


@pytest.mark.parametrize("pid", [2**22 + 1, 2**40, -1])
def test_a_launcher_that_is_gone_counts_as_none(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    monkeypatch.setenv(VARIABLE, f"{pid}:1.0:aa")
    processes.compare_with_launcher("bb")
    assert os.environ[VARIABLE].startswith(f"{os.getpid()}:")


def test_a_pid_that_was_reused_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    above = os.getppid()
    monkeypatch.setenv(VARIABLE, f"{above}:{started(above) - 100}:aa")
    assert processes.launcher() is None


@pytest.mark.parametrize("text", ["1", "1:2", "one:2:aa", "1:two:aa", "1:2:aa:bb"])
def test_a_variable_of_someone_else(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(KunhookError, match=f"{VARIABLE}='{text}' is not of this program's making. Unset it."):
        processes.launcher()


def test_a_real_child_inherits() -> None:
    """Same plan: fine. Another plan: refused. The launcher is found by its own children only."""
    code = "import sys; from kunhook import processes; processes.compare_with_launcher(sys.argv[1])"
    processes.compare_with_launcher("aa")
    results = [
        subprocess.run([sys.executable, "-c", code, digest], capture_output=True, text=True, check=False)
        for digest in ("aa", "bb")
    ]
    assert [result.returncode for result in results] == [0, 1]
    assert f"its launcher {os.getpid()} runs plan aa" in results[1].stderr


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("sglang::scheduler", "scheduler"),
        ("sglang::scheduler_TP1", "scheduler TP1"),
        ("sglang::scheduler_DP0_TP1_EP1", "scheduler DP0_TP1_EP1"),
        ("sglang::detokenizer", "detokenizer"),
        ("sglang::data_parallel_controller", "data-parallel controller"),
        ("sglang::tokenizer_worker:3", "tokenizer worker"),
        ("python -m something sglang::scheduler", "child"),
    ],
)
def test_roles_by_title(monkeypatch: pytest.MonkeyPatch, title: str, role: str) -> None:
    monkeypatch.setattr(psutil.Process, "cmdline", lambda self: title.split(" "))
    assert processes.role_of(os.getpid(), launcher=1) == role
    assert processes.role_of(os.getpid(), launcher=os.getpid()) == "launcher"


def test_the_role_of_a_process_that_is_gone() -> None:
    assert processes.role_of(2**22 + 1, launcher=1) == "unknown"


@pytest.mark.parametrize("pid", [2**22 + 1, 2**40, -1])
def test_no_such_process(pid: int) -> None:
    assert processes.start_time(pid) is None
    assert not processes.is_alive(pid, 1.0)


def test_alive_is_this_very_process() -> None:
    own = started(os.getpid())
    assert processes.start_time(os.getpid()) == own
    assert processes.is_alive(os.getpid(), own)
    assert not processes.is_alive(os.getpid(), own - 10)


def test_a_process_that_ends_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: psutil.Process) -> str:
        raise psutil.NoSuchProcess(self.pid)

    monkeypatch.setattr(psutil.Process, "status", gone)
    assert not processes.is_alive(os.getpid(), started(os.getpid()))
