"""The catalogue of targets and ``kunhook diff`` on the sources of real versions of SGLang.

Wheels are downloaded once into ``$XDG_CACHE_HOME/kunhook/wheels``; nothing of them is imported.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kunhook import diff, versions
from kunhook.seams import targets
from kunhook.seams.targets import TARGETS, Role

DOWNLOADED = ("0.5.17", "0.5.19", "0.5.21")
INSTALLED = "0.5.23"
EVERY = (*DOWNLOADED, INSTALLED)
PAIRS = (*itertools.pairwise(EVERY), ("0.5.17", "0.5.23"), ("0.5.23", "0.5.19"))

PLATFORM = "sglang.srt.platforms.interface:SRTPlatform."
CAPABILITIES = "sglang.srt.platforms.interface:PlatformCapabilities"
CHOICES = "sglang.srt.arg_groups.choices:"
SELF = "(self)"

# What the map says changed from 0.5.17 to 0.5.23: name, change, old and new signature.
CHANGES = {
    PLATFORM + "get_kv_pool_cls": ("new", None, "(self, *, kind)"),
    PLATFORM + "get_mha_kv_pool_cls": ("gone", SELF, None),
    PLATFORM + "get_mla_kv_pool_cls": ("gone", SELF, None),
    PLATFORM + "get_dsa_kv_pool_cls": ("gone", SELF, None),
    PLATFORM + "support_cuda_graph": ("gone", SELF, None),
    PLATFORM + "support_piecewise_cuda_graph": ("gone", SELF, None),
    PLATFORM + "supports_fp8": ("gone", SELF, None),
    PLATFORM + "capabilities": ("new", None, "value"),
    CAPABILITIES: ("new", None, "class"),
    CAPABILITIES + ".supports_triton": ("new", None, "value"),
    CAPABILITIES + ".graph_capture": ("new", None, "value"),
    CAPABILITIES + ".hicache_device_kernels": ("new", None, "value"),
    CAPABILITIES + ".supports_pynccl": ("new", None, "value"),
    PLATFORM + "post_load_model": ("new", None, "(self, model)"),
    PLATFORM + "get_group_coordinator_device": ("new", None, "(self, local_rank)"),
    PLATFORM + "get_full_graph_backend_cls": ("new", None, SELF),
    PLATFORM + "get_speculative_worker_cls": ("new", None, "(self, algorithm)"),
    PLATFORM + "get_speculative_graph_runner_cls": ("new", None, "(self, algorithm, phase)"),
    PLATFORM + "get_speculative_cache_locs_fn": ("new", None, SELF),
    PLATFORM + "supports_speculative_algorithm": ("new", None, "(self, algorithm)"),
    PLATFORM + "supports_speculative_draft_attention_backend": ("new", None, "(self, algorithm, backend)"),
    PLATFORM + "get_default_speculative_draft_attention_backend": ("new", None, "(self, algorithm)"),
    PLATFORM + "support_mamba_cache_extra_buffer": ("new", None, SELF),
    PLATFORM + "reindex_device_id": ("new", None, "(self, device_id)"),
    PLATFORM + "cpu_arch": ("new", None, "property"),
    PLATFORM + "is_sail": ("new", None, SELF),
    PLATFORM + "get_quantization_config": ("same", "(self, quantization)", "(self, quantization)"),
    PLATFORM + "get_compile_backend": ("same", "(self, mode=...)", "(self, mode=...)"),
    PLATFORM + "get_graph_runner_cls": ("same", SELF, SELF),
    PLATFORM + "init_backend": ("same", SELF, SELF),
    "sglang.kernels.fused_op:BaseFusedOp.register_oot_forward": ("new", None, "(cls, op_cls, fn, platform_key)"),
    "sglang.srt.model_executor.runner_backend.base_cuda_graph_backend:BaseCudaGraphBackend.capture_one": (
        "same",
        "(self, shape_key, forward_fn, capture_inputs=..., post_warmup_hook=...)",
        "(self, shape_key, forward_fn, capture_inputs=..., post_warmup_hook=...)",
    ),
    "sglang.srt.server_args:add_attention_backend_choices": ("changed", "(choices)", "(iterable, /)"),
    "sglang.srt.layers.layernorm:RMSNorm.forward_native": (
        "changed",
        "(self, x, residual=..., post_residual_addition=...)",
        "(self, x, residual=..., post_residual_addition=..., quant_linear=...)",
    ),
    "sglang.srt.server_args_config_parser:ConfigArgumentMerger.merge_config_with_args": (
        "moved",
        "(self, cli_args)",
        "(self, cli_args)",
    ),
    "sglang.srt.managers.detokenizer_manager:run_detokenizer_process.load_plugins()": ("new", None, "call"),
    "sglang.srt.managers.scheduler:run_scheduler_process.load_plugins()": ("same", "call", "call"),
    "sglang.kernels.spec:KernelBackend.PLUGIN": ("new", None, "value"),
    "sglang.srt.disaggregation.utils:get_kv_class": (
        "same",
        "(transfer_backend, class_type)",
        "(transfer_backend, class_type)",
    ),
}

# Names that are still found under their old path, and where they are defined in 0.5.23.
DEFINED_ELSEWHERE = {
    "sglang.srt.layers.utils.multi_platform:MultiPlatformOp.register_oot_forward": (
        "sglang.kernels.fused_op:BaseFusedOp.register_oot_forward"
    ),
    "sglang.srt.server_args:ATTENTION_BACKEND_CHOICES": f"{CHOICES}ATTENTION_BACKEND_CHOICES",
    "sglang.srt.server_args:add_attention_backend_choices": f"{CHOICES}add_attention_backend_choices",
}

# Names our code leaves alone in versions that still have them, for the sake of a better one.
LEFT_ALONE = {
    "sglang.srt.layers.utils.multi_platform:MultiPlatformOp.register_oot_forward",
    "sglang.srt.layers.utils.multi_platform:MultiPlatformOp._oot_forward_registry",
}


@pytest.fixture(scope="session")
def given() -> Callable[[str], str]:
    """What to give ``kunhook diff`` for a version: a wheel, or the version that is installed."""
    if versions.installed("sglang") != INSTALLED:
        pytest.skip(f"needs sglang {INSTALLED} installed, found {versions.installed('sglang')}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kunhook" / "wheels"

    @functools.cache
    def get(version: str) -> str:
        if version == INSTALLED:
            return version
        if not list(cache.glob(f"sglang-{version}-*.whl")):
            cache.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*command, f"sglang=={version}", "--dest", str(cache)], check=True)
        (wheel,) = cache.glob(f"sglang-{version}-*.whl")
        return str(wheel)

    return get


@pytest.fixture(scope="session")
def tree(given) -> Callable[[str], diff.Tree]:
    """The parsed sources of a version."""
    return functools.cache(lambda version: diff.open_tree(given(version)))


@pytest.fixture(scope="session")
def compared(tree) -> Callable[[str, str], diff.Report]:
    """The comparison of a pair of versions."""
    return functools.cache(lambda old, new: diff.compare(tree(old), tree(new)))


@pytest.mark.parametrize("version", EVERY)
def test_the_sources_have_what_the_catalogue_says(tree, version):
    sources = tree(version)
    assert sources.version == version
    expected = {target.path: target.signature for target in targets.valid_in(version)}
    found = {path: (spot := sources.find(path)) and spot.signature for path in expected}
    assert found == expected


@pytest.mark.parametrize("version", EVERY)
def test_the_catalogue_claims_no_less_than_the_sources_have(tree, version):
    expected = {(target.path, target.hook) for target in targets.valid_in(version)}
    missing = {target.path for target in TARGETS if (target.path, target.hook) not in expected}
    assert {path for path in missing if tree(version).find(path)} == (LEFT_ALONE if version != EVERY[0] else set())


@pytest.mark.parametrize("path", CHANGES)
def test_diff_finds_the_changes_of_the_map(compared, path):
    report = compared("0.5.17", "0.5.23")
    found = {(f.change.value, f.old_signature, f.new_signature) for f in report.findings if f.path == path}
    assert found == {CHANGES[path]}


@pytest.mark.parametrize("path", DEFINED_ELSEWHERE)
def test_diff_says_where_a_name_is_defined_now(compared, path):
    assert {f.moved_to for f in compared("0.5.17", "0.5.23").findings if f.path == path} == {DEFINED_ELSEWHERE[path]}


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_kunhook_follows_every_verified_version(compared, old, new):
    report = compared(old, new)
    assert [f"{f.path}: {f.what_to_do}" for f in report.findings if f.needs_work] == []
    assert report.findings


def test_new_seams_nobody_catalogued_are_few_and_named(compared):
    report = compared("0.5.21", "0.5.23")
    assert [finding.path for finding in report.findings if not finding.hook] == []


def test_without_the_entries_of_the_new_version_diff_asks_for_work(tree):
    """What the report says on the day a version comes out that the catalogue does not know yet."""
    before = [target for target in targets.valid_in("0.5.21") if target.role is not Role.AVAILABLE]
    unaware = [target for target in before if "<0.5.22" in target.sglang]
    wanted = [type(target)(**{**_fields(target), "sglang": ">=0.5.17,<0.6"}) for target in unaware]
    report = diff.compare(tree("0.5.21"), tree("0.5.23"), wanted)
    lost = {f.path.removeprefix(PLATFORM): f for f in report.findings if f.needs_work}
    assert set(lost) == {
        "get_mha_kv_pool_cls",
        "get_mla_kv_pool_cls",
        "get_dsa_kv_pool_cls",
        "support_cuda_graph",
        "support_piecewise_cuda_graph",
    }
    assert "Did you mean get_kv_pool_cls" in lost["get_mha_kv_pool_cls"].what_to_do
    new = {finding.path.removeprefix(PLATFORM) for finding in report.findings if not finding.hook}
    assert {"get_kv_pool_cls", "post_load_model", "get_group_coordinator_device"} <= new


def _fields(target: targets.Target) -> dict[str, object]:
    return {name: getattr(target, name) for name in target.__struct_fields__}


def test_the_command_on_a_wheel_and_the_installed_version(given, tmp_path):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KUNHOOK", "SGLANG"))}
    done = subprocess.run(
        [sys.executable, "-c", "from kunhook.cli import main; main()", "diff", given("0.5.17"), INSTALLED, "--json"],
        cwd=tmp_path,
        env=kept | {"XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["old"], data["new"]) == ("0.5.17", "0.5.23")
    assert data["summary"]["gone"] == 6
    assert data["summary"]["needs_work"] == 0


CHECK = """
import json, sys
import sglang
from kunhook.seams import signatures
import sglang.srt.layers.layernorm, sglang.srt.layers.activation, sglang.srt.server_args
before = set(sys.modules)
found = {version: signatures.check(version) for version in sys.argv[1:]}
print(json.dumps({"problems": found, "imported": sorted(set(sys.modules) - before)}))
"""


def test_the_running_version_is_as_catalogued(tmp_path):
    """In a process with the platform active, as when SGLang starts."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, "0.5.23", "0.5.21", "0.5.17"],
        cwd=tmp_path,
        env=os.environ | {"KUNLUN_DEVICE": "sim", "SGLANG_PLATFORM": "kunlun", "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout.splitlines()[-1])
    assert data["imported"] == []
    assert data["problems"]["0.5.23"] == []
    as_21, as_17 = data["problems"]["0.5.21"], data["problems"]["0.5.17"]
    assert any("get_mha_kv_pool_cls of SGLang 0.5.21 is missing" in problem for problem in as_21)
    assert any("RMSNorm.forward_native of SGLang 0.5.17 has another signature" in problem for problem in as_17)
