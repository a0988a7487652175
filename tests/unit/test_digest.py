"""The digest: equal exactly when two plans behave alike."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from hookspecs import (
    ArgDefault,
    AttnBackend,
    CapturePolicy,
    EnvDefault,
    OpImpl,
    SpecSupport,
    TritonSupport,
    TritonWorkaround,
    records,
)
from kunhook.digest import digest_of
from kunhook.plan import Plan
from tests.support.workbench import Workbench, detection


class One: ...


class Two: ...


def plan_of(
    bench: Workbench, *, version: str = "1.0", distribution: str = "", sets: tuple[str, ...] = (), **hooks: Any
) -> Plan:
    return bench.compose(bench.plugin("acme", version=version, distribution=distribution, **hooks), sets=sets)


BASE: dict[str, Any] = {"get_comm_backend": "gloo", "get_capture_policy": CapturePolicy(mode="full")}


@pytest.mark.parametrize(
    "change",
    [
        {"get_comm_backend": "nccl"},
        {"get_comm_backend": None},
        {"get_group_device": "cpu"},
        {"get_graph_runner_cls": "m:One"},
        {"version": "1.1"},
        {"distribution": "other-dist"},
        {"sets": ("hooks.get_capture_policy.params.batch_sizes=[1]",)},
        {"sets": ("hooks.get_comm_init_sizing.params.queue_chunks=1",)},
        {"init_backend": lambda: None},
    ],
    ids=str,
)
def test_what_changes_the_digest(bench: Workbench, change: dict[str, Any]) -> None:
    before, after = plan_of(bench, **BASE), plan_of(bench, **BASE | change)
    assert before.problems == after.problems == ()
    assert before.digest != after.digest
    assert len(before.digest) == 16


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"get_graph_runner_cls": One}, {"get_graph_runner_cls": Two}),
        ({"get_attn_backend_cls": {"x": AttnBackend(cls=One)}}, {"get_attn_backend_cls": {"x": AttnBackend(cls=Two)}}),
        (
            {"get_process_env": {"A": EnvDefault(value="1", reason="r")}},
            {"get_process_env": {"A": EnvDefault(value="2", reason="r")}},
        ),
        (
            {"get_server_arg_defaults": {"a": ArgDefault(value=1, reason="r")}},
            {"get_server_arg_defaults": {"b": ArgDefault(value=1, reason="r")}},
        ),
    ],
)
def test_answers_that_differ(bench: Workbench, one: dict[str, Any], two: dict[str, Any]) -> None:
    assert plan_of(bench, **one).digest != plan_of(bench, **two).digest


def test_the_device_and_sglang_change_the_digest(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {
        bench.compose(bench.device(detect_device=detection(variant=variant)), alone=True).digest
        for variant in ("sim", "xpu")
    }
    assert len(digests) == 2
    before = bench.compose()
    monkeypatch.setattr("kunhook.versions.installed", {"sglang": "0.5.22"}.get)
    assert bench.compose().digest != before.digest


def test_the_order_of_calls_changes_the_digest(bench: Workbench) -> None:
    def digest(**marks: str) -> str:
        return bench.compose(
            bench.plugin("a", init_backend=lambda: None),
            bench.plugin("b", init_backend=lambda: None, marks=marks),
        ).digest

    assert digest() == digest(after="a")
    assert digest() != digest(before="a")


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("get_process_env", lambda text: {"A": EnvDefault(value="1", reason=text)}),
        ("get_server_arg_defaults", lambda text: {"a": ArgDefault(value=1, reason=text)}),
        ("get_attn_backend_cls", lambda text: {"a": AttnBackend(cls="m:C", summary=text)}),
        ("get_triton_support", lambda text: TritonSupport(supported=True, reason=text)),
        ("supports_algorithm", lambda text: {"EAGLE": SpecSupport(supported=True, reason=text)}),
        ("get_op_impls", lambda text: [OpImpl(op="rms_norm", make="m:f", provider="p", notes=text)]),
        (
            "get_triton_workarounds",
            lambda text: {
                "x": TritonWorkaround(
                    target="a.b", replacement="m:f", sglang="", reason=text, remove_when=text, upstream=text
                )
            },
        ),
    ],
)
def test_texts_do_not_change_the_digest(bench: Workbench, hook: str, answer: Any) -> None:
    one, two = (plan_of(bench, **{hook: answer(text)}) for text in ("in /opt/venv on host-1", "in /usr on host-2"))
    assert one.problems == two.problems == ()
    assert one.digest == two.digest


def test_every_text_of_an_answer_is_marked() -> None:
    """A new field called like a text has to say whether it is one."""
    compared = {"EnvDefault", "ArgDefault", "AttnBackend", "OpImpl", "TritonSupport", "TritonWorkaround", "SpecSupport"}
    for name in compared:
        for field in msgspec.structs.fields(getattr(records, name)):
            if field.name in {"reason", "summary", "notes", "help", "upstream", "remove_when", "message"}:
                assert field.type == records.Text, f"{name}.{field.name}"


def test_paths_and_bystanders_do_not_change_the_digest(bench: Workbench) -> None:
    plan = plan_of(bench, **BASE)
    line = "hooks.get_capture_policy.params.mode = 'full'"
    here = bench.compose(bench.plugin("acme", **BASE), config=f"[profile.default]\n{line}\n")
    assert here.profile.name == "default"
    there = bench.compose(bench.plugin("acme", **BASE), config=f"\n\n[profile.prod]\n{line}\n[profile.default]\n")
    assert here.digest == there.digest == plan.digest
    # What is blocked, inactive or shadowed does nothing.
    assert bench.compose(bench.plugin("acme", **BASE), bench.plugin("idle")).digest == plan.digest
    shadowed = bench.plugin("shadowed", get_comm_backend="nccl")
    chosen = bench.compose(bench.plugin("acme", **BASE), shadowed, sets=["hooks.get_comm_backend.use=acme"])
    assert (chosen.problems, chosen.digest) == ((), plan.digest)


def test_an_object_and_the_reference_that_names_it_are_one(bench: Workbench) -> None:
    reference = f"{One.__module__}:{One.__qualname__}"
    assert plan_of(bench, get_graph_runner_cls=One).digest == plan_of(bench, get_graph_runner_cls=reference).digest


def test_the_digest_is_of_its_plan(bench: Workbench) -> None:
    plan = plan_of(bench, **BASE)
    assert digest_of(plan) == plan.digest
    assert digest_of(msgspec.structs.replace(plan, digest="", profile=bench.profile(name=None))) == plan.digest


def test_another_process_agrees() -> None:
    """Hash seeds differ between processes; digests do not."""
    code = (
        "from kunhook import profile, plan, discovery\n"
        "found = tuple(discovery.Candidate(name=n, distribution='d', version='1', value=f'kunlun_backend.{n}.plugin')"
        " for n in ('device', 'xccl'))\n"
        "print(plan.compose(profile.load(plugins=['device', 'xccl']), found=found).digest)\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"KUNLUN_DEVICE": "sim", "PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
