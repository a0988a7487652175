"""The command line: output, exit status, and what it must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from hookspecs import HOOKS
from kunhook.cli import cli

KUNHOOK = [sys.executable, "-c", "from kunhook.cli import main; main()"]

BROKEN = "raise RuntimeError('no such symbol: acme_rope')\n"


@pytest.fixture
def environment(tmp_path):
    """An environment in which nothing of the developer's own configuration is seen."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KUNHOOK", "KUNLUN", "SGLANG"))}
    return kept | {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "KUNHOOK_RUNTIME_DIR": str(tmp_path / "run"),
        "COLUMNS": "200",
    }


@pytest.fixture
def run(environment, tmp_path):
    def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KUNHOOK, *arguments], env=environment | extra, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def broken_plugin(tmp_path):
    """A distribution whose plugin cannot be imported; its folder goes onto PYTHONPATH."""
    site = tmp_path / "site"
    info = site / "acme_broken-3.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 3.2\n")
    (info / "entry_points.txt").write_text("[kunhook.plugins]\nacme-broken = acme_broken\n")
    (site / "acme_broken.py").write_text(BROKEN)
    return {"PYTHONPATH": str(site)}


def test_list_json_has_the_fixed_keys(run):
    done = run("list", "--json", KUNLUN_DEVICE="sim")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    assert {"digest", "profile", "hooks"} <= set(data)
    assert {"hook", "key", "plugin", "distribution", "version", "state", "why", "seam"} == set(data["hooks"][0])
    states = {(row["hook"], row["state"]) for row in data["hooks"]}
    assert ("get_attn_backend_cls", "active") in states
    assert done.stderr == ""


def test_list_table_has_a_row_per_hook_and_plugin(run):
    done = run("list", KUNLUN_DEVICE="sim")
    for word in ("HOOK", "PLUGIN", "VERSION", "STATE", "WHY", "get_device_runtime", "kunlun-device", "active"):
        assert word in done.stdout


def test_list_says_inactive_and_why_without_a_device(run):
    data = json.loads(run("list", "--json").stdout)
    rows = {row["hook"]: row for row in data["hooks"]}
    assert rows["get_device_runtime"]["state"] == "inactive"
    assert "torch_xmlir is not installed" in rows["get_device_runtime"]["why"]


def test_list_filters(run):
    done = run("list", "--json", "--plugin", "kunlun-xccl", "--state", "active", KUNLUN_DEVICE="sim")
    rows = json.loads(done.stdout)["hooks"]
    assert rows
    assert {row["plugin"] for row in rows} == {"kunlun-xccl"}


@pytest.mark.parametrize(
    ("arguments", "wrong", "near"),
    [
        (("list", "--hook", "get_kv_pool"), "get_kv_pool", "get_kv_pool_cls"),
        (("list", "--plugin", "kunlun-devise"), "kunlun-devise", "kunlun-device"),
        (("list", "--state", "activ"), "activ", "active"),
        (("show", "get_comm_bakend"), "get_comm_bakend", "get_comm_backend"),
        (("doctor", "version"), "version", "versions"),
        (("list", "--set", "ops.rms_norn.use=reference"), "rms_norn", "rms_norm"),
        (("list", "--set", "plugins.disable=['kunlun-kernel']"), "kunlun-kernel", "kunlun-kernels"),
    ],
)
def test_unknown_names_exit_2_with_the_nearest(run, arguments, wrong, near):
    done = run(*arguments, KUNLUN_DEVICE="sim")
    assert done.returncode == 2
    assert done.stdout == ""
    assert repr(wrong) in done.stderr
    assert near in done.stderr


def test_wrong_usage_exits_2(run):
    assert run("list", "--frobnicate").returncode == 2
    assert run("frobnicate").returncode == 2
    assert run("show").returncode == 2


def test_list_imports_nothing_heavy(environment, tmp_path):
    """How long it takes is measured in tests/benchmarks; what makes it slow is refused here."""
    script = (
        "import sys; from kunhook.cli import main\n"
        "try: main(['list', '--json'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'sglang', 'triton', 'rich', 'structlog', 'numpy', 'psutil'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"KUNLUN_DEVICE": "sim"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", ["list", "doctor", "env", "plugins"])
def test_commands_survive_a_broken_plugin(run, broken_plugin, command):
    done = (
        run(command, "--json", KUNLUN_DEVICE="sim", **broken_plugin)
        if command != "plugins"
        else run("plugins", "list", "--json", KUNLUN_DEVICE="sim", **broken_plugin)
    )
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert "RuntimeError: no such symbol: acme_rope" in text
    assert done.returncode == (0 if command == "env" else 1)


def test_a_broken_plugin_is_failed_and_the_others_active(run, broken_plugin):
    done = run("list", "--json", KUNLUN_DEVICE="sim", **broken_plugin)
    rows = json.loads(done.stdout)["hooks"]
    failed = [row for row in rows if row["state"] == "failed"]
    assert [(row["plugin"], row["distribution"], row["version"]) for row in failed] == [
        ("acme-broken", "acme-broken", "3.2")
    ]
    assert any(row["plugin"] == "kunlun-device" and row["state"] == "active" for row in rows)


def test_a_broken_plugin_that_is_disabled_is_not_imported(run, broken_plugin):
    done = run("list", "--json", "--set", "plugins.disable=['acme-broken']", KUNLUN_DEVICE="sim", **broken_plugin)
    assert done.returncode == 0
    row = next(row for row in json.loads(done.stdout)["hooks"] if row["plugin"] == "acme-broken")
    assert row["state"] == "blocked"
    assert "--set" in row["why"]


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_show_prints_contract_seam_and_answers(hook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["show", hook, "--json"], env={"KUNLUN_DEVICE": "sim"})
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["hook"] == hook
    assert data["none"]
    assert data["seams"], "every hook has a catalogued seam"


def test_show_for_people(run):
    text = run("show", "get_default_attn_backend", KUNLUN_DEVICE="sim").stdout
    assert "Mode:    one" in text
    assert "Seam:    platform: SRTPlatform.get_default_attention_backend" in text
    assert "answer: 'kunlun'" in text


def test_plugins_without_a_subcommand_lists(run):
    done = run("plugins", KUNLUN_DEVICE="sim")
    assert done.returncode == 0, done.stderr
    assert "kunlun-kernels" in done.stdout


def test_config_show_names_every_source(run, tmp_path):
    (tmp_path / "kunhook.toml").write_text(
        '[profile.base]\nplugins.disable = ["kunlun-xccl"]\n\n[profile.prod]\nextends = "base"\n'
        'ops.rms_norm.use = "reference"\n'
    )
    done = run(
        "config",
        "show",
        "--json",
        "--set",
        "ops.silu_and_mul.use=reference",
        KUNHOOK_PROFILE="prod",
        KUNLUN_DEVICE="sim",
    )
    settings = {s["key"]: s["source"] for s in json.loads(done.stdout)["settings"]}
    assert settings["plugins.disable.kunlun-xccl"] == "kunhook.toml:2 [profile.base]"
    assert settings["ops.rms_norm.use"] == "kunhook.toml:6 [profile.prod]"
    assert settings["ops.silu_and_mul.use"] == "--set"
    assert settings["plugins.enable"] == "built-in default"


def test_doctor_checks_can_be_run_by_name(run):
    done = run("doctor", "filters", "--json", KUNLUN_DEVICE="sim")
    checks = json.loads(done.stdout)["checks"]
    assert {check["name"] for check in checks} == {"filters"}
    assert done.returncode == 0


def test_doctor_names_a_filter_that_locks_us_out(run):
    done = run("doctor", "filters", KUNLUN_DEVICE="sim", SGLANG_PLUGINS="kunhok")
    assert done.returncode == 1
    assert "Did you mean kunhook" in done.stdout


def test_doctor_names_both_distributions_of_one_platform(run, tmp_path):
    site = tmp_path / "rival"
    info = site / "sglang_kunlun-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang-kunlun\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.platforms]\nkunlun = sglang_kunlun.platform:activate\n")
    done = run("doctor", "duplicates", KUNLUN_DEVICE="sim", PYTHONPATH=str(site))
    assert done.returncode == 1
    assert "sglang-kunlun 0.1.0" in done.stdout
    assert "kunhook 0.1.0" in done.stdout
    assert "Uninstall" in done.stdout


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("raise ImportError('libacme.so: undefined symbol: moe_fc_fusion')", "undefined symbol moe_fc_fusion"),
        (
            "raise OSError('libcuda.so.1: cannot open shared object file: No such file')",
            "library libcuda.so.1 is missing",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal 11"),
        ("", "torch_xmlir loads"),
    ],
)
def test_doctor_libraries_names_what_does_not_resolve(run, tmp_path, body, wanted):
    site = tmp_path / "vendor"
    site.mkdir()
    (site / "torch_xmlir.py").write_text(body + "\n")
    done = run("doctor", "libraries", KUNLUN_DEVICE="sim", PYTHONPATH=str(site))
    assert wanted in done.stdout
    assert done.returncode == (0 if "loads" in wanted else 1)


def test_env_has_the_plugin_section(run):
    text = run("env", KUNLUN_DEVICE="sim").stdout
    for section in ("[system]", "[distributions]", "[device]", "[environment]", "[plan]", "[plugins]", "[hooks]"):
        assert section in text
    assert "KUNLUN_DEVICE: sim" in text


def test_serve_refuses_before_it_starts_anything(run, broken_plugin):
    absent = run("serve", "--", "--model-path", "nowhere")
    assert absent.returncode == 1
    assert "torch_xmlir is not installed" in absent.stderr
    broken = run("serve", "--sim", "--", "--model-path", "nowhere", **broken_plugin)
    assert broken.returncode == 1
    assert 'plugins.disable = ["acme-broken"]' in broken.stderr
    typo = run("serve", "--sim", "--profile", "prod", "--", "--model-path", "nowhere")
    assert typo.returncode == 2
    assert "there is no configuration file" in typo.stderr


def test_serve_needs_sglang_in_range(run, tmp_path):
    site = tmp_path / "old"
    info = site / "sglang-0.5.11.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.11\n")
    done = run("serve", "--sim", "--", "--model-path", "nowhere", PYTHONPATH=str(site))
    assert done.returncode == 1
    assert "sglang 0.5.11 is installed, wanted sglang>=0.5.17,<0.6" in done.stderr
    listed = run("list", KUNLUN_DEVICE="sim", PYTHONPATH=str(site))
    assert "kunlun-device" in listed.stdout


def test_live_without_any_server(run):
    done = run("list", "--live", KUNLUN_DEVICE="sim")
    assert done.returncode == 0
    assert "no running process" in done.stdout
