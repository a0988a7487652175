"""What may not start ends the process, with one message that says what to do."""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path
from subprocess import CompletedProcess

import psutil
import pytest

from tests.support.distributions import distribution
from tests.support.interpreter import run

IMPORT = "import sglang"
LOAD = "import sglang; from sglang.srt.plugins import load_plugins; load_plugins(); print('loaded')"
SIM = {"SGLANG_PLATFORM": "kunlun", "KUNLUN_DEVICE": "sim"}

RIVAL_ANSWER = """
from hookspecs import PluginInfo, hookimpl

plugin_info = PluginInfo(device="kunlun")


@hookimpl
def get_comm_backend():
    return "mpi"
"""
RIVAL_PLATFORM = """
def activate():
    return "rival_platform:RivalPlatform"


def __getattr__(name):
    if name != "RivalPlatform":
        raise AttributeError(name)
    from sglang.srt.platforms.device_mixin import PlatformEnum
    from sglang.srt.platforms.interface import SRTPlatform

    return type(name, (SRTPlatform,), {"_enum": PlatformEnum.OOT, "device_name": "kunlun", "device_type": "cpu"})
"""


def plugin(folder: Path, name: str, source: str | None) -> Path:
    """A distribution ``<name>-dist`` 1.0 with one plugin; without a source its module does not exist."""
    module = name.replace("-", "_")
    return distribution(
        folder,
        f"{name}-dist",
        entry_points={"kunhook.plugins": {name: module}},
        modules={} if source is None else {module: source},
    )


def refused(done: CompletedProcess[str], *texts: str) -> str:
    """The message of a refused start. It comes once, last, without a traceback of ours around it."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.count("kunhook: ") == 1, done.stderr
    message = done.stderr[done.stderr.index("kunhook: ") :]
    for text in texts:
        assert text in message
    assert "Traceback" not in done.stderr
    return message


def fine(done: CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_answers_to_one_hook_until_the_profile_chooses(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "dist", "rival", RIVAL_ANSWER)
    message = refused(
        run(IMPORT, tmp_path, env=SIM, path=[folder]),
        "plugins 'kunlun-xccl' and 'rival' both answer get_comm_backend",
    )
    # The remedy is a line that works as printed.
    line = re.search(r"line: (hooks\.get_comm_backend\.use = \S+)", message)
    assert line is not None
    (tmp_path / "kunhook.toml").write_text(f"[profile.default]\n{line[1]}\n")
    chosen = SIM | {"KUNHOOK_CONFIG": str(tmp_path / "kunhook.toml")}
    fine(run(IMPORT, tmp_path, env=chosen, path=[folder]))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise RuntimeError('the driver is too old')", "RuntimeError: the driver is too old"),
        ("import no_such_runtime", "ModuleNotFoundError: No module named 'no_such_runtime'"),
        (None, "ModuleNotFoundError: No module named 'broken'"),
    ],
    ids=["raises", "misses a module", "does not exist"],
)
def test_a_plugin_that_cannot_be_imported(tmp_path: Path, source: str | None, told: str) -> None:
    folder = plugin(tmp_path / "dist", "broken", source)
    refused(run(IMPORT, tmp_path, env=SIM, path=[folder]), f"plugin 'broken' (broken-dist 1.0) failed: {told}")


def test_a_broken_plugin_that_the_profile_disables_is_never_imported(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "dist", "broken", "import sys; sys.exit('imported')")
    disabled = SIM | {"KUNHOOK_SET": 'plugins.disable=["broken"]'}
    fine(run(f"{IMPORT}, sys; assert 'broken' not in sys.modules", tmp_path, env=disabled, path=[folder]))


@pytest.mark.parametrize("selected", [True, False], ids=["selected", "found"])
@pytest.mark.parametrize("winner", ["ours", "theirs"])
def test_another_distribution_with_our_platform_name(tmp_path: Path, selected: bool, winner: str) -> None:
    rival = distribution(
        tmp_path / "rival",
        "sglang-kunlun",
        version="0.9",
        entry_points={"sglang.srt.platforms": {"kunlun": "rival_platform:activate"}},
        modules={"rival_platform": RIVAL_PLATFORM},
    )
    # SGLang takes the one that is found last.
    first = tmp_path / "first"
    first.mkdir()
    info = Path(str(metadata.distribution("kunhook")._path))  # type: ignore[attr-defined]
    (first / info.name).symlink_to(info)
    path = [rival] if winner == "ours" else [first, rival]
    env = SIM if selected else {"KUNLUN_DEVICE": "sim"}
    refused(
        run(LOAD, tmp_path, env=env, path=path),
        "platform 'kunlun' is registered by",
        "sglang-kunlun 0.9 (rival_platform:activate)",
        f"kunhook {metadata.version('kunhook')} (kunlun_backend.device.platform:activate)",
        "Uninstall the one you do not want",
    )


@pytest.mark.parametrize(
    "env", [SIM | {"SGLANG_PLUGINS": "other"}, {"KUNLUN_DEVICE": "sim", "SGLANG_PLUGINS": "kunlun"}]
)
def test_a_filter_that_leaves_out_the_general_plugin(tmp_path: Path, env: dict[str, str]) -> None:
    refused(
        run(IMPORT, tmp_path, env=env),
        f"SGLANG_PLUGINS={env['SGLANG_PLUGINS']} keeps the general plugin 'kunhook' from loading",
        "Add 'kunhook' to the list, or unset the variable",
    )


def test_a_device_whose_distribution_announces_no_general_plugin(tmp_path: Path) -> None:
    folder = distribution(
        tmp_path / "dist",
        "acme",
        entry_points={"sglang.srt.platforms": {"acme": "acme:activate"}, "kunhook.plugins": {"acme": "acme"}},
        modules={"acme": ACME},
    )
    refused(
        run(IMPORT, tmp_path, env={"SGLANG_PLATFORM": "acme"}, path=[folder]),
        "with SGLANG_PLATFORM=acme SGLang skips general plugins",
        'acme = "kunhook.activation:load" in the group sglang.srt.plugins',
    )


def test_two_devices_at_once(tmp_path: Path) -> None:
    folder = distribution(
        tmp_path / "dist",
        "acme",
        entry_points={"sglang.srt.platforms": {"acme": "acme:activate"}, "kunhook.plugins": {"acme": "acme"}},
        modules={"acme": ACME},
    )
    refused(
        run(IMPORT, tmp_path, env={"KUNLUN_DEVICE": "sim"}, path=[folder]),
        "are both present",
        "SGLANG_PLATFORM=acme",
        "SGLANG_PLATFORM=kunlun",
    )


def test_a_profile_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "kunhook.toml").write_text('[profile.production]\nplugins.disable = ["kunlun-kernels"]\n')
    env = SIM | {"KUNHOOK_CONFIG": str(tmp_path / "kunhook.toml"), "KUNHOOK_PROFILE": "prodution"}
    refused(run(IMPORT, tmp_path, env=env), "KUNHOOK_PROFILE=prodution", "Did you mean production?")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"KUNLUN_DEVICE": "nonsense"}, "KUNLUN_DEVICE='nonsense' is not one of auto, sim, xpu"),
        (
            {"SGLANG_PLATFORM": "kunlun"},
            "SGLANG_PLATFORM=kunlun, but the device cannot be used: no Kunlun device found: "
            "the vendor runtime torch_xmlir is not installed",
        ),
    ],
    ids=["nonsense", "selected but absent"],
)
def test_a_device_that_cannot_be_used(tmp_path: Path, env: dict[str, str], told: str) -> None:
    refused(run(IMPORT, tmp_path, env=env), told)


def test_another_plan_than_the_launcher_s(tmp_path: Path) -> None:
    started = psutil.Process().create_time()
    env = SIM | {"KUNHOOK_LAUNCHER": f"{os.getpid()}:{started}:0123456789abcdef"}
    refused(
        run(IMPORT, tmp_path, env=env),
        f"its launcher {os.getpid()} runs plan 0123456789abcdef",
        "same environment, profile, plugins and versions",
        "unset KUNHOOK_LAUNCHER",
    )


def test_a_launcher_that_is_gone_does_not_count(tmp_path: Path) -> None:
    env = SIM | {"KUNHOOK_LAUNCHER": f"{os.getpid()}:{psutil.Process().create_time() - 3600}:0123456789abcdef"}
    fine(run(IMPORT, tmp_path, env=env))


ACME = """
from hookspecs import DeviceDetection, DeviceRuntime, PluginInfo, hookimpl
from kunhook import activator

plugin_info = PluginInfo(device="acme")
activate = activator("acme")


@hookimpl
def detect_device():
    return DeviceDetection(device="acme", present=True, reason="always")


@hookimpl
def get_device_runtime():
    driver = "kunlun_backend.runtime.sim:SimDriver"
    return DeviceRuntime(device_name="acme", device_type="cpu", dispatch_key="acme", driver=driver)
"""
