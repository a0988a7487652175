"""One test per hook: a right answer reaches the plan, a wrong one is refused by plugin and hook."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs import (
    HOOKS,
    ArgDefault,
    ArgProblem,
    AttnBackend,
    CapturePolicy,
    CommInitSizing,
    DetectionStage,
    EnvDefault,
    KVTransfer,
    Metric,
    OpImpl,
    PluginInfo,
    SpecSupport,
    TritonSupport,
    TritonWorkaround,
    VendorOps,
)
from kunhook import answers
from kunhook.errors import KunhookError
from tests.support.workbench import DEVICE, Workbench, detection, row_of, rows_of, runtime


class SomeClass:
    """An object a reference could name."""


def settles(bench: Workbench, hook: str, good: Any, *wrong: Any) -> None:
    """The plan holds ``good``, for every key there is; each of ``wrong`` is refused."""
    plan = bench.compose(bench.plugin("acme", **{hook: good}))
    keys = HOOKS[hook].marks.keys or (tuple(good) if HOOKS[hook].marks.mode == "merge" else ("",))
    expected = good if HOOKS[hook].marks.mode == "merge" else dict.fromkeys(keys, good)
    assert plan.problems == ()
    assert plan.named(hook) == expected
    assert {(row.key, row.state) for row in rows_of(plan, hook, "acme")} == {(key, "active") for key in keys}
    for value in wrong:
        refused(bench, hook, value)


def refused(bench: Workbench, hook: str, value: Any) -> None:
    plan = bench.compose(bench.plugin("acme", **{hook: value}))
    assert plan.named(hook) == {}
    assert {row.state for row in rows_of(plan, hook, "acme")} == {"failed"}
    assert plan.problems
    for problem in plan.problems:
        assert problem.startswith(f"plugin 'acme' (acme-dist 1.0), hook {hook}")
        assert f"plugin 'acme' answered {value!r}, but the hook is {HOOKS[hook].signature}." in problem or (
            f"plugin 'acme' answered {hook}" in problem
        )


def is_called(bench: Workbench, hook: str, good: Any, *wrong: Any, **available: Any) -> None:
    """The plan keeps the function for later; then the answer is handed on, and ``wrong`` is refused."""

    def asked(answer: Any) -> Any:
        plan = bench.compose(bench.plugin("acme", **{hook: answer}))
        assert plan.problems == ()
        row = row_of(plan, hook, "acme")
        assert (row.state, row.why) == ("active", f"called in order at {HOOKS[hook].marks.asked}")
        (implementation,) = plan.calls[hook]
        return answers.ask(implementation, **available)

    assert asked(good) == good
    for value in wrong:
        with pytest.raises(KunhookError, match=rf"^plugin 'acme' answered .*{hook}"):
            asked(value)

    def fails() -> None:
        raise ValueError("no table")

    with pytest.raises(KunhookError, match=f"^plugin 'acme', hook {hook}: ValueError: no table$"):
        asked(fails)


def env(value: Any = "1") -> EnvDefault:
    return EnvDefault(value=value, reason="test")


# -- device


def test_hook_detect_device(bench: Workbench) -> None:
    plan = bench.compose(bench.device(detect_device=detection(variant="sim")), alone=True)
    assert plan.device == detection(variant="sim")
    assert (row_of(plan, "detect_device", "acme-device").state, plan.problems) == ("active", ())
    for wrong in (True, "acme", detection(present="yes")):
        plan = bench.compose(bench.plugin("acme", detect_device=wrong), alone=True)
        assert (plan.device, row_of(plan, "detect_device", "acme").state) == (None, "failed")
        (problem,) = plan.problems
        assert problem.startswith("plugin 'acme' (acme-dist 1.0), hook detect_device: plugin 'acme' answered ")


def test_hook_get_device_runtime(bench: Workbench) -> None:
    plan = bench.compose(bench.device(get_device_runtime=runtime()), alone=True)
    assert plan.value("get_device_runtime") == runtime()
    for wrong in ("acme", runtime(device=None)):
        plan = bench.compose(bench.device(get_device_runtime=wrong), alone=True)
        assert plan.value("get_device_runtime") is None
        assert "hook get_device_runtime: plugin 'acme-device' answered " in plan.problems[0]
        assert "no plugin answers get_device_runtime for device 'acme'" in plan.problems[1]


def test_hook_get_process_env(bench: Workbench) -> None:
    settles(bench, "get_process_env", {"A": env()}, {"A": "1"}, {1: env()}, [env()], {"A": env(1)})


def test_hook_get_launch_env(bench: Workbench) -> None:
    is_called(bench, "get_launch_env", {"A": env()}, {"A": "1"}, {"A": env(1)}, server_args=None)


def test_hook_init_backend(bench: Workbench) -> None:
    is_called(bench, "init_backend", None, "ready")


def test_hook_post_load_model(bench: Workbench) -> None:
    # A model that is returned would be lost, so it is refused.
    is_called(bench, "post_load_model", None, SomeClass(), model=None)


# -- server


def test_hook_get_server_arg_defaults(bench: Workbench) -> None:
    default = ArgDefault(value=64, reason="test")
    settles(bench, "get_server_arg_defaults", {"page_size": default}, {"page_size": 64}, default)


def test_hook_check_server_args(bench: Workbench) -> None:
    problem = ArgProblem(field="tp_size", value="3", message="odd", remedy="--tp-size 2")
    is_called(bench, "check_server_args", [problem], problem, ["odd"], {"tp_size": problem}, server_args=None)


# -- memory


def test_hook_get_kv_pool_cls(bench: Workbench) -> None:
    settles(bench, "get_kv_pool_cls", "acme.pools:Pool", "acme.pools.Pool", 1)


def test_hook_get_paged_allocator_cls(bench: Workbench) -> None:
    settles(bench, "get_paged_allocator_cls", SomeClass, "Allocator", {})


def test_hook_get_host_allocator(bench: Workbench) -> None:
    settles(bench, "get_host_allocator", "acme.host:allocate", "allocate")


# -- attention


def test_hook_get_attn_backend_cls(bench: Workbench) -> None:
    backend = AttnBackend(cls="acme.attention:Backend", deterministic=True)
    settles(bench, "get_attn_backend_cls", {"acme": backend}, {"acme": SomeClass}, {"acme": AttnBackend(cls="Backend")})


def test_hook_get_default_attn_backend(bench: Workbench) -> None:
    settles(bench, "get_default_attn_backend", "acme", AttnBackend(cls=SomeClass), 1)


# -- communication


def test_hook_get_comm_backend(bench: Workbench) -> None:
    settles(bench, "get_comm_backend", "gloo", ["gloo"], SomeClass)


def test_hook_get_comm_init_sizing(bench: Workbench) -> None:
    settles(bench, "get_comm_init_sizing", CommInitSizing(buffer_bytes=0), 64, {"buffer_bytes": 64})
    plan = bench.compose(bench.plugin("acme", get_comm_init_sizing=CommInitSizing(buffer_bytes=-1)))
    assert len(plan.problems) == len(HOOKS["get_comm_init_sizing"].marks.keys)
    assert "hook get_comm_init_sizing[tp]: " in "".join(plan.problems)
    assert "with buffer_bytes = -1: Expected `int` >= 0" in plan.problems[0]


def test_hook_get_communicator_cls(bench: Workbench) -> None:
    settles(bench, "get_communicator_cls", SomeClass, SomeClass(), 1)


def test_hook_get_group_device(bench: Workbench) -> None:
    settles(bench, "get_group_device", "cuda:{local_rank}", 0)


# -- graph


def test_hook_get_graph_runner_cls(bench: Workbench) -> None:
    settles(bench, "get_graph_runner_cls", "acme.graph:Runner", True)


def test_hook_get_graph_backend_cls(bench: Workbench) -> None:
    settles(bench, "get_graph_backend_cls", "acme.graph:Backend", "Backend")


def test_hook_get_capture_policy(bench: Workbench) -> None:
    wrong = CapturePolicy(mode="sometimes"), CapturePolicy(batch_sizes=(0,))
    settles(bench, "get_capture_policy", CapturePolicy(mode="full", batch_sizes=(1, 8)), "full", *wrong)


def test_hook_get_compile_backend(bench: Workbench) -> None:
    settles(bench, "get_compile_backend", "eager", False)


# -- kernels


def test_hook_get_vendor_ops(bench: Workbench) -> None:
    table = VendorOps(library="acme_ops", bind="acme.ops:bind", operators=("norm",))
    settles(bench, "get_vendor_ops", table, "acme_ops", VendorOps(library="acme_ops", bind="bind", operators=()))


def test_hook_get_op_impls(bench: Workbench) -> None:
    implementation = OpImpl(op="rms_norm", make=SomeClass, provider="vendor")
    plan = bench.compose(bench.plugin("acme", get_op_impls=[implementation]))
    assert (plan.named("get_op_impls"), plan.problems) == ({"rms_norm": implementation}, ())
    assert row_of(plan, "get_op_impls", "acme").key == "rms_norm@vendor"
    for wrong in (
        implementation,
        {"rms_norm": implementation},
        ["rms_norm"],
        [OpImpl(op="rms_norm", make="m", provider="v")],
    ):
        refused(bench, "get_op_impls", wrong)


# -- triton


def test_hook_get_triton_support(bench: Workbench) -> None:
    support = TritonSupport(supported=False, reason="no compiler")
    settles(bench, "get_triton_support", support, False, TritonSupport(supported=0, reason="no compiler"))


def test_hook_get_triton_workarounds(bench: Workbench) -> None:
    fields = {"target": "a.b.c", "reason": "no compiler", "sglang": ">=0.5", "remove_when": "never"}
    good = {"softcap": TritonWorkaround(replacement="acme.triton:softcap", **fields)}
    settles(bench, "get_triton_workarounds", good, list(good.values()), {"softcap": "acme.triton:softcap"})


# -- quantization


def test_hook_get_quantization_config(bench: Workbench) -> None:
    settles(bench, "get_quantization_config", {"w8a8_int8": SomeClass}, SomeClass, {"w8a8_int8": "Config"})


# -- speculative


def test_hook_supports_algorithm(bench: Workbench) -> None:
    settles(bench, "supports_algorithm", {"EAGLE": SpecSupport(supported=True)}, {"EAGLE": True}, ["EAGLE"])


def test_hook_get_spec_worker_cls(bench: Workbench) -> None:
    settles(bench, "get_spec_worker_cls", {"EAGLE": "acme.spec:Worker"}, {"EAGLE": 1}, "acme.spec:Worker")


def test_hook_get_draft_graph_runner_cls(bench: Workbench) -> None:
    settles(bench, "get_draft_graph_runner_cls", SomeClass, {"draft_decode": SomeClass})


def test_hook_get_cache_locs_fn(bench: Workbench) -> None:
    settles(bench, "get_cache_locs_fn", "acme.spec:locations", ("acme.spec:locations",))


# -- cache


def test_hook_get_hicache_storage(bench: Workbench) -> None:
    settles(bench, "get_hicache_storage", {"acme_ssd": "acme.storage:Ssd"}, {"acme_ssd": "Ssd"}, "acme.storage:Ssd")


def test_hook_get_kv_transfer(bench: Workbench) -> None:
    roles = dict.fromkeys(("manager", "sender", "receiver", "bootstrap_server"), "acme.pd:Role")
    good = {"acme_rdma": KVTransfer(**roles)}
    settles(bench, "get_kv_transfer", good, {"acme_rdma": roles}, {"acme_rdma": KVTransfer(**{**roles, "sender": 1})})


# -- metrics


def test_hook_collect_metrics(bench: Workbench) -> None:
    metric = Metric(name="pool_bytes", value=1.0)
    is_called(bench, "collect_metrics", [metric], metric, {"pool_bytes": 1.0}, [Metric(name="x", value="high")])


# -- what all of them share


def test_a_hook_is_asked_for_every_key_and_with_the_detection(bench: Workbench) -> None:
    asked = []

    def get_kv_pool_cls(kind: str, detection: Any) -> None:
        asked.append((kind, detection.device))

    bench.compose(bench.plugin("acme", get_kv_pool_cls=get_kv_pool_cls))
    assert asked == [("mha", DEVICE), ("mla", DEVICE), ("dsa", DEVICE)]


def test_a_wrong_field_inside_a_record_inside_is_found(bench: Workbench) -> None:
    device = detection(stages=(DetectionStage(name="wheel", ok="yes"),))
    plan = bench.compose(bench.plugin("acme", detect_device=device), alone=True)
    assert "answered detect_device with stages: ok = 'yes': Expected `bool | null`, got `str`" in plan.problems[0]


def test_a_subclass_of_a_record_is_that_record(bench: Workbench) -> None:
    class Verbose(CapturePolicy, frozen=True, kw_only=True):
        log: Any = print

    plan = bench.compose(bench.plugin("acme", get_capture_policy=Verbose(mode="full")))
    assert (plan.problems, plan.value("get_capture_policy").mode) == ((), "full")


def test_a_value_of_any_type_may_hold_a_record_of_another_kind(bench: Workbench) -> None:
    default = ArgDefault(value=PluginInfo(summary="x"), reason="test")
    plan = bench.compose(bench.plugin("acme", get_server_arg_defaults={"x": default}))
    assert plan.problems == ()
