"""``docs/writing-a-device.md`` from the first command to the last: another accelerator serves."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kunhook import manifest
from tests.support.server import Server, clean_env

pytestmark = pytest.mark.serving

ROOT = Path(__file__).parents[2]
HOOKS = {"detect_device", "get_device_runtime", "get_attn_backend_cls", "get_default_attn_backend"}


def test_the_walkthrough(model_dir: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "writing-a-device.md").read_text().replace("/tmp/acme", str(tmp_path / "acme"))
    install, plug_in, serve, ask = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    exports = next(line for line in install.splitlines() if line.startswith("export "))
    exported = dict(word.split("=", 1) for word in shlex.split(exports)[1:])
    # pip builds where the sources are, so it gets a copy.
    here = tmp_path / "repository"
    shutil.copytree(ROOT / "examples", here / "examples")
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def shell(script: str, **env: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=here,
            env=clean_env(tmp_path, path | env),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    before = shell(install)
    assert "node does not exist" in before
    assert " active" not in before
    after = shell(plug_in, **exported)
    assert {hook for hook in HOOKS if re.search(rf"{hook}.* active ", after)} == HOOKS

    words = shlex.split(serve.replace("MODEL", str(model_dir)))
    assert words[:2] == ["SGLANG_PLATFORM=acme", "python"]
    with Server([sys.executable, *words[2:]], env={"SGLANG_PLATFORM": "acme", **exported}) as server:
        runtime = server.env[manifest.DIRECTORY_VARIABLE]
        told = shell(ask.replace("30000", str(server.port)), **exported, KUNHOOK_RUNTIME_DIR=runtime)
        as_json = shell("kunhook list --live --json", **exported, KUNHOOK_RUNTIME_DIR=runtime)
        assert server.info()["attention_backend"] == "acme"

    assert "Paris" in told
    assert re.search(r"scheduler .*get_attn_backend_cls\[acme\] .* active ", told)
    processes = json.loads(as_json)["processes"]
    assert [process["role"].split()[0] for process in processes] == ["launcher", "detokenizer", "scheduler"]
    assert len({process["digest"] for process in processes}) == 1
    scheduler = processes[-1]
    active = {row["hook"]: row["why"] for row in scheduler["hooks"] if row["state"] == "active"}
    assert set(active) == HOOKS
    assert "read back from attention_registry.ATTENTION_BACKENDS" in active["get_attn_backend_cls"]
