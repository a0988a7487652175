"""What planning and listing cost. Reported, never asserted: run with ``make bench``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hookspecs import EnvDefault
from kunhook.plan import compose
from tests.support.workbench import Workbench


def test_list_json(benchmark, tmp_path):
    """A whole process of ``kunhook list --json``; the aim is 0.3 s."""
    environment = os.environ | {"KUNLUN_DEVICE": "sim", "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from kunhook.cli import main; main()", "list", "--json"]
    benchmark(subprocess.run, command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize("plugins", [10, 100, 1000])
def test_compose(benchmark, monkeypatch, tmp_path, plugins):
    """Plugins with ten answers each; the cost grows with their number, not with its square."""
    monkeypatch.chdir(tmp_path)
    workbench = Workbench(monkeypatch, tmp_path)
    found = [
        workbench.plugin(
            f"plugin-{number}",
            get_process_env={f"V{number}_{i}": EnvDefault(value="1", reason="") for i in range(7)},
            init_backend=lambda: None,
            check_server_args=lambda server_args: None,
            collect_metrics=lambda: None,
        )
        for number in range(plugins)
    ]
    device = workbench.device()
    profile = workbench.profile([candidate.name for candidate in (device, *found)])
    plan = benchmark.pedantic(compose, args=(profile,), kwargs={"found": (device, *found)}, rounds=3)
    assert plan.problems == ()
    assert len(plan.answers["get_process_env"]) == 7 * plugins
