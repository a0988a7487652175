"""Real servers for tests: start one, talk to it, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

LAUNCH = (sys.executable, "-m", "sglang.launch_server")
SERVE = (str(Path(sys.executable).with_name("sglang")), "serve")
KUNHOOK = str(Path(sys.executable).with_name("kunhook"))

OURS = re.compile(r"^(KUNHOOK|KUNLUN|SGLANG|ACME|XPU)_")
"""Variables that would change what a process under test does."""

START_SECONDS = 300.0
STOP_SECONDS = 20.0
REQUEST_SECONDS = 600.0
_WIDTH = 500
"""Lines of a log are cut here in messages: SGLang prints its hundreds of arguments on one line."""


def clean_env(scratch: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without anything of ours, with the folders of ``scratch`` and ``extra`` added.

    ``scratch`` also takes the place of the user's configuration, so that no ``kunhook.toml`` leaks in.
    """
    kept = {name: value for name, value in os.environ.items() if not OURS.match(name) and name != "PYTHONPATH"}
    return kept | {
        "KUNHOOK_RUNTIME_DIR": str(scratch / "run"),
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        **(extra or {}),
    }


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Job:
    """A process in a group of its own, with a log file and a scratch folder that also is its cwd.

    Args:
        argv: the whole command.
        env: variables added to the clean environment.

    Attributes:
        scratch: short temporary folder, removed at the end.
        log: file with stdout and stderr.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        self.argv = list(argv)
        self.scratch = Path(tempfile.mkdtemp(prefix="kh-", dir="/tmp"))
        self.log = self.scratch / "log"
        self.env = clean_env(self.scratch, env)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            with self.log.open("wb") as output:
                self._process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.env,
                    cwd=self.scratch,
                    start_new_session=True,
                )
            self._ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _ready(self) -> None:
        """Return when the job can be used."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def output(self) -> str:
        """Everything written so far."""
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        """Exit status of the job.

        Raises:
            RuntimeError: it still runs after ``seconds``.
        """
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._failure(f"still runs after {seconds:.0f} s") from None

    def members(self) -> list[psutil.Process]:
        """Processes of the group that are alive."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def live(self) -> list[dict[str, Any]]:
        """Processes of this job with the hooks they have read back, as ``kunhook list --live --json`` shows them."""
        command = [KUNHOOK, "list", "--live", "--json"]
        done = subprocess.run(command, env=self.env, cwd=self.scratch, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise self._failure(f"has no consistent processes: {done.stderr}")
        processes: list[dict[str, Any]] = json.loads(done.stdout)["processes"]
        return processes

    def stop(self) -> None:
        """End the whole group: ask its leader first, then kill. Nothing of it may be left."""
        try:
            if self._process is not None:
                self._end()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _end(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait(STOP_SECONDS)
        limit = time.monotonic() + STOP_SECONDS
        while left := self.members():
            if time.monotonic() > limit:
                raise RuntimeError(f"{self.argv[:4]} left processes behind: {left}")
            time.sleep(0.05)

    def _failure(self, why: str) -> RuntimeError:
        tail = "\n".join(line[:_WIDTH] for line in self.output().splitlines()[-60:])
        return RuntimeError(f"{' '.join(self.argv)} {why}. Last lines of its log:\n{tail}")


class Server(Job):
    """An SGLang server on a free loopback port, ready when entered.

    Args:
        argv: the command without host and port, which are added at its end.
        env: variables added to the clean environment.
        seconds: time it may take until ``/health`` answers 200.
    """

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, seconds: float = START_SECONDS
    ) -> None:
        self.port = free_port()
        super().__init__([*argv, "--host", "127.0.0.1", "--port", str(self.port)], env=env)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=REQUEST_SECONDS, trust_env=False)
        self._seconds = seconds

    def _ready(self) -> None:
        assert self._process is not None
        limit = time.monotonic() + self._seconds
        while True:
            if (status := self._process.poll()) is not None:
                raise self._failure(f"ended with status {status} before it was ready")
            with contextlib.suppress(httpx.TransportError):
                if self.http.get("/health", timeout=10.0).status_code == httpx.codes.OK:
                    return
            if time.monotonic() > limit:
                raise self._failure(f"was not ready after {self._seconds:.0f} s")
            time.sleep(0.2)

    def stop(self) -> None:
        self.http.close()
        super().stop()

    # -- requests

    def post(self, path: str, **body: Any) -> httpx.Response:
        """POST a JSON body; the response is not checked."""
        return self.http.post(path, json=body)

    def generate(
        self, prompt: str | Sequence[int] | Sequence[Sequence[int]], tokens: int, *, top: int = 0, **sampling: Any
    ) -> dict[str, Any]:
        """SGLang's own endpoint with a text, token ids or a batch of token ids; greedy unless told otherwise.

        With ``top``, the answer's ``meta_info`` has the log-probabilities of that many best tokens of every step.
        """
        body: dict[str, Any] = {"text" if isinstance(prompt, str) else "input_ids": prompt}
        if top:
            body |= {"return_logprob": True, "top_logprobs_num": top}
        response = self.post(
            "/generate", **body, sampling_params={"temperature": 0, "max_new_tokens": tokens, **sampling}
        )
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def tokens(self, ids: Sequence[int], tokens: int) -> list[int]:
        """Greedy continuation of one prompt as token ids."""
        return list(self.generate(ids, tokens)["output_ids"])

    def batch_tokens(self, prompts: Iterable[Sequence[int]], tokens: int) -> list[list[int]]:
        """Greedy continuations of several prompts that run together."""
        answers: Any = self.generate([list(ids) for ids in prompts], tokens)
        return [list(answer["output_ids"]) for answer in answers]

    def chat(self, messages: Sequence[Mapping[str, str]], tokens: int = 64, **more: Any) -> dict[str, Any]:
        """The OpenAI endpoint, greedy."""
        body = {"model": "default", "messages": list(messages), "temperature": 0, "max_tokens": tokens, **more}
        response = self.post("/v1/chat/completions", **body)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def flush(self) -> None:
        """Forget the prefix cache. SGLang refuses while a request is being finished, so ask again."""
        limit = time.monotonic() + STOP_SECONDS
        while self.post("/flush_cache").status_code != httpx.codes.OK:
            if time.monotonic() > limit:
                raise self._failure("did not flush its cache")
            time.sleep(0.05)

    def info(self) -> dict[str, Any]:
        """Effective server arguments and state, as the server reports them."""
        response = self.http.get("/server_info")
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer
