"""``examples/third-party``: refused until somebody chooses, then the choice is what runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.serving.conftest import FLAGS, SOFTWARE_KUNLUN, Check
from tests.support.interpreter import run
from tests.support.server import SERVE, Server, clean_env

pytestmark = pytest.mark.serving

ROOT = Path(__file__).parents[2]
PROMPTS, TOKENS = ("short", "chat", "python"), 24


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed by pip into a folder of its own."""
    folder = tmp_path_factory.mktemp("third-party")
    # pip builds where the sources are, so it gets a copy.
    source = folder / "source"
    shutil.copytree(ROOT / "examples" / "third-party", source)
    target = folder / "site"
    options = ["--no-deps", "--no-build-isolation", "--target", str(target)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options, str(source)]
    done = subprocess.run(command, env=clean_env(folder), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_the_example_is_refused_then_chosen_then_runs(
    installed: Path,
    model_dir: Path,
    tmp_path: Path,
    prompt_ids: Mapping[str, Sequence[int]],
    matches_reference: Check,
) -> None:
    refused = run("import sglang", tmp_path, env=SOFTWARE_KUNLUN, path=[installed])
    assert refused.returncode == 1
    assert "plugins 'acme-fast' and 'kunlun-kernels' both answer get_op_impls[silu_and_mul]" in refused.stderr
    assert 'ops.silu_and_mul.use = "acme-fast"' in refused.stderr

    # The profile of the example's README, and its flag.
    readme = (ROOT / "examples" / "third-party" / "README.md").read_text()
    (profile,) = re.findall(r"```toml\n(.*?)```", readme, flags=re.DOTALL)
    file = tmp_path / "kunhook.toml"
    file.write_text(profile)
    env = SOFTWARE_KUNLUN | {"PYTHONPATH": str(installed), "KUNHOOK_CONFIG": str(file)}
    flag = ("--attention-backend", "acme_fast")
    assert " ".join(flag) in readme
    with Server([*SERVE, "--model-path", str(model_dir), *FLAGS, *flag], env=env) as server:
        generated = {name: server.tokens(prompt_ids[name], TOKENS) for name in PROMPTS}
        scheduler = next(p for p in server.live() if p["role"].startswith("scheduler"))
        assert server.info()["attention_backend"] == "acme_fast"
    rows = {(row["hook"], row["key"]): row for row in scheduler["hooks"]}
    ours = rows["get_op_impls", "silu_and_mul@acme-fast"]
    assert ours["state"] == "active"
    assert f"chosen by 'acme-fast' at {file}:2 [profile.default]" in ours["why"]
    assert re.search(r"read back from .* of SiluAndMul", ours["why"])
    assert rows["get_op_impls", "silu_and_mul@vendor"]["state"] == "shadowed"
    assert rows["get_attn_backend_cls", "acme_fast"]["state"] == "active"
    assert rows["get_attn_backend_cls", "acme_fast"]["distribution"] == "acme-fast"
    matches_reference("with the third party's operator and attention", generated, TOKENS)
