"""A server of our own for a while: start, wait until it answers, ask, stop, leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kunhook.errors import KunhookError

_POLL = 0.2
_STOP_TIMEOUT = 20.0
_REQUEST_TIMEOUT = 300.0
_LOG_TAIL = 40


class Server:
    """A running server on the loopback interface."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """GET, or POST when there is a body; the answer parsed as JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT) as response:
            return json.loads(response.read() or b"null")

    def is_ready(self) -> bool:
        """Whether the server has loaded its model and answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self, timeout: float, tick: Callable[[], object]) -> None:
        """Wait until the server answers.

        Raises:
            KunhookError: it ended or did not answer in time; with its last log lines.
        """
        deadline = time.monotonic() + timeout
        while not self.is_ready():
            if (status := self.process.poll()) is not None:
                raise KunhookError(f"the server ended with status {status} before it was ready:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise KunhookError(f"the server was not ready within {timeout:.0f} s:\n{self._log_tail()}")
            tick()
            time.sleep(_POLL)

    def stop(self) -> None:
        """End every process of the server."""
        group = self.process.pid
        for number, patience in ((signal.SIGTERM, _STOP_TIMEOUT), (signal.SIGKILL, _STOP_TIMEOUT)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
            if self._gone_within(patience):
                return
        raise KunhookError(f"processes of group {group} are still there after SIGKILL.")

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.process.poll()
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(_POLL)
        return False

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL:])


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(arguments: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> Iterator[Server]:
    """Run a server in a process group of its own; whatever happens, end it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(arguments), env=dict(environment), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    server = Server(process, port, log)
    try:
        yield server
    finally:
        server.stop()
