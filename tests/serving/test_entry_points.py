"""Every way to start SGLang runs the same plan, gives the same tokens and refuses the same requests."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from kunhook import manifest
from kunhook.processes import LAUNCHER_VARIABLE
from tests.serving.conftest import Check
from tests.support.server import Job, Server

pytestmark = pytest.mark.serving

PROMPTS, TOKENS = ("short", "python", "chat", "long question"), 32
SCRIPT = Path(__file__).parent / "scripts" / "engine.py"


def roles(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(process["role"] for process in processes)


def check_processes(processes: Sequence[Mapping[str, Any]], schedulers: int) -> None:
    """One digest everywhere, and the attention backend read back where it computes."""
    assert len({process["digest"] for process in processes}) == 1
    assert roles(processes)[:2] == ["detokenizer", "launcher"]
    ranks = [process for process in processes if process["role"].startswith("scheduler")]
    assert len(ranks) == schedulers == len(processes) - 2
    for rank in ranks:
        active = {(row["hook"], row["key"]): row["why"] for row in rank["hooks"] if row["state"] == "active"}
        assert "read back from attention_registry.ATTENTION_BACKENDS" in active["get_attn_backend_cls", "kunlun"]
        for operator, cls in (("rms_norm", "RMSNorm"), ("silu_and_mul", "SiluAndMul")):
            assert re.search(rf"read back from .* of {cls}", active["get_op_impls", f"{operator}@vendor"])
        assert ("get_op_impls", "rotary_embedding@vendor") in active
        assert ("get_comm_backend", "") in active


# -- one rank


def test_launch_server_runs_one_plan_in_every_process(server: Server) -> None:
    check_processes(server.live(), schedulers=1)
    assert server.info()["attention_backend"] == "kunlun"


def test_chat(server: Server) -> None:
    answer = server.chat([{"role": "user", "content": "What is the capital of France?"}])
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert answer["choices"][0]["finish_reason"] == "stop"


# -- an engine in a script


def test_engine_in_a_script(model_dir: Path, prompt_ids: Mapping[str, Sequence[int]], matches_reference: Check) -> None:
    engine = {"model_path": str(model_dir), "dtype": "bfloat16", "random_seed": 1, "log_level": "error"}
    request = {"engine": engine, "prompts": [prompt_ids[name] for name in PROMPTS], "tokens": TOKENS}
    with Job([sys.executable, str(SCRIPT), json.dumps(request)], env={"KUNLUN_DEVICE": "sim"}) as job:
        assert job.wait(300) == 0, job.output()
        result = json.loads(job.output().splitlines()[-1])
        # The engine has cleaned up after itself before the script ended.
        assert job.members() == []
    check_processes(result["processes"], schedulers=1)
    matches_reference("engine", dict(zip(PROMPTS, result["tokens"], strict=True)), TOKENS)


# -- three ranks


@pytest.fixture(scope="session")
def one_rank_tokens(
    start_kunlun: Callable[[], Server], prompt_ids: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    return {name: start_kunlun().tokens(prompt_ids[name], TOKENS) for name in PROMPTS}


def test_three_ranks_run_one_plan_and_give_the_tokens_of_one_rank(
    matches_reference: Check,
    one_rank_tokens: dict[str, list[int]],
    tp3_server: Server,
    prompt_ids: Mapping[str, Sequence[int]],
) -> None:
    processes = tp3_server.live()
    check_processes(processes, schedulers=3)
    assert roles(processes)[2:] == ["scheduler TP0", "scheduler TP1", "scheduler TP2"]
    generated = {name: tp3_server.tokens(prompt_ids[name], TOKENS) for name in PROMPTS}
    near = {tie.case.partition(",")[0] for tie in matches_reference("three ranks", generated, TOKENS)}
    near |= {tie.case.partition(",")[0] for tie in matches_reference("one rank", one_rank_tokens, TOKENS)}
    assert {name for name in PROMPTS if generated[name] != one_rank_tokens[name]} <= near


# -- the same as SGLang without us

LONG = [504] * 9000
"""More tokens than the context of 8192."""

HELLO = [{"role": "user", "content": "Hello"}]

REQUESTS: list[tuple[str, str, dict[str, Any], int]] = [
    ("no tokens", "/generate", {"input_ids": []}, 400),
    ("too long", "/generate", {"input_ids": LONG}, 400),
    (
        "too long with the answer",
        "/generate",
        {"input_ids": LONG[:8190], "sampling_params": {"max_new_tokens": 9}},
        400,
    ),
    ("nothing to generate", "/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 0}}, 200),
    ("less than nothing", "/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": -1}}, 400),
    ("temperature below zero", "/generate", {"text": "Hello", "sampling_params": {"temperature": -1}}, 400),
    ("chat: no messages", "/v1/chat/completions", {"messages": []}, 400),
    ("chat: empty message", "/v1/chat/completions", {"messages": [{"role": "user", "content": ""}]}, 200),
    ("chat: nothing to generate", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 0}, 200),
    ("chat: too long", "/v1/chat/completions", {"messages": [{"role": "user", "content": "so " * 9000}]}, 400),
    ("completion: nothing to generate", "/v1/completions", {"prompt": "Hello", "max_tokens": 0}, 400),
    ("completion: too long", "/v1/completions", {"prompt": "so " * 9000}, 400),
]
"""Name, path, body, and the status that SGLang 0.5.23 answers with.

An empty text prompt is not among them: where the tokenizer adds no start token, as here, it ends SGLang's scheduler
with an IndexError, with us and without.
"""


def answers(server: Server) -> dict[str, tuple[int, Any]]:
    """Status and comparable part of the answer to every request."""
    found = {}
    for name, path, body, _ in REQUESTS:
        extra = {"model": "default", "temperature": 0} if path.startswith("/v1") else {}
        if path.startswith("/v1"):
            extra.setdefault("max_tokens", 4)
        response = server.post(path, **(extra | body))
        found[name] = response.status_code, _comparable(response.json())
    return found


def _comparable(answer: Any) -> Any:
    """An error as it is; of a success, what does not depend on kernels and time."""
    if "meta_info" in answer:
        info = answer["meta_info"]
        return [answer["text"], info["finish_reason"], info["prompt_tokens"], info["completion_tokens"]]
    if "choices" in answer:
        return [answer["choices"][0]["finish_reason"], answer["usage"]]
    return answer


@pytest.fixture(scope="session")
def our_answers(start_kunlun: Callable[[], Server]) -> dict[str, tuple[int, Any]]:
    return answers(start_kunlun())


def test_a_refused_request_does_no_harm(server: Server, our_answers: dict[str, tuple[int, Any]]) -> None:
    assert {name: status for name, (status, _) in our_answers.items()} == {r[0]: r[-1] for r in REQUESTS}
    assert server.http.get("/health").status_code == 200
    assert len(server.tokens([504], 2)) == 2


@pytest.fixture(scope="session")
def bare_answers(our_answers: Any, start_bare: Callable[[], Server]) -> dict[str, tuple[int, Any]]:
    """After ours, because one server runs at a time."""
    return answers(start_bare())


@pytest.mark.usefixtures("bare_server")
@pytest.mark.parametrize(("name", "status"), [(name, status) for name, _, _, status in REQUESTS])
def test_a_request_is_answered_as_by_sglang_without_us(
    our_answers: dict[str, tuple[int, Any]], bare_answers: dict[str, tuple[int, Any]], name: str, status: int
) -> None:
    assert bare_answers[name][0] == status
    assert our_answers[name] == bare_answers[name]


def test_without_the_device_nothing_of_us_runs(bare_server: Server) -> None:
    members = bare_server.members()
    assert len(members) >= 3
    for process in members:
        environment = psutil.Process(process.pid).environ()
        assert LAUNCHER_VARIABLE not in environment
        assert "SGLANG_ROPE_CACHE_FP32" not in environment
    assert not Path(bare_server.env[manifest.DIRECTORY_VARIABLE]).exists()
    assert bare_server.live() == []
    assert "kunhook: " not in bare_server.output()
