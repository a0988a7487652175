"""The catalogue of targets against the map of SGLang's extension points, and the check at startup."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from hookspecs import HOOKS
from kunhook.seams import catalogue, signatures, targets
from kunhook.seams.targets import EVERY_HOOK, TARGETS, VERIFIED, Role, Target

ROOT = Path(__file__).parents[2]

V17, V18, V19, V20, V21, V22, V23 = VERIFIED
ALL = (V17, V19, V21, V23)
SELF = "(self)"
EXTEND = "(iterable, /)"
PLATFORM = "sglang.srt.platforms.interface:SRTPlatform."
GRAPH = "sglang.srt.model_executor.runner_backend.base_cuda_graph_backend:BaseCudaGraphBackend."

# The version columns of the map, typed in: name, then what 0.5.17, 0.5.19, 0.5.21 and 0.5.23 have.
MAP = {
    # DeviceMixin
    PLATFORM + "device_name": ("value",) * 4,
    PLATFORM + "device_type": ("value",) * 4,
    PLATFORM + "get_device_total_memory": ("(self, device_id=...)",) * 4,
    PLATFORM + "get_current_memory_usage": ("(self, device=...)",) * 4,
    PLATFORM + "is_pin_memory_available": ("(self, device=...)",) * 4,
    PLATFORM + "reindex_device_id": (None, None, "(self, device_id)", "(self, device_id)"),
    PLATFORM + "get_device": ("(self, device_id=...)",) * 4,
    PLATFORM + "set_device": ("(self, device)",) * 4,
    PLATFORM + "get_device_name": ("(self, device_id=...)",) * 4,
    PLATFORM + "get_device_uuid": ("(self, device_id=...)",) * 4,
    PLATFORM + "get_device_capability": ("(self, device_id=...)",) * 4,
    PLATFORM + "empty_cache": (SELF,) * 4,
    PLATFORM + "synchronize": (SELF,) * 4,
    PLATFORM + "get_available_memory": ("(self, device_id=...)",) * 4,
    PLATFORM + "get_torch_distributed_backend_str": (SELF,) * 4,
    PLATFORM + "get_communicator_class": (SELF,) * 4,
    PLATFORM + "get_torch_profiler_activity": (SELF,) * 4,
    PLATFORM + "get_torch_profiler_activity_str": (SELF,) * 4,
    PLATFORM + "is_sail": (None, None, None, SELF),
    PLATFORM + "cpu_arch": (None, None, None, "property"),
    # SRTPlatform
    PLATFORM + "supported_quantization": ("value",) * 4,
    PLATFORM + "capabilities": (None, None, None, "value"),
    PLATFORM + "apply_server_args_defaults": ("(self, server_args)",) * 4,
    PLATFORM + "get_default_attention_backend": (SELF,) * 4,
    PLATFORM + "get_default_speculative_draft_attention_backend": (
        None,
        None,
        "(self, algorithm)",
        "(self, algorithm)",
    ),
    PLATFORM + "get_graph_runner_cls": (SELF,) * 4,
    PLATFORM + "get_full_graph_backend_cls": (None, None, SELF, SELF),
    PLATFORM + "get_kv_pool_cls": (None, None, None, "(self, *, kind)"),
    PLATFORM + "get_mha_kv_pool_cls": (SELF, SELF, SELF, None),
    PLATFORM + "get_mla_kv_pool_cls": (SELF, SELF, SELF, None),
    PLATFORM + "get_dsa_kv_pool_cls": (SELF, SELF, SELF, None),
    PLATFORM + "get_paged_allocator_cls": (SELF,) * 4,
    PLATFORM + "get_compile_backend": ("(self, mode=...)",) * 4,
    PLATFORM + "get_piecewise_backend_cls": (SELF,) * 4,
    PLATFORM + "get_speculative_cache_locs_fn": (None, None, SELF, SELF),
    PLATFORM + "get_speculative_worker_cls": (None, None, None, "(self, algorithm)"),
    PLATFORM + "get_speculative_graph_runner_cls": (None, None, None, "(self, algorithm, phase)"),
    PLATFORM + "get_quantization_config": ("(self, quantization)",) * 4,
    PLATFORM + "supports_fp8": (SELF, SELF, SELF, None),
    PLATFORM + "supports_speculative_algorithm": (None, None, "(self, algorithm)", "(self, algorithm)"),
    PLATFORM + "supports_speculative_draft_attention_backend": (
        None,
        None,
        "(self, algorithm, backend)",
        "(self, algorithm, backend)",
    ),
    PLATFORM + "support_mamba_cache_extra_buffer": (None, None, None, SELF),
    PLATFORM + "support_cuda_graph": (SELF, SELF, SELF, None),
    PLATFORM + "support_piecewise_cuda_graph": (SELF, SELF, SELF, None),
    PLATFORM + "get_group_coordinator_device": (None, None, None, "(self, local_rank)"),
    PLATFORM + "init_backend": (SELF,) * 4,
    PLATFORM + "post_load_model": (None, None, None, "(self, model)"),
    PLATFORM + "get_dispatch_key_name": (SELF,) * 4,
    # PlatformCapabilities
    "sglang.srt.platforms.interface:PlatformCapabilities": (None, None, None, "class"),
    "sglang.srt.platforms.interface:PlatformCapabilities.supports_triton": (None, None, None, "value"),
    "sglang.srt.platforms.interface:PlatformCapabilities.supports_pynccl": (None, None, None, "value"),
    # General plugins: the registry, and which process loads them
    "sglang.srt.plugins.hook_registry:HookRegistry.register": ("(cls, target, hook, hook_type=..., *, source=...)",)
    * 4,
    "sglang.launch_server:load_plugins()": ("call",) * 4,
    "sglang.cli.serve:serve.load_plugins()": ("call",) * 4,
    "sglang.srt.entrypoints.engine:Engine.__init__.load_plugins()": ("call",) * 4,
    "sglang.srt.entrypoints.engine:Engine._launch_subprocesses.load_plugins()": ("call",) * 4,
    "sglang.srt.managers.scheduler:run_scheduler_process.load_plugins()": ("call",) * 4,
    "sglang.srt.managers.detokenizer_manager:run_detokenizer_process.load_plugins()": (None, None, None, "call"),
    "sglang.srt.managers.data_parallel_controller:run_data_parallel_controller_process.load_plugins()": (
        None,
        None,
        None,
        "call",
    ),
    # Kernels
    "sglang.kernels.fused_op:BaseFusedOp.register_oot_forward": (
        None,
        "(cls, op_cls, fn, platform_key)",
        "(cls, op_cls, fn, platform_key)",
        "(cls, op_cls, fn, platform_key)",
    ),
    "sglang.srt.layers.utils.multi_platform:MultiPlatformOp.register_oot_forward": (
        "(cls, op_cls, fn, platform_key)",
        None,
        None,
        None,
    ),
    "sglang.kernels.registry:register_kernel": ("(spec)",) * 4,
    "sglang.kernels.spec:KernelBackend.PLUGIN": (None, None, None, "value"),
    "sglang.srt.runtime_context:override_platform": (None, "(**facts)", "(**facts)", "(**facts)"),
    # Attention, sampling, grammar, LoRA, MoE
    "sglang.srt.layers.attention.attention_registry:register_attention_backend": ("(name)",) * 4,
    "sglang.srt.layers.sampler:register_sampler_backend": ("(backend, factory)",) * 4,
    "sglang.srt.constrained.base_grammar_backend:register_grammar_backend": ("(name, init_func)",) * 4,
    "sglang.srt.lora.backend.lora_registry:register_lora_backend": ("(name)",) * 4,
    "sglang.srt.layers.moe.moe_runner.runner:register_moe_runner_core": (None, *["(backend_name, factory)"] * 3),
    # Quantization, models
    "sglang.srt.layers.quantization:get_quantization_config": ("(quantization)",) * 4,
    "sglang.srt.models.registry:_ModelRegistry.register": ("(self, package_name, overwrite=..., strict=...)",) * 4,
    "sglang.srt.model_loader.auto_loader:register_weight_remap": ("(*class_names)",) * 4,
    # Caches
    "sglang.srt.mem_cache.storage.backend_factory:StorageBackendFactory.register_backend": (
        "(cls, name, module_path, class_name)",
    )
    * 4,
    "sglang.srt.mem_cache.embedding_store:EmbeddingStoreFactory.register_backend": (
        None,
        *["(cls, name, module_path, class_name)"] * 3,
    ),
    "sglang.srt.disaggregation.utils:get_kv_class": ("(transfer_backend, class_type)",) * 4,
    "sglang.srt.mem_cache.registry:register_radix_cache_backend": ("(name, factory)",) * 4,
    # Server arguments
    "sglang.srt.server_args:add_attention_backend_choices": ("(choices)", EXTEND, EXTEND, EXTEND),
    "sglang.srt.server_args:add_disagg_transfer_backend_choices": ("(choices)", EXTEND, EXTEND, EXTEND),
    "sglang.srt.server_args:add_draft_attention_backend_choices": (None, EXTEND, EXTEND, EXTEND),
    "sglang.srt.arg_groups.resolution_hooks:register_resolution_hook": (None, None, "(name)", "(name)"),
    "sglang.cli.serve_backends:ServeBackend": (None, "class", "class", "class"),
    # Graph backend: the third argument of capture_one was called dummies before 0.5.17
    GRAPH + "capture_session": ("(self, stream)",) * 4,
    GRAPH + "capture_one": ("(self, shape_key, forward_fn, capture_inputs=..., post_warmup_hook=...)",) * 4,
    GRAPH + "can_run": ("(self, forward_batch, shape_key)",) * 4,
    GRAPH + "replay": ("(self, shape_key, static_forward_batch, **kwargs)",) * 4,
    GRAPH + "cleanup": (SELF,) * 4,
}

# Boundaries the map does not show, because it has no column for these versions.
BETWEEN = {
    (V18, "sglang.kernels.fused_op:BaseFusedOp.register_oot_forward"): "(cls, op_cls, fn, platform_key)",
    (V18, "sglang.srt.layers.utils.multi_platform:MultiPlatformOp.register_oot_forward"): None,
    (V20, PLATFORM + "get_full_graph_backend_cls"): None,
    (V20, PLATFORM + "reindex_device_id"): "(self, device_id)",
    (V22, PLATFORM + "get_kv_pool_cls"): "(self, *, kind)",
    (V22, PLATFORM + "get_mha_kv_pool_cls"): None,
    (V22, PLATFORM + "post_load_model"): "(self, model)",
    (V22, PLATFORM + "get_group_coordinator_device"): None,
    (V22, PLATFORM + "get_speculative_worker_cls"): None,
    (V22, "sglang.srt.platforms.interface:PlatformCapabilities.supports_triton"): "value",
    (V22, "sglang.srt.platforms.interface:PlatformCapabilities.supports_pynccl"): None,
}


@functools.cache
def _expected(version: str) -> dict[str, str]:
    return {target.path: target.signature for target in targets.valid_in(version)}


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("path", MAP)
def test_catalogue_agrees_with_the_map(path, version):
    assert _expected(version).get(path) == MAP[path][ALL.index(version)]


@pytest.mark.parametrize(("version", "path"), BETWEEN)
def test_boundaries_between_the_columns_of_the_map(version, path):
    assert _expected(version).get(path) == BETWEEN[version, path]


@pytest.mark.parametrize("version", VERIFIED)
def test_ranges_of_one_name_do_not_overlap(version):
    seen = [(target.hook, target.path) for target in targets.valid_in(version)]
    assert len(seen) == len(set(seen)), sorted(key for key in seen if seen.count(key) > 1)


def test_every_range_holds_a_verified_version():
    found = {target for version in VERIFIED for target in targets.valid_in(version)}
    assert set(TARGETS) == found


def test_hooks_in_use_exist():
    for target in TARGETS:
        assert target.role is Role.AVAILABLE or target.hook in {*HOOKS, EVERY_HOOK}, target
        assert target.hook, target


def test_every_hook_that_reaches_sglang_has_a_target():
    reaching = {
        seam.hook
        for seam in catalogue.SEAMS
        if seam.kind in (catalogue.Kind.PLATFORM, catalogue.Kind.REGISTRY, catalogue.Kind.DEBT)
    }
    assert reaching <= {target.hook for target in TARGETS if target.role is not Role.AVAILABLE}


def test_debts_of_the_catalogue_have_targets_and_only_they():
    debts = {seam.hook for seam in catalogue.SEAMS if seam.kind is catalogue.Kind.DEBT}
    marked = {target.hook for target in TARGETS if target.role is Role.DEBT}
    assert marked <= debts
    # The targets of workarounds are in the plugins that bring them.
    assert debts - marked == {"get_triton_workarounds"}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.path} {target.sglang}")
def test_paths_and_signatures_are_in_normal_form(target):
    assert re.fullmatch(r"sglang(\.\w+)*:\w+(\.\w+)*(\(\))?", target.path)
    if target.signature.startswith("("):
        assert signatures.text_of(signatures.parse(target.signature)) == target.signature
    else:
        assert target.signature in ("class", "property", "value", "call")
    assert (target.signature == "call") == target.path.endswith("()")


def _imports(file: Path) -> set[tuple[str, str]]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sglang"):
            found |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.startswith("sglang")}
    return found


FILES = sorted([*(ROOT / "kunhook" / "seams").glob("*.py"), *(ROOT / "kunlun_backend").rglob("*.py")])


@pytest.mark.parametrize("file", [f for f in FILES if _imports(f)], ids=lambda f: f.relative_to(ROOT).as_posix())
def test_every_name_our_code_imports_is_a_target(file):
    paths = {target.path for target in TARGETS}
    for module, name in _imports(file):
        starts = (f"{module}:{name}", f"{module}.{name}:" if name else f"{module}.")
        assert any(path.startswith(starts) for path in paths), f"{module}:{name} is in no target"


def test_every_member_our_platform_class_defines_is_a_target():
    source = (ROOT / "kunhook" / "seams" / "platform.py").read_text()
    keys = {
        key.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and not key.value.startswith("__")
    }
    overridden = {t.path.removeprefix(PLATFORM) for t in TARGETS if t.role is Role.OVERRIDE}
    assert {"get_device", "init_backend", "get_kv_pool_cls"} <= keys
    assert keys <= overridden


def test_catalogue_imports_neither_sglang_nor_torch():
    code = "import sys, kunhook.seams.signatures; print(*(m for m in ('sglang', 'torch', 'click') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


# -- the check at startup


def _one(path: str, signature: str, role: Role = Role.CALL, hook: str = "get_op_impls", sglang: str = ">=0") -> Target:
    return Target(hook=hook, path=path, signature=signature, role=role, sglang=sglang)


@pytest.fixture
def running(monkeypatch):
    """Makes a module that looks as if SGLang had imported it."""

    def make(source: str, name: str = "sglang.fake") -> ModuleType:
        module = ModuleType(name)
        exec(source, vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


def check(*wanted: Target) -> list[str]:
    return signatures.check(V23, wanted)


def test_check_accepts_what_the_catalogue_expects(running):
    running(
        "class C:\n def m(self, *, kind): ...\n @classmethod\n def k(cls, a, b=1): ...\n @staticmethod\n def s(p): ..."
    )
    assert (
        check(
            _one("sglang.fake:C.m", "(self, *, kind)", Role.OVERRIDE),
            _one("sglang.fake:C.k", "(cls, a, b=...)"),
            _one("sglang.fake:C.s", "(p)"),
        )
        == []
    )


def test_check_names_hook_target_expected_and_found(running):
    running("class C:\n def m(self): ...")
    (problem,) = check(_one("sglang.fake:C.m", "(self, *, kind)", Role.OVERRIDE, hook="get_kv_pool_cls"))
    assert problem == (
        "hook get_kv_pool_cls: sglang.fake:C.m of SGLang 0.5.23 has another signature: "
        "expected (self, *, kind), found (self)"
    )


def test_check_reports_a_missing_name_with_the_nearest(running):
    running("class C:\n def get_kv_pool_class(self): ...")
    (problem,) = check(_one("sglang.fake:C.get_kv_pool_cls", "(self)", Role.OVERRIDE))
    assert "sglang.fake:C.get_kv_pool_cls of SGLang 0.5.23 is missing, expected get_kv_pool_cls(self)" in problem
    assert "Did you mean get_kv_pool_class?" in problem


def test_check_names_all_hooks_of_one_target_once(running):
    running("")
    wanted = [_one("sglang.fake:f", "()", hook=hook) for hook in ("get_launch_env", "check_server_args")]
    (problem,) = check(*wanted)
    assert problem.startswith("hook get_launch_env, check_server_args: ")
    (problem,) = check(_one("sglang.fake:f", "()", hook=EVERY_HOOK))
    assert problem.startswith("every hook: ")


def test_check_finds_inherited_members(running):
    running("class A:\n def m(self, x): ...\nclass C(A): ...")
    assert check(_one("sglang.fake:C.m", "(self, x)", Role.OVERRIDE)) == []


@pytest.mark.parametrize("role", [Role.READ, Role.SUBCLASS, Role.DEBT, Role.AVAILABLE])
def test_check_looks_at_what_is_called_or_overridden_only(running, role):
    running("")
    assert check(_one("sglang.fake:f", "()", role)) == []
    assert check(_one("sglang.fake:f", "()", Role.CALL))


def test_check_imports_nothing():
    assert "sglang.not_imported" not in sys.modules
    assert check(_one("sglang.not_imported:f", "()")) == []
    assert "sglang.not_imported" not in sys.modules


def test_check_leaves_a_module_alone_that_is_still_being_imported(running):
    module = running("")
    module.__spec__ = ModuleSpec("sglang.fake", None)
    assert check(_one("sglang.fake:f", "()"))
    module.__spec__._initializing = True
    assert check(_one("sglang.fake:f", "()")) == []


def test_check_takes_the_targets_of_the_running_version(running):
    running("def f(new): ...")
    wanted = (_one("sglang.fake:f", "(old)", sglang="<0.5.22"), _one("sglang.fake:f", "(new)", sglang=">=0.5.22"))
    assert signatures.check("0.5.23+kunlun", wanted) == []
    assert len(signatures.check("0.5.21", wanted)) == 1


def test_check_of_a_version_out_of_range_is_one_problem():
    (problem,) = signatures.check("0.6.1")
    assert "0.6.1" in problem
    assert catalogue.SUPPORTED in problem


def test_check_believes_a_wrapper_that_hides_the_signature(running):
    running("def hide(f):\n def w(*args, **kwargs): ...\n return w\n@hide\ndef f(a): ...\ndef g(*args): ...")
    assert check(_one("sglang.fake:f", "(a)")) == []
    assert len(check(_one("sglang.fake:g", "(a)"))) == 1


def test_check_reads_builtins_properties_and_values(running):
    running("LIST = []\nadd = LIST.extend\nclass C:\n p = property(lambda self: 1)\n v = 1\n class D: ...")
    assert (
        check(
            _one("sglang.fake:add", "(iterable, /)"),
            _one("sglang.fake:C.p", "property", Role.OVERRIDE),
            _one("sglang.fake:C.v", "value", Role.OVERRIDE),
            _one("sglang.fake:C.D", "class"),
        )
        == []
    )
    assert len(check(_one("sglang.fake:C.p", "(self)", Role.OVERRIDE))) == 1


@pytest.mark.parametrize(
    ("expected", "found", "call_fits"),
    [
        ("(a, b)", "(a, b)", True),
        ("(a, b)", "(a, b, c=...)", True),
        ("(a, b)", "(a, b, *, c=...)", True),
        ("(a, b)", "(a, b, **more)", True),
        ("(a, b)", "(a, b, c)", False),
        ("(a, b)", "(a)", False),
        ("(a, b)", "(b, a)", False),
        ("(a, b)", "(c=..., a=..., b=...)", False),
        ("(a, b)", "(a, b=...)", True),
        ("(a, b=...)", "(a, b)", False),
        ("(a, b=...)", "(a, b=..., c=...)", True),
        ("(a, *, b)", "(a, b)", True),
        ("(a, b)", "(a, *, b)", False),
        ("(a, /)", "(a)", True),
        ("(a)", "(a, /)", False),
        ("(a, **kw)", "(a)", False),
        ("(a)", "class", False),
        ("class", "(a)", False),
    ],
)
def test_a_call_may_meet_a_grown_signature_and_an_override_may_not(expected, found, call_fits):
    assert signatures.fits(Role.CALL, expected, found) is call_fits
    assert signatures.fits(Role.OVERRIDE, expected, found) is (expected == found)
