"""Servers, and what transformers says, shared by the serving tests.

At most one server runs at a time. Tests are ordered so that each server starts once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

# Read when torch is loaded. Threads that spin while they wait would take the cores from the servers under test.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest

from kunhook.demo import model
from tests.support.distributions import bare_platform
from tests.support.parity import Mismatch, NearTie, compare_all
from tests.support.prompts import prompts
from tests.support.reference import Continuation, Reference
from tests.support.server import LAUNCH, SERVE, Server

TOKENS = 64
TIMEOUT = 1800
FLAGS = ("--dtype", "bfloat16", "--random-seed", "1", "--sleep-on-idle")
SOFTWARE_KUNLUN = {"SGLANG_PLATFORM": "kunlun", "KUNLUN_DEVICE": "sim"}

_SERVERS = ("server", "tp3_server", "bare_server")
"""Fixtures of shared servers, in the order in which they run."""

_near_ties: list[NearTie] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(TIMEOUT))
    sorted_ours = iter(sorted(ours, key=_server_of))
    items[:] = [next(sorted_ours) if here in item.path.parents else item for item in items]


def _server_of(item: pytest.Item) -> int:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return max((number for number, name in enumerate(_SERVERS, start=1) if name in names), default=0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _near_ties:
        terminalreporter.section("near ties: another token than transformers, whose logits were this close")
        for tie in _near_ties:
            terminalreporter.write_line(str(tie))


class Slot:
    """The one server that may run."""

    def __init__(self) -> None:
        self._name = ""
        self._server: Server | None = None

    def take(self, name: str, make: Callable[[], Server]) -> Server:
        """The server of this name, started when it does not run; any other is stopped first."""
        if self._server is None or self._name != name or not self._server.members():
            self.empty()
            self._name, self._server = name, make().__enter__()
        return self._server

    def empty(self) -> None:
        """Stop the running server."""
        if self._server is not None:
            server, self._server = self._server, None
            server.stop()


@pytest.fixture(scope="session")
def slot() -> Iterator[Slot]:
    result = Slot()
    yield result
    result.empty()


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, slot: Slot) -> None:
    """A test that starts processes of its own has the machine to itself."""
    if not any(name in request.fixturenames for name in _SERVERS):
        slot.empty()


@pytest.fixture(scope="session")
def model_dir() -> Path:
    return model.prepare(progress=False)


@pytest.fixture(scope="session")
def prompt_ids(model_dir: Path) -> dict[str, list[int]]:
    from transformers import AutoTokenizer

    return prompts(AutoTokenizer.from_pretrained(model_dir))


@pytest.fixture(scope="session")
def reference(model_dir: Path, prompt_ids: Mapping[str, Sequence[int]], slot: Slot) -> dict[str, Continuation]:
    """Greedy continuations of all prompts by transformers, in the dtype of the servers."""
    import torch

    slot.empty()
    torch.manual_seed(1)
    transformers = Reference(model_dir, torch.bfloat16)
    return {name: transformers.greedy(ids, TOKENS) for name, ids in prompt_ids.items()}


@pytest.fixture(scope="session")
def start_kunlun(model_dir: Path, slot: Slot) -> Callable[[], Server]:
    argv = [*LAUNCH, "--model-path", str(model_dir), *FLAGS]
    return lambda: slot.take("kunlun", lambda: Server(argv, env=SOFTWARE_KUNLUN))


@pytest.fixture
def server(start_kunlun: Callable[[], Server]) -> Server:
    """The software Kunlun, one rank, default profile."""
    return start_kunlun()


@pytest.fixture
def tp3_server(model_dir: Path, slot: Slot) -> Server:
    """Three ranks, started with ``sglang serve``; the platform is found, not selected."""
    argv = [*SERVE, "--model-path", str(model_dir), "--tp-size", "3", *FLAGS]
    return slot.take("tp3", lambda: Server(argv, env={"KUNLUN_DEVICE": "sim"}))


@pytest.fixture(scope="session")
def start_bare(model_dir: Path, slot: Slot, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Server]:
    folder = bare_platform(tmp_path_factory.mktemp("bare"))
    argv = [*LAUNCH, "--model-path", str(model_dir), *FLAGS, "--max-total-tokens", "65536"]
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    env = {"PYTHONPATH": str(folder), "SGLANG_PLATFORM": "bare", "SGLANG_CPU_OMP_THREADS_BIND": cores}
    return lambda: slot.take("bare", lambda: Server(argv, env=env))


@pytest.fixture
def bare_server(start_bare: Callable[[], Server]) -> Server:
    """SGLang without us: another platform, our distribution installed but inactive."""
    return start_bare()


class Check(Protocol):
    def __call__(self, label: str, generated: Mapping[str, Sequence[int]], asked: int = TOKENS) -> list[NearTie]: ...


@pytest.fixture
def matches_reference(reference: dict[str, Continuation]) -> Check:
    """Fails unless tokens are those of transformers, near ties excepted; the summary shows every one."""

    def check(label: str, generated: Mapping[str, Sequence[int]], asked: int = TOKENS) -> list[NearTie]:
        found = list(compare_all(label, reference, generated, asked))
        ties = [each for each in found if isinstance(each, NearTie)]
        _near_ties.extend(ties)
        wrong = [str(each) for each in found if isinstance(each, Mismatch)]
        assert not wrong, "\n".join(wrong)
        # Every path leaves the reference at near ties sooner or later, but not on most prompts.
        assert len(generated) < 8 or len(ties) < len(generated) * 0.75, "\n".join(map(str, ties))
        return ties

    return check
