"""The demonstration and ``kunhook serve``, as a newcomer types them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from kunhook.demo import model
from kunhook.demo.server import free_port, running

KUNHOOK = [sys.executable, "-c", "from kunhook.cli import main; main()"]


def _environment(tmp_path):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KUNHOOK_", "KUNLUN", "SGLANG"))}
    return kept | {"KUNHOOK_RUNTIME_DIR": str(tmp_path / "run")}


def _started_here(runtime_directory) -> list[str]:
    """Processes that inherited the environment of this test, whoever started them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if process.environ().get("KUNHOOK_RUNTIME_DIR") == str(runtime_directory):
                found.append(" ".join(process.info["cmdline"] or []))
    return found


@pytest.mark.serving
def test_demo_answers_shows_hooks_and_leaves_nothing(tmp_path):
    model.prepare()
    started = time.monotonic()
    done = subprocess.run(
        [*KUNHOOK, "demo", "--max-tokens", "16"],
        env=_environment(tmp_path) | {"COLUMNS": "200"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
    )
    print(f"demo took {time.monotonic() - started:.0f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Paris" in done.stdout
    assert "tokens/s" in done.stdout
    for hook in ("get_attn_backend_cls[kunlun]", "get_op_impls[rms_norm@vendor]", "get_device_runtime"):
        assert hook in done.stdout
    assert _started_here(tmp_path / "run") == []
    assert list((tmp_path / "run").glob("*.json")) == []


@pytest.mark.serving
def test_serve_hides_no_flag_and_hands_over_the_profile(tmp_path):
    (tmp_path / "kunhook.toml").write_text('[profile.plain]\nops.silu_and_mul.use = "reference"\n')
    port = free_port()
    arguments = [*KUNHOOK, "serve", "--sim", "--profile", "plain", "--set", "ops.rms_norm.use=reference", "--"]
    arguments += ["--model-path", str(model.prepare()), "--port", str(port), "--served-model-name", "my-name"]
    environment = _environment(tmp_path) | {"KUNHOOK_CONFIG": str(tmp_path / "kunhook.toml")}
    with running(arguments, environment, port, tmp_path / "server.log") as server:
        server.wait_ready(300, lambda: None)
        assert server.ask("/v1/models")["data"][0]["id"] == "my-name"
        live = subprocess.run(
            [*KUNHOOK, "list", "--live", "--json"], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
    processes = json.loads(live.stdout)["processes"]
    assert {process["role"].split()[0] for process in processes} == {"launcher", "scheduler", "detokenizer"}
    assert len({process["digest"] for process in processes}) == 1
    scheduler = next(process for process in processes if process["role"].startswith("scheduler"))
    active = {row["key"]: row["why"] for row in scheduler["hooks"] if row["state"] == "active"}
    assert "kunhook.toml:2 [profile.plain]" in active["silu_and_mul@reference"]
    assert "--set" in active["rms_norm@reference"]
    assert "rotary_embedding@vendor" in active
