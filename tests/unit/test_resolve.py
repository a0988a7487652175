"""Who wins: the profile, then ``replaces``, then the only one; anything else is a conflict."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs import AttnBackend, CapturePolicy, CommInitSizing, EnvDefault, OpImpl, VendorOps
from kunhook.plan import Plan
from tests.support.workbench import Workbench, row_of, rows_of

HOOK = "get_comm_backend"


def env(value: str) -> EnvDefault:
    return EnvDefault(value=value, reason="test")


def op(provider: str = "vendor", name: str = "rms_norm", vendor_ops: tuple[str, ...] = ()) -> OpImpl:
    return OpImpl(op=name, make=f"workbench:{provider}", provider=provider, vendor_ops=vendor_ops)


def states(plan: Plan, hook: str = HOOK) -> dict[str, str]:
    return {f"{row.plugin}{':' if row.key else ''}{row.key}": str(row.state) for row in rows_of(plan, hook)}


# -- one answer


def test_the_only_implementation(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend="gloo"))
    assert plan.value(HOOK) == "gloo"
    assert row_of(plan, HOOK, "a").why == "only implementation"
    assert plan.problems == ()


def test_a_conflict_names_both_and_a_line_that_settles_it(bench: Workbench) -> None:
    plugins = [bench.plugin("a", get_comm_backend="gloo"), bench.plugin("b", get_comm_backend="nccl")]
    plan = bench.compose(*plugins)
    assert plan.value(HOOK) is None
    assert {row.why for row in rows_of(plan, HOOK)} == {"conflict with a", "conflict with b"}
    (problem,) = plan.problems
    assert "conflict: plugins 'a' and 'b' both answer get_comm_backend." in problem

    line = problem.rpartition("with the line: ")[2]
    settled = bench.compose(*plugins, config=f"[profile.default]\n{line}\n")
    assert settled.problems == ()
    assert settled.value(HOOK) == "gloo"
    assert row_of(settled, HOOK, "a").why == "chosen by 'a' at kunhook.toml:2 [profile.default]"
    assert row_of(settled, HOOK, "b").state == "shadowed"
    assert row_of(settled, HOOK, "b").why == "a is chosen by 'a' at kunhook.toml:2 [profile.default]"


def test_replaces(bench: Workbench) -> None:
    plan = bench.compose(
        bench.plugin("a", get_comm_backend="gloo"), bench.plugin("b", get_comm_backend="nccl", marks={"replaces": "a"})
    )
    assert (plan.value(HOOK), plan.problems) == ("nccl", ())
    assert row_of(plan, HOOK, "a").why == "b declares replaces='a'"
    assert row_of(plan, HOOK, "b").why == "replaces a"


def test_the_profile_is_stronger_than_replaces(bench: Workbench) -> None:
    plan = bench.compose(
        bench.plugin("a", get_comm_backend="gloo"),
        bench.plugin("b", get_comm_backend="nccl", marks={"replaces": "a"}),
        sets=["hooks.get_comm_backend.use=a"],
    )
    assert (plan.value(HOOK), plan.problems) == ("gloo", ())


@pytest.mark.parametrize(
    ("replaces", "winner", "conflict"),
    [
        ({"a": "b", "b": "a"}, None, "'a' and 'b'"),
        ({"a": "b", "b": "c", "c": "a"}, None, "'a' and 'b' and 'c'"),
        # Two that replace each other do not leave the field to a third.
        ({"a": "b", "b": "a", "c": ()}, None, "'a' and 'b' and 'c'"),
        ({"a": "b", "b": "a", "c": ("a", "b")}, "c", None),
        ({"a": (), "b": "a", "c": "b"}, "c", None),
        ({"a": "a"}, "a", None),
        ({"a": "absent"}, "a", None),
    ],
)
def test_chains_and_circles_of_replaces(
    bench: Workbench, replaces: dict[str, Any], winner: str | None, conflict: str | None
) -> None:
    plan = bench.compose(
        *(bench.plugin(name, get_comm_backend=name, marks={"replaces": given}) for name, given in replaces.items())
    )
    assert plan.value(HOOK) == winner
    assert len(rows_of(plan, HOOK)) == len(replaces)
    assert bool(plan.problems) == bool(conflict)
    assert (conflict or "") in "".join(plan.problems)


@pytest.mark.parametrize("sets", [["hooks.get_comm_backend.use=b"], ["hooks.get_comm_backend.use=acme-device"]])
def test_a_choice_that_does_not_answer(bench: Workbench, sets: list[str]) -> None:
    plan = bench.compose(bench.plugin("a", get_comm_backend="gloo"), bench.plugin("b"), sets=sets)
    chosen = sets[0].partition("=")[2]
    (problem,) = plan.problems
    assert f"--set: get_comm_backend is to be answered by {chosen!r}, which does not answer it. Known: a." in problem
    assert plan.value(HOOK) is None
    assert states(plan)["a"] == "failed"


def test_a_choice_where_nobody_answers(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a"), sets=["hooks.get_comm_backend.use=a"])
    assert plan.problems == ("--set: hooks.get_comm_backend.use = 'a', but no active plugin answers get_comm_backend.",)


# -- switched off, or only one of many


@pytest.mark.parametrize("params", [[], ["hooks.get_capture_policy.params.mode=full"]])
@pytest.mark.parametrize("answered", [True, False])
def test_a_hook_that_is_switched_off(bench: Workbench, answered: bool, params: list[str]) -> None:
    plugins = [bench.plugin("a", get_capture_policy=CapturePolicy(mode="off"))] if answered else []
    plan = bench.compose(*plugins, sets=["hooks.get_capture_policy.use=none", *params])
    assert (plan.named("get_capture_policy"), plan.problems) == ({}, ())
    assert [(row.state, row.why) for row in rows_of(plan, "get_capture_policy")] == (
        [("shadowed", "switched off by 'none' at --set")] if answered else []
    )


def test_one_key_that_is_switched_off(bench: Workbench) -> None:
    plan = bench.compose(
        bench.plugin("a", get_op_impls=[op(), op(name="silu_and_mul")], get_kv_pool_cls="m:C"),
        sets=["ops.rms_norm.use=none", "hooks.get_kv_pool_cls.keys.mla.use=none"],
    )
    assert (list(plan.named("get_op_impls")), plan.problems) == (["silu_and_mul"], ())
    assert list(plan.named("get_kv_pool_cls")) == ["dsa", "mha"]


def later(plan: Plan) -> list[str]:
    return [call.plugin for call in plan.calls.get("init_backend", ())]


@pytest.mark.parametrize(("use", "called"), [("b", ["b"]), ("none", [])])
def test_a_choice_for_a_hook_that_calls_everybody(bench: Workbench, use: str, called: list[str]) -> None:
    plugins = [bench.plugin(name, init_backend=lambda: None) for name in ("a", "b")]
    assert later(bench.compose(*plugins)) == ["a", "b"]
    plan = bench.compose(*plugins, sets=[f"hooks.init_backend.use={use}"])
    assert (later(plan), plan.problems) == (called, ())
    assert row_of(plan, "init_backend", "a").state == "shadowed"
    assert row_of(plan, "init_backend", "a").why == f"{use!r} is chosen at --set"


def test_a_choice_for_a_hook_that_calls_everybody_and_that_one_is_not_there(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", init_backend=lambda: None), sets=["hooks.init_backend.use=acme-device"])
    (problem,) = plan.problems
    assert problem.startswith("--set: hooks.init_backend.use = 'acme-device', which does not answer the hook. Known: a")
    assert later(plan) == []


def test_a_choice_of_who_detects(bench: Workbench) -> None:
    devices = [bench.device("a-device", device="alpha"), bench.device("b-device", device="beta")]
    plan = bench.compose(*devices, alone=True, sets=["hooks.detect_device.use=b-device"])
    assert (plan.device and plan.device.device, plan.problems) == ("beta", ())
    assert row_of(plan, "detect_device", "a-device").state == "shadowed"


# -- one answer per key


def test_a_choice_per_key(bench: Workbench) -> None:
    plan = bench.compose(
        *(bench.plugin(name, get_kv_pool_cls=f"pools:{name}") for name in ("a", "b")),
        config='[profile.default]\nhooks.get_kv_pool_cls.use = "a"\nhooks.get_kv_pool_cls.keys.mla.use = "b"\n',
    )
    assert plan.named("get_kv_pool_cls") == {"dsa": "pools:a", "mha": "pools:a", "mla": "pools:b"}
    assert plan.problems == ()
    assert {row.key: row.why for row in rows_of(plan, "get_kv_pool_cls", "b") if row.state == "active"} == {
        "mla": "chosen by 'b' at kunhook.toml:3 [profile.default]"
    }


def test_only_the_key_both_answer_conflicts(bench: Workbench) -> None:
    def get_kv_pool_cls(kind: str) -> str | None:
        return None if kind == "dsa" else "pools:b"

    plan = bench.compose(
        bench.plugin("a", get_kv_pool_cls=lambda kind: "pools:a" if kind != "mla" else None),
        bench.plugin("b", get_kv_pool_cls=get_kv_pool_cls),
    )
    assert plan.named("get_kv_pool_cls") == {"dsa": "pools:a", "mla": "pools:b"}
    (problem,) = plan.problems
    assert "both answer get_kv_pool_cls[mha]" in problem
    assert 'hooks.get_kv_pool_cls.keys.mha.use = "a"' in problem


# -- merged answers


def test_dictionaries_are_united(bench: Workbench) -> None:
    plan = bench.compose(
        bench.plugin("a", get_process_env={"A": env("1")}), bench.plugin("b", get_process_env={"B": env("2")})
    )
    assert {name: default.value for name, default in plan.named("get_process_env").items()} == {"A": "1", "B": "2"}
    assert states(plan, "get_process_env") == {"a:A": "active", "b:B": "active"}


def test_the_same_name_twice_is_a_conflict_on_that_name(bench: Workbench) -> None:
    plugins = [
        bench.plugin("a", get_process_env={"A": env("1"), "SAME": env("1")}),
        bench.plugin("b", get_process_env={"SAME": env("2")}),
    ]
    plan = bench.compose(*plugins)
    assert list(plan.named("get_process_env")) == ["A"]
    (problem,) = plan.problems
    assert "both answer get_process_env[SAME]" in problem
    line = problem.rpartition("with the line: ")[2]
    settled = bench.compose(*plugins, config=f"[profile.default]\n{line}\n")
    assert (settled.problems, settled.value("get_process_env", "SAME")) == ((), env("1"))


def test_a_choice_for_a_name_nobody_offers(bench: Workbench) -> None:
    plan = bench.compose(
        bench.plugin("a", get_attn_backend_cls={"acme": AttnBackend(cls="m:C")}),
        sets=["hooks.get_attn_backend_cls.keys.acne.use=a"],
    )
    assert plan.problems == (
        "--set: hooks.get_attn_backend_cls.keys.acne.use = 'a', "
        "but no active plugin answers get_attn_backend_cls[acne].",
    )


def test_an_empty_dictionary_is_no_answer(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_process_env={}))
    assert states(plan, "get_process_env") == {"a": "inactive"}


# -- operators


def test_a_reference_is_used_only_when_asked(bench: Workbench) -> None:
    plugin = bench.plugin("a", get_op_impls=[op("vendor"), op("reference")])
    plan = bench.compose(plugin)
    assert plan.value("get_op_impls", "rms_norm").provider == "vendor"
    assert states(plan, "get_op_impls") == {"a:rms_norm@reference": "shadowed", "a:rms_norm@vendor": "active"}
    asked = bench.compose(plugin, sets=["ops.rms_norm.use=reference"])
    assert asked.value("get_op_impls", "rms_norm").provider == "reference"
    assert states(asked, "get_op_impls") == {"a:rms_norm@reference": "active", "a:rms_norm@vendor": "shadowed"}


def test_a_reference_alone_is_not_used(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_op_impls=[op("reference")]))
    assert (plan.named("get_op_impls"), plan.problems) == ({}, ())
    (row,) = rows_of(plan, "get_op_impls")
    assert row.why == "a reference is used only when a profile says ops.rms_norm.use = 'reference'"


def test_the_first_of_several_is_the_proposal(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_op_impls=[op("reference"), op("fast"), op("slow")]))
    assert plan.value("get_op_impls", "rms_norm").provider == "fast"
    assert states(plan, "get_op_impls")["a:rms_norm@slow"] == "shadowed"


@pytest.mark.parametrize(
    ("use", "plugin", "provider"),
    [("vendor", "a", "vendor"), ("triton", "b", "triton"), ("b", "b", "triton"), ("a", "a", "vendor")],
)
def test_operators_by_provider_and_by_plugin(bench: Workbench, use: str, plugin: str, provider: str) -> None:
    plan = bench.compose(
        bench.plugin("a", get_op_impls=[op("reference"), op("vendor")]),
        bench.plugin("b", get_op_impls=[op("triton")]),
        sets=[f"ops.rms_norm.use={use}"],
    )
    answer = plan.answers["get_op_impls"]["rms_norm"]
    assert (answer.plugin, answer.value.provider, plan.problems) == (plugin, provider, ())


def test_a_conflict_on_an_operator(bench: Workbench) -> None:
    plugins = [bench.plugin(name, get_op_impls=[op()]) for name in ("a", "b")]
    plan = bench.compose(*plugins)
    (problem,) = plan.problems
    assert "plugins 'a' and 'b' both answer get_op_impls[rms_norm]" in problem
    line = problem.rpartition("with the line: ")[2]
    assert line == 'ops.rms_norm.use = "a"'
    settled = bench.compose(*plugins, config=f"[profile.default]\n{line}\n")
    assert (settled.problems, settled.answers["get_op_impls"]["rms_norm"].plugin) == ((), "a")


@pytest.mark.parametrize("name", ["ops.silu_and_mul.use", "hooks.get_op_impls.keys.silu_and_mul.use"])
def test_a_choice_for_an_operator_nobody_offers(bench: Workbench, name: str) -> None:
    plan = bench.compose(bench.plugin("a", get_op_impls=[op()]), sets=[f"{name}=a"])
    assert plan.problems == (f"--set: {name} = 'a', but no active plugin answers get_op_impls[silu_and_mul].",)


def test_an_unknown_provider_names_the_known_ones(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_op_impls=[op("vendor")]), sets=["ops.rms_norm.use=vender"])
    assert "which does not answer it. Did you mean vendor?" in "".join(plan.problems)


def test_an_unknown_operator(bench: Workbench) -> None:
    plan = bench.compose(bench.plugin("a", get_op_impls=[op(name="rmsnorm")]), bench.plugin("b", get_comm_backend="x"))
    (problem,) = plan.problems
    assert "plugin 'a' implements unknown operator 'rmsnorm'. Did you mean rms_norm?" in problem
    assert states(plan, "get_op_impls") == {"a": "failed"}
    assert plan.value(HOOK) == "x"


@pytest.mark.parametrize(
    ("library", "where"),
    [
        (None, "no plugin answers get_vendor_ops"),
        (VendorOps(library="acme_ops", bind="m:bind", operators=("norm",)), "acme_ops"),
    ],
)
def test_a_missing_vendor_operator_is_named(bench: Workbench, library: VendorOps | None, where: str) -> None:
    plugin = bench.plugin("a", get_op_impls=[op(vendor_ops=("norm", "swiglu"))], get_vendor_ops=library)
    (problem,) = bench.compose(plugin).problems
    missing = "swiglu" if library else "norm, swiglu"
    assert f"operator 'rms_norm' of plugin 'a' needs vendor operator {missing}, which is missing ({where})" in problem
    assert 'ops.rms_norm.use = "reference"' in problem


def test_no_vendor_operator_is_missing(bench: Workbench) -> None:
    library = VendorOps(library="acme_ops", bind="m:bind", operators=("norm",))
    plan = bench.compose(bench.plugin("a", get_op_impls=[op(vendor_ops=("norm",))], get_vendor_ops=library))
    assert plan.problems == ()


# -- parameters


def test_params_change_the_winning_answer(bench: Workbench) -> None:
    policy = CapturePolicy(mode="full", on_failure="eager")
    plan = bench.compose(
        bench.plugin("a", get_capture_policy=policy),
        config="[profile.default]\nhooks.get_capture_policy.params = { batch_sizes = [1, 2] }\n",
    )
    assert plan.value("get_capture_policy") == CapturePolicy(mode="full", on_failure="eager", batch_sizes=(1, 2))
    assert row_of(plan, "get_capture_policy", "a").why == (
        "only implementation; params at kunhook.toml:2 [profile.default]"
    )


def test_params_without_an_answer(bench: Workbench) -> None:
    plan = bench.compose(sets=["hooks.get_comm_init_sizing.keys.tp.params.buffer_bytes=4096"])
    assert plan.named("get_comm_init_sizing") == {"tp": CommInitSizing(buffer_bytes=4096)}
    (row,) = rows_of(plan, "get_comm_init_sizing")
    assert (row.key, row.plugin, row.state, row.why) == ("tp", "(profile)", "active", "params at --set")


def test_params_without_a_key_are_for_every_key(bench: Workbench) -> None:
    plan = bench.compose(
        bench.plugin("a", get_comm_init_sizing=lambda group: CommInitSizing(queue_chunks=2) if group == "tp" else None),
        sets=["hooks.get_comm_init_sizing.params.timeout_s=5"],
    )
    sizings = plan.named("get_comm_init_sizing")
    assert sizings["tp"] == CommInitSizing(queue_chunks=2, timeout_s=5.0)
    assert sizings["pp"] == CommInitSizing(timeout_s=5.0)
    assert len(sizings) == 8


def test_params_do_not_hide_a_conflict(bench: Workbench) -> None:
    plan = bench.compose(
        *(bench.plugin(name, get_capture_policy=CapturePolicy(mode="off")) for name in ("a", "b")),
        sets=["hooks.get_capture_policy.params.mode=full"],
    )
    assert "both answer get_capture_policy" in "".join(plan.problems)
    assert plan.value("get_capture_policy") is None


def test_a_whole_hook_choice_leaves_keys_it_does_not_answer(bench: Workbench) -> None:
    """Choosing a plugin for a hook must not switch off what only others answer."""
    a = bench.plugin("a", get_process_env={"SHARED": EnvDefault(value="a", reason="")})
    b = bench.plugin("b", get_process_env={name: EnvDefault(value="b", reason="") for name in ("SHARED", "OWN")})
    plan = bench.compose(a, b, sets=["hooks.get_process_env.use=a"])
    assert plan.problems == ()
    assert {key: answer.plugin for key, answer in plan.answers["get_process_env"].items()} == {
        "SHARED": "a",
        "OWN": "b",
    }


@pytest.mark.parametrize(
    ("config", "sets", "winner"),
    [
        ("hooks.get_kv_pool_cls.use = 'a'\nhooks.get_kv_pool_cls.keys.mha.use = 'b'", [], "b"),
        ("hooks.get_kv_pool_cls.keys.mha.use = 'b'", ["hooks.get_kv_pool_cls.use=a"], "a"),
    ],
)
def test_the_higher_layer_wins_then_the_key(bench: Workbench, config: str, sets: list[str], winner: str) -> None:
    plugins = [bench.plugin(name, get_kv_pool_cls=f"acme.{name}:Pool") for name in "ab"]
    plan = bench.compose(*plugins, config=f"[profile.default]\n{config}\n", sets=sets)
    assert plan.answers["get_kv_pool_cls"]["mha"].plugin == winner


def test_references_of_two_plugins_are_told_apart(bench: Workbench) -> None:
    def ops(name: str) -> list[OpImpl]:
        return [OpImpl(op="rms_norm", make=f"acme.{name}:make", provider="reference")]

    plugins = [bench.plugin(name, get_op_impls=ops(name)) for name in "ab"]
    (problem,) = bench.compose(*plugins, sets=["ops.rms_norm.use=reference"]).problems
    assert problem.endswith('ops.rms_norm.use = "a:reference"')
    plan = bench.compose(*plugins, sets=["ops.rms_norm.use='a:reference'"])
    assert plan.problems == ()
    assert plan.answers["get_op_impls"]["rms_norm"].plugin == "a"


def test_one_provider_offered_twice(bench: Workbench) -> None:
    same = OpImpl(op="rms_norm", make="acme:make", provider="vendor")
    (problem,) = bench.compose(bench.plugin("a", get_op_impls=[same, same])).problems
    assert "offers rms_norm@vendor 2 times" in problem
