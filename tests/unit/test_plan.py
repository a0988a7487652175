"""The plan as a whole: what it does with plugins, devices and failures."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import msgspec
import pytest

from hookspecs import HOOKS, CommInitSizing, EnvDefault, PluginInfo
from kunhook.discovery import Candidate
from kunhook.plan import ANY_HOOK, compose
from tests.support.workbench import Workbench, detection, row_of, rows_of

GOOD = "from hookspecs import hookimpl\n@hookimpl\ndef get_comm_backend(): return 'gloo'\n"


# -- plugins that cannot be loaded


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import acme_missing", "ModuleNotFoundError: No module named 'acme_missing'"),
        ("raise ImportError('acme.so: undefined symbol: _Z4rope')", "ImportError: acme.so: undefined symbol: _Z4rope"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def f(:", "SyntaxError: invalid syntax (workbench_broken.py, line 1)"),
        (
            "from hookspecs import hookimpl\n@hookimpl(tryfirst=True)\ndef f(): ...",
            "TypeError: hookimpl() got an unexp",
        ),
    ],
)
def test_a_plugin_that_fails_at_import(bench: Workbench, text: str, error: str) -> None:
    broken = bench.source("broken", text)
    plan = bench.compose(bench.source("alpha", GOOD), broken, bench.plugin("zeta", get_group_device="cpu"))
    row = row_of(plan, ANY_HOOK, "broken")
    assert row.state == "failed"
    assert row.why.startswith(error)
    assert (row.distribution, row.version) == ("broken-dist", "1.0")
    assert (plan.value("get_comm_backend"), plan.value("get_group_device")) == ("gloo", "cpu")
    (problem,) = plan.problems
    assert problem.startswith(f"plugin 'broken' (broken-dist 1.0) failed: {error}")
    assert 'plugins.disable = ["broken"]' in problem


def test_the_remedy_of_a_broken_plugin_works(bench: Workbench) -> None:
    broken = bench.source("broken", "raise RuntimeError")
    (problem,) = bench.compose(broken).problems
    remedy = problem.partition("--set '")[2].partition("'")[0]
    plan = bench.compose(broken, sets=[remedy])
    assert (plan.problems, row_of(plan, ANY_HOOK, "broken").state) == ((), "blocked")


@pytest.mark.parametrize("how", ["plugins.disable=['blocked']", "plugins.enable=['acme-device']", "plugins.enable=[]"])
def test_a_blocked_plugin_is_never_imported(bench: Workbench, how: str) -> None:
    blocked = bench.source("blocked", GOOD)
    plan = bench.compose(blocked, sets=[how])
    row = row_of(plan, ANY_HOOK, "blocked")
    assert row.state == "blocked"
    assert row.why.endswith("at --set")
    assert blocked.value not in sys.modules
    assert bench.compose(blocked).value("get_comm_backend") == "gloo"
    assert blocked.value in sys.modules


def test_everything_off(bench: Workbench) -> None:
    plan = bench.compose(bench.source("broken", "raise RuntimeError"), sets=["plugins.enable=[]"])
    assert {row.state for row in plan.rows} == {"blocked"}
    assert (plan.problems, plan.device, plan.answers, plan.calls) == ((), None, {}, {})


def test_a_missing_attribute(bench: Workbench) -> None:
    candidate = bench.plugin("a")
    wrong = Candidate(name="a", distribution="d", version="1", value=f"{candidate.value}:plugin")
    assert (
        "AttributeError: module 'workbench_a' has no attribute 'plugin'"
        in row_of(bench.compose(wrong), ANY_HOOK, "a").why
    )


def test_two_names_for_one_module(bench: Workbench) -> None:
    one = bench.plugin("one", get_comm_backend="gloo")
    two = Candidate(name="two", distribution="d", version="1", value=one.value)
    plan = bench.compose(one, two)
    assert row_of(plan, ANY_HOOK, "two").state == "failed"
    assert plan.value("get_comm_backend") == "gloo"


def test_a_refused_implementation_fails_the_plugin(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend=lambda nonsense: "gloo", get_group_device="cpu"))
    row = row_of(plan, ANY_HOOK, "a")
    assert row.state == "failed"
    assert f"{__file__}:" in row.why
    assert rows_of(plan, "get_group_device") == []


# -- what a plugin needs


def test_sglang_out_of_range(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", info=PluginInfo(sglang="<0.5"), get_comm_backend="gloo"))
    assert row_of(plan, ANY_HOOK, "a").why == "sglang 0.5.23 is installed, wanted sglang<0.5"
    assert row_of(plan, ANY_HOOK, "a").state == "failed"
    assert plan.value("get_comm_backend") is None


def test_without_sglang_a_plan_is_still_listed(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kunhook.versions.installed", lambda name: None)
    plan = bench.compose(bench.plugin("a", info=PluginInfo(sglang=">=0.5"), get_comm_backend="gloo"))
    assert (plan.value("get_comm_backend"), plan.sglang, plan.problems) == ("gloo", None, ())


@pytest.mark.parametrize(("opted_in", "state"), [(False, "inactive"), (True, "failed")])
def test_a_missing_requirement(bench: Workbench, opted_in: bool, state: str) -> None:
    plugin = bench.plugin("a", info=PluginInfo(requires=("acme-runtime>=3",)), get_comm_backend="gloo")
    plan = bench.compose(plugin, sets=["plugins.enable=['a', 'acme-device']"] if opted_in else [])
    row = row_of(plan, ANY_HOOK, "a")
    assert (row.state, row.why) == (state, "acme-runtime 2.0 is installed, wanted acme-runtime>=3")
    assert bool(plan.problems) is opted_in
    assert plan.value("get_comm_backend") is None


@pytest.mark.parametrize("info", [PluginInfo(sglang="newest"), PluginInfo(requires=("a b",))])
def test_a_range_that_is_none(bench: Workbench, info: PluginInfo) -> None:
    row = row_of(bench.compose(bench.plugin("a", info=info)), ANY_HOOK, "a")
    assert row.state == "failed"
    assert "is not a " in row.why


def test_a_plugin_without_hooks(bench: Workbench) -> None:
    row = row_of(bench.compose(bench.plugin("a")), ANY_HOOK, "a")
    assert (row.state, row.why) == ("inactive", "implements no hook")


def test_a_plugin_that_answers_none(bench: Workbench) -> None:
    row = row_of(bench.compose(bench.plugin("a", get_comm_backend=None)), "get_comm_backend", "a")
    assert (row.state, row.why) == ("inactive", f"answered None: {HOOKS['get_comm_backend'].marks.none}")


@pytest.mark.parametrize("error", [ValueError("no table"), SystemExit("no table")])
def test_a_hook_that_raises(bench: Workbench, error: BaseException) -> None:
    def get_comm_init_sizing(group: str) -> CommInitSizing | None:
        if group == "tp":
            raise error
        return CommInitSizing(queue_chunks=1) if group == "pp" else None

    plan = bench.compose(bench.plugin("a", get_comm_init_sizing=get_comm_init_sizing))
    assert {row.key: row.state for row in rows_of(plan, "get_comm_init_sizing")} == {"tp": "failed", "pp": "active"}
    assert plan.problems == (
        f"plugin 'a' (a-dist 1.0), hook get_comm_init_sizing[tp]: {type(error).__name__}: no table",
    )


# -- devices


def test_no_device(bench: Workbench) -> None:
    plan = bench.compose(
        bench.device(present=False, get_device_runtime=None),
        bench.plugin("a", get_comm_backend="gloo", init_backend=lambda: None),
        alone=True,
    )
    assert {row.state for row in plan.rows} == {"inactive"}
    assert {row.why for row in plan.rows} == {"no acme found"}
    assert {row.plugin for row in plan.rows} == {"acme-device", "a"}
    assert (plan.device, plan.absent_reason, plan.problems) == (None, "no acme found", ())
    assert (plan.answers, plan.calls) == ({}, {})


def test_nobody_looks_for_a_device(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend="gloo"), alone=True)
    assert row_of(plan, "get_comm_backend", "a").why == "no enabled plugin detects a device"
    assert plan.absent_reason == "no plugin detects a device"


def two_devices(bench: Workbench, **options: bool) -> list[Candidate]:
    return [
        bench.device("a-device", device="alpha", present=options.get("alpha", True)),
        bench.device("b-device", device="beta", present=options.get("beta", True)),
        bench.plugin("a-comm", info=PluginInfo(device="alpha"), get_comm_backend="a"),
        bench.plugin("b-comm", info=PluginInfo(device="beta"), get_comm_backend="b"),
    ]


@pytest.mark.parametrize(
    ("present", "wanted", "device", "backend"),
    [
        ({}, None, "alpha", "a"),
        ({"alpha": False}, None, "beta", "b"),
        ({}, "beta", "beta", "b"),
        ({"beta": False}, "beta", None, None),
        ({}, "gamma", None, None),
    ],
)
def test_two_devices(
    bench: Workbench, present: dict[str, bool], wanted: str | None, device: str | None, backend: str | None
) -> None:
    plan = bench.compose(*two_devices(bench, **present), alone=True, device=wanted)
    assert (plan.device and plan.device.device, plan.value("get_comm_backend")) == (device, backend)
    assert plan.problems == ()
    assert {row.plugin for row in plan.rows} == {"a-device", "b-device", "a-comm", "b-comm"}


def test_why_the_other_device_is_not_used(bench: Workbench) -> None:
    plan = bench.compose(*two_devices(bench), alone=True)
    assert row_of(plan, "detect_device", "b-device").why == "device 'alpha' is used"
    assert row_of(plan, "get_comm_backend", "b-comm").why == "drives device 'beta', the device in use is 'alpha'"
    wanted = bench.compose(*two_devices(bench), alone=True, device="beta")
    assert row_of(wanted, "detect_device", "a-device").why == (
        "detects device 'alpha', the device looked for is 'beta'"
    )


def test_order_decides_between_two_present_devices(bench: Workbench) -> None:
    plan = bench.compose(
        bench.device("a-device", device="alpha"),
        bench.device("b-device", device="beta", marks={"before": "a-device"}),
        alone=True,
    )
    assert plan.device is not None
    assert plan.device.device == "beta"


@pytest.mark.parametrize("present", [False, True])
def test_a_broken_device_stops_startup(bench: Workbench, present: bool) -> None:
    broken = detection(present=present, broken=True, reason="libacme.so does not load")
    plan = bench.compose(bench.device(detect_device=broken), alone=True)
    assert "device 'acme' is broken: libacme.so does not load" in plan.problems
    assert row_of(plan, "detect_device", "acme-device").state == "failed"


@pytest.mark.parametrize("error", [OSError("libacme.so: not found"), SystemExit("libacme.so: not found")])
def test_a_detection_that_raises(bench: Workbench, error: BaseException) -> None:
    def detect_device() -> None:
        raise error

    plan = bench.compose(bench.device("a-device", detect_device=detect_device), bench.device("b-device"), alone=True)
    row = row_of(plan, "detect_device", "a-device")
    assert (row.state, row.why) == ("failed", f"{type(error).__name__}: libacme.so: not found")
    assert plan.device is not None
    assert any("plugin 'a-device' (a-device-dist 1.0), hook detect_device: " in problem for problem in plan.problems)


def test_a_detection_that_answers_none_has_a_row(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", detect_device=None), alone=True)
    row = row_of(plan, "detect_device", "a")
    assert (row.state, row.why) == ("inactive", f"answered None: {HOOKS['detect_device'].marks.none}")


@pytest.mark.parametrize("full", [False, True])
def test_detection_knows_whether_it_may_load_the_runtime(bench: Workbench, full: bool) -> None:
    plugin = bench.device(detect_device=lambda full: detection(variant="full" if full else "quick"))
    plan = compose(bench.profile([plugin.name]), full=full, found=(plugin,))
    assert plan.device is not None
    assert plan.device.variant == ("full" if full else "quick")


def test_a_device_nobody_drives(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", detect_device=detection()), alone=True)
    (problem,) = plan.problems
    assert problem.startswith("no plugin answers get_device_runtime for device 'acme'")


def test_a_device_that_is_assumed(bench: Workbench) -> None:
    plugin = bench.device(detect_device=detection(present=False))
    plan = compose(bench.profile([plugin.name]), assume=True, found=(plugin,))
    assert plan.device is not None
    assert (plan.device.present, plan.device.reason) == (True, "assumed to be present; no acme found")
    assert plan.value("get_device_runtime") is not None


# -- the profile


def test_conditions_that_do_not_hold(bench: Workbench) -> None:
    plan = bench.compose(sets=["when.env.CLUSTER=a", "when.device=other"])
    assert [problem.partition(",")[0] for problem in plan.problems] == [
        "--set: the profile applies when env.CLUSTER is 'a'",
        "--set: the profile applies when device is 'other'",
    ]


def test_a_plugin_file(bench: Workbench) -> None:
    Path("mine.py").write_text(GOOD)
    plan = bench.compose(sets=["plugins.files=['mine.py']"])
    row = row_of(plan, "get_comm_backend", "mine.py")
    assert (row.state, row.distribution, plan.value("get_comm_backend")) == ("active", "(file)", "gloo")
    Path("mine.py").write_text(f"{GOOD}\n# edited\n")
    edited = bench.compose(sets=["plugins.files=['mine.py']"])
    assert edited.digest != plan.digest


def test_a_plugin_file_with_the_name_of_a_plugin(bench: Workbench) -> None:
    Path("mine.py").write_text(GOOD)
    plan = bench.compose(bench.plugin("mine.py"), sets=["plugins.files=['mine.py']"])
    assert "has the name of the plugin 'mine.py' (mine.py-dist). Rename the file." in "".join(plan.problems)


# -- order and freezing


def many(bench: Workbench) -> list[Candidate]:
    env = {"X": EnvDefault(value="1", reason="r")}
    return [
        bench.device(),
        *(bench.plugin(f"p{i}", init_backend=lambda: None, marks={"before": f"p{i - 3}"}) for i in range(8)),
        bench.plugin("q", get_comm_backend="gloo", get_process_env=env),
        bench.plugin("r", get_comm_backend="nccl", get_kv_pool_cls="m:C", marks={"replaces": "q"}),
        bench.plugin("s", get_process_env=env),
        bench.source("t", "raise RuntimeError"),
        bench.source("u", "raise RuntimeError"),
    ]


def test_the_order_of_candidates_changes_nothing(bench: Workbench) -> None:
    plugins = many(bench)
    profile = bench.profile(plugin.name for plugin in plugins)
    first = compose(profile, found=tuple(plugins))
    assert len(first.problems) == 3
    shuffle = random.Random(0).shuffle
    for _ in range(100):
        shuffle(plugins)
        plan = compose(profile, found=tuple(plugins))
        assert plan.digest == first.digest
        assert plan.rows == first.rows
        assert plan.problems == first.problems
        assert [call.plugin for call in plan.calls["init_backend"]] == ["p5", "p2", "p6", "p3", "p0", "p7", "p4", "p1"]


def test_a_circle_of_constraints_is_a_problem(bench: Workbench) -> None:
    plan = bench.compose(
        *(bench.plugin(a, init_backend=lambda: None, marks={"before": b}) for a, b in (("a", "b"), ("b", "a")))
    )
    assert plan.problems == (
        "hook 'init_backend': before/after go round in a circle: a -> b -> a. Drop one constraint.",
    )


def test_a_plan_cannot_be_changed(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend="gloo", init_backend=lambda: None))
    with pytest.raises(AttributeError):
        plan.digest = ""
    for table in (plan.answers, plan.answers["get_comm_backend"], plan.calls):
        with pytest.raises(TypeError):
            table["x"] = None


def test_every_row_names_its_seam(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend="gloo", get_host_allocator="m:f"), bench.plugin("b"))
    assert row_of(plan, "get_comm_backend", "a").seam == "platform: SRTPlatform.get_torch_distributed_backend_str"
    assert row_of(plan, "get_host_allocator", "a").seam.startswith("none: ")
    assert row_of(plan, ANY_HOOK, "b").seam == ""


def test_a_hook_without_a_seam_in_this_version(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kunhook.versions.installed", {"sglang": "0.5.19"}.get)
    plan = bench.compose(bench.plugin("a", get_cache_locs_fn="m:f"))
    assert row_of(plan, "get_cache_locs_fn", "a").seam == "none in SGLang 0.5.19"


@pytest.mark.parametrize("hook", ["get_comm_backend", "absent"])
def test_no_answer_reads_as_none(bench: Workbench, hook: str) -> None:
    plan = bench.compose()
    assert (plan.value(hook), plan.named(hook)) == (None, {})


def test_a_name_that_two_distributions_announce(bench: Workbench) -> None:
    """Neither is loaded, the listing survives, and a start is refused with both named."""
    one = bench.plugin("kernels", get_comm_backend="gloo")
    other = bench.source("kernels", "raise AssertionError('was imported')")
    plan = compose(
        bench.profile(["kernels", "acme-device"]),
        found=(bench.device(), msgspec.structs.replace(one, distribution="first"), other),
    )
    assert [row.state for row in plan.rows if row.plugin == "kernels"] == ["failed", "failed"]
    assert any(row.plugin == "acme-device" and row.state == "active" for row in plan.rows)
    (problem,) = plan.problems
    assert "first 1.0" in problem
    assert "kernels-dist 1.0" in problem
