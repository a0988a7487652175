"""Activation: leave SGLang alone without a device, end the process when anything is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from hookspecs import EnvDefault, Metric
from kunhook import activation, bound, discovery, processes
from kunhook.discovery import Announcement, Candidate
from kunhook.errors import KunhookError, StartupError
from kunhook.seams import arguments, connect
from tests.support.workbench import DEVICE, Workbench, detection

Install = Callable[..., None]


@pytest.fixture
def install(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes plugins the installed ones."""

    def install(*plugins: Candidate) -> None:
        monkeypatch.setattr(discovery, "candidates", lambda: plugins)
        monkeypatch.setattr("kunhook.plan.candidates", lambda: plugins)
        monkeypatch.setattr(discovery, "announcements", lambda: ())

    return install


def activate() -> str | None:
    return activation.activator(DEVICE)()


def test_an_absent_device_leaves_sglang_alone(bench: Workbench, install: Install) -> None:
    before = dict(os.environ)
    install(bench.device(present=False), bench.source("broken", "raise RuntimeError"))
    assert activate() is None
    assert bound.current() is None
    assert dict(os.environ) == before


def test_everything_off_leaves_sglang_alone(
    bench: Workbench, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUNHOOK_SET", "plugins.enable=[]")
    install(bench.source("broken", "raise RuntimeError"))
    assert activate() is None


def test_an_absent_device_that_was_asked_for(
    bench: Workbench, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(bench.device(present=False))
    monkeypatch.setenv("SGLANG_PLATFORM", DEVICE)
    with pytest.raises(StartupError, match="SGLANG_PLATFORM=acme, but the device cannot be used: no acme found"):
        activate()


def raises() -> Any:
    raise OSError("libacme.so: cannot open shared object file")


@pytest.mark.parametrize(
    ("plugins", "reason"),
    [
        (lambda b: [b.source("acme-device", "import acme_missing")], "plugin 'acme-device' .* No module named"),
        (lambda b: [b.device(detect_device=raises)], "hook detect_device: OSError: libacme.so"),
        (lambda b: [b.device(detect_device="yes")], "hook detect_device: .* answered 'yes'"),
        (
            lambda b: [b.device(detect_device=detection(present=False, broken=True, reason="no driver"))],
            "device 'acme' is broken: no driver",
        ),
        (lambda b: [b.device(), b.source("broken", "raise RuntimeError('x')")], "plugin 'broken' .* RuntimeError: x"),
        (lambda b: [b.device(get_device_runtime=None)], "no plugin answers get_device_runtime"),
        (
            lambda b: [b.device(get_process_env={"A": EnvDefault(value=1, reason="number")})],
            r"answered get_process_env\[A\] with value = 1: Expected `str`, got `int`",
        ),
    ],
)
def test_anything_wrong_ends_the_process(
    bench: Workbench, install: Install, plugins: Callable[[Workbench], list[Candidate]], reason: str
) -> None:
    """Never a silent default device."""
    install(*plugins(bench))
    with pytest.raises(StartupError, match=reason):
        activate()
    assert bound.current() is None


def test_all_problems_are_listed_together(bench: Workbench, install: Install) -> None:
    install(bench.device(), bench.source("one", "raise RuntimeError"), bench.source("two", "raise RuntimeError"))
    with pytest.raises(StartupError, match=r"(?s)2 problems:\n  1. plugin 'one'.*\n  2. plugin 'two'"):
        activate()


def test_an_error_of_our_own_ends_the_process_too(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang swallows every ``Exception`` here and would serve on another device."""
    install()
    monkeypatch.setenv(activation.OVERRIDES_VARIABLE, "not json")
    with pytest.raises(StartupError, match="JSONDecodeError"):
        activate()


def test_wrong_usage_ends_the_process(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setenv("KUNHOOK_SET", "plugin.enable=[]")
    with pytest.raises(StartupError, match="KUNHOOK_SET: unknown key"):
        activate()


def test_overrides_are_inherited_and_weaker_than_given_ones(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setenv(activation.OVERRIDES_VARIABLE, json.dumps(["ops.rms_norm.use=a", "ops.silu_and_mul.use=b"]))
    profile = activation.current_profile(overrides=("ops.rms_norm.use=c",))
    assert {key: setting.value for key, setting in profile.settings.items()} == {
        "ops.rms_norm.use": "c",
        "ops.silu_and_mul.use": "b",
    }


# -- what else is installed or set


@pytest.fixture
def rival(isolated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    points = tuple(
        Announcement(group="sglang.srt.platforms", name=DEVICE, value="m:f", distribution=d, version="1", location="")
        for d in ("kunhook", "sglang-acme")
    )
    monkeypatch.setattr(discovery, "announcements", lambda: points)


@pytest.mark.usefixtures("rival")
def test_a_rival_platform(bench: Workbench) -> None:
    (problem,) = activation.startup_problems(bench.compose(), DEVICE)
    assert "platform 'acme' is registered by kunhook 1 (m:f) and sglang-acme 1 (m:f)" in problem
    assert activation.startup_problems(bench.compose(), "other") == []


@pytest.mark.parametrize(
    ("listed", "refused"), [("", False), ("kunhook", False), ("acme, kunhook", False), ("acme", True), ("kun", True)]
)
def test_the_filter_of_sglang(bench: Workbench, monkeypatch: pytest.MonkeyPatch, listed: str, refused: bool) -> None:
    monkeypatch.setattr(discovery, "announcements", lambda: ())
    monkeypatch.setenv("SGLANG_PLUGINS", listed)
    problems = activation.startup_problems(bench.compose(), DEVICE)
    assert bool(problems) is refused
    assert refused is any(f"SGLANG_PLUGINS={listed} keeps the general plugin 'kunhook'" in p for p in problems)


# -- one plan a process


def test_one_plan_a_process(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend="gloo"))
    first = bound.bind(plan)
    assert bound.bind(plan) is first is bound.current()
    other = bench.compose(bench.plugin("a", get_comm_backend="nccl"))
    with pytest.raises(KunhookError, match=f"already runs plan {plan.digest}; plan {other.digest} cannot be added"):
        bound.bind(other)


def test_references_are_resolved_once(bench: Workbench) -> None:
    candidate = bench.plugin("a", get_graph_runner_cls="workbench_target:Runner", get_host_allocator="nowhere:f")
    bench.module("target", Runner=object())
    process = bound.bind(bench.compose(candidate))
    assert process.object("get_graph_runner_cls") is process.object("get_graph_runner_cls")
    assert process.object("get_communicator_cls") is None
    with pytest.raises(KunhookError, match=r"plugin 'a', hook get_host_allocator: 'nowhere:f' cannot be loaded: Mod"):
        process.object("get_host_allocator")


def test_vendor_operators_without_a_plan(bench: Workbench) -> None:
    with pytest.raises(KunhookError, match="no plan is active in this process"):
        bound.vendor_ops()
    bound.bind(bench.compose())
    with pytest.raises(KunhookError, match="no plugin answers get_vendor_ops"):
        bound.vendor_ops()


# -- hooks that are called later


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No finding of an earlier test counts."""
    monkeypatch.setattr(connect, "_readbacks", connect.Readbacks())
    monkeypatch.setattr(connect, "_without_metrics", set())


def test_launch_environment(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def env(**values: str) -> dict[str, EnvDefault]:
        return {name: EnvDefault(value=value, reason="r") for name, value in values.items()}

    plugins = [
        bench.plugin("a", get_launch_env=env(KUNLUN_A="a", KUNLUN_SAME="1", KUNLUN_SET="a")),
        bench.plugin("b", get_launch_env=env(KUNLUN_B="b", KUNLUN_SAME="1", KUNLUN_SET="b")),
    ]
    process = bound.bind(bench.compose(*plugins))
    with pytest.raises(
        KunhookError, match=r"plugins 'a' and 'b' set KUNLUN_SET to 'a' and 'b'. Set KUNLUN_SET yourself"
    ):
        arguments._set_launch_env(process, None)
    monkeypatch.setenv("KUNLUN_SET", "mine")
    arguments._set_launch_env(process, None)
    assert [os.environ[f"KUNLUN_{name}"] for name in ("A", "B", "SAME", "SET")] == ["a", "b", "1", "mine"]


@pytest.mark.usefixtures("fresh")
def test_metrics_of_a_failing_plugin_are_left_out_and_logged_once(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    good = [Metric(name="x", value=1.0)]
    process = bound.bind(
        bench.compose(
            bench.plugin("a", collect_metrics=good),
            bench.plugin("b", collect_metrics=[*good, "y"]),
            bench.plugin("c", collect_metrics=raises),
        )
    )
    assert connect._metrics(process) == connect._metrics(process) == {"a.x": 1.0}
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "plugin=b" in caplog.text
    assert "OSError: libacme.so" in caplog.text


@pytest.mark.usefixtures("fresh")
def test_a_worker_hook_runs_in_order_with_its_arguments(bench: Workbench) -> None:
    seen = []

    def first(model: object) -> None:
        seen.append(("b", model))

    def second(model: object) -> None:
        seen.append(("a", model))

    plan = bench.compose(
        bench.plugin("a", post_load_model=second),
        bench.plugin("b", post_load_model=first, marks={"before": "a"}),
    )
    connect._call("post_load_model", bound.bind(plan), model="weights")
    assert seen == [("b", "weights"), ("a", "weights")]


def test_the_launcher_is_compared_before_anything_is_bound(
    bench: Workbench, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = os.getppid()
    monkeypatch.setenv(processes.LAUNCHER_VARIABLE, f"{above}:{processes.start_time(above)}:0000000000000000")
    install(bench.device())
    with pytest.raises(StartupError, match=f"its launcher {above} runs plan 0000000000000000"):
        activate()
    assert bound.current() is None
