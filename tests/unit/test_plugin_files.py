"""Plugins in a file of the deployment's own."""

from __future__ import annotations

import json
import pickle
import sys

import pytest
from click.testing import CliRunner

from kunhook import profile
from kunhook.cli import cli
from kunhook.errors import UsageError
from kunhook.plan import compose

FIX = """\
from hookspecs import EnvDefault, hookimpl


@hookimpl
def get_process_env():
    return {"LOCAL_FIX": EnvDefault(value="1", reason="east hall")}
"""


@pytest.fixture
def deployment(tmp_path, monkeypatch):
    monkeypatch.setenv("KUNLUN_DEVICE", "sim")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "local_fix.py").write_text(FIX)
    (tmp_path / "kunhook.toml").write_text('[profile.default]\nplugins.files = ["local_fix.py"]\n')
    return tmp_path


def _load(*overrides):
    return profile.load(plugins=["kunlun-device", "kunlun-kernels", "kunlun-xccl"], overrides=overrides, environ={})


def _rows(plan):
    return {(row.hook, row.key): row for row in plan.rows if row.plugin == "local_fix.py"}


def test_a_file_is_a_plugin_with_its_own_source(deployment):
    plan = compose(_load())
    row = _rows(plan)["get_process_env", "LOCAL_FIX"]
    assert (row.distribution, row.state) == ("(file)", "active")
    assert plan.problems == ()


def test_its_text_is_part_of_the_digest(deployment):
    before = compose(_load()).digest
    (deployment / "local_fix.py").write_text(FIX + "# changed\n")
    assert compose(_load()).digest != before


def test_it_can_be_disabled_by_name_and_is_then_not_run(deployment):
    (deployment / "local_fix.py").write_text("raise RuntimeError('was run')")
    plan = compose(_load('plugins.disable=["local_fix.py"]'))
    assert _rows(plan)["*", ""].state == "blocked"
    assert plan.problems == ()


def test_a_broken_file_stops_the_start_but_not_the_listing(deployment):
    (deployment / "local_fix.py").write_text("raise RuntimeError('east hall is dark')")
    plan = compose(_load())
    assert _rows(plan)["*", ""].why == "RuntimeError: east hall is dark"
    assert "local_fix.py" in plan.problems[0]


def test_a_missing_file_is_named_with_its_line(deployment):
    (deployment / "kunhook.toml").write_text('[profile.default]\nplugins.files = ["lokal_fix.py"]\n')
    with pytest.raises(UsageError, match=r"kunhook.toml:2 .*lokal_fix.py"):
        _load()


def test_files_of_one_name_from_two_folders_are_refused(deployment):
    (deployment / "other").mkdir()
    (deployment / "other" / "local_fix.py").write_text(FIX)
    with pytest.raises(UsageError, match=r"two plugin files are called local_fix\.py"):
        _load('plugins.files=["other/local_fix.py"]')


def test_device_condition(deployment):
    assert compose(_load("when.device=sim")).problems == ()
    (problem,) = compose(_load("when.device=kunlun/xpu")).problems
    assert "but the device is kunlun/sim" in problem


def _invoke(*arguments, **environment):
    return CliRunner().invoke(cli, list(arguments), env={"KUNLUN_DEVICE": "sim", **environment})


def test_plan_assumes_a_device_that_is_not_here(deployment):
    done = _invoke("plan", "--json", KUNLUN_DEVICE="auto")
    data = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert data["device"]["variant"] == "xpu"
    assert data["answers"]["get_comm_backend"][""] == {"plugin": "kunlun-xccl", "value": "nccl"}
    assert data["answers"]["get_device_runtime"][""]["value"]["device_type"] == "cuda"


def test_plan_equals_the_plan_of_a_device_that_is_here(deployment):
    assert (
        json.loads(_invoke("plan", "--json").stdout)["digest"] == json.loads(_invoke("list", "--json").stdout)["digest"]
    )


def test_config_diff_shows_both_values_with_their_lines(deployment):
    (deployment / "kunhook.toml").write_text(
        '[profile.a]\nops.rms_norm.use = "vendor"\n\n[profile.b]\nops.rms_norm.use = "reference"\nextends = "c"\n\n'
        '[profile.c]\nplugins.disable = ["kunlun-xccl"]\n'
    )
    data = json.loads(_invoke("config", "show", "--diff", "a", "b", "--json").stdout)
    differences = {entry["key"]: (entry["a"], entry["b"]) for entry in data["differences"]}
    assert differences["ops.rms_norm.use"][0] == {"value": "vendor", "source": "kunhook.toml:2 [profile.a]"}
    assert differences["ops.rms_norm.use"][1] == {"value": "reference", "source": "kunhook.toml:5 [profile.b]"}
    assert differences["plugins.disable.kunlun-xccl"][0] is None
    assert "the same" in _invoke("config", "show", "--diff", "a", "a").stdout


@pytest.mark.parametrize(
    ("overrides", "environment", "winner"),
    [
        ((), {}, "plugins"),
        ((), {"KUNHOOK_PROFILE": "p"}, "profile"),
        ((), {"KUNHOOK_PROFILE": "p", "KUNHOOK_SET": "ops.rms_norm.use=vendor"}, "KUNHOOK_SET"),
        (
            ("--set", "ops.rms_norm.use=vendor"),
            {"KUNHOOK_PROFILE": "p", "KUNHOOK_SET": "ops.rms_norm.use=vendor"},
            "--set",
        ),
    ],
)
def test_show_marks_the_winning_rung(deployment, overrides, environment, winner):
    (deployment / "kunhook.toml").write_text('[profile.p]\nops.rms_norm.use = "reference"\n')
    done = _invoke("show", "get_op_impls", "--json", *overrides, **environment)
    ladder = json.loads(done.stdout)["ladder"]
    assert [rung["layer"] for rung in ladder if rung["wins"]] == [winner]
    assert [rung["layer"] for rung in ladder] == ["--set", "KUNHOOK_SET", "profile", "replaces", "plugins", "default"]
    if environment:
        assert "kunhook.toml:2 [profile.p]" in next(rung["text"] for rung in ladder if rung["layer"] == "profile")


def test_ladder_of_a_hook_nobody_answers_ends_at_the_default(deployment):
    ladder = json.loads(_invoke("show", "get_kv_transfer", "--json").stdout)["ladder"]
    assert next(rung["layer"] for rung in ladder if rung["wins"]) == "default"


def test_a_file_may_define_dataclasses_and_its_classes_pickle(deployment):
    """Both look the module up by name."""
    text = (
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass Fix:\n    on: bool\n"
        + FIX
    )
    (deployment / "local_fix.py").write_text(text)
    plan = compose(_load())
    assert plan.problems == ()
    registered = next(r for r in plan.registrations if r.candidate.name == "local_fix.py")
    module = sys.modules[registered.implementations[0].function.__module__]
    assert pickle.loads(pickle.dumps(module.Fix(on=True))) == module.Fix(on=True)
