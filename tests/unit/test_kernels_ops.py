"""The operators SGLang's fused classes are given, without SGLang: stand-ins carry the same attributes."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kunlun_backend.kernels import activation, norm, plugin, rotary  # noqa: E402
from kunlun_backend.vendor import sim  # noqa: E402
from kunlun_backend.vendor.contract import OPERATORS  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def ops() -> Any:
    return sim.bind()


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape).to(dtype)


def close(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype
    tolerance = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


# ---- rms_norm ------------------------------------------------------------------------------------


def make_norm(hidden: int = 48, dtype: Any = torch.float32, **changes: Any) -> SimpleNamespace:
    attributes = {
        "hidden_size": hidden,
        "variance_epsilon": 1e-5,
        "variance_size_override": None,
        "has_weight": True,
        "cast_x_before_out_mul": False,
        "fp32_residual": False,
        "override_orig_dtype": None,
        "weight": random(hidden, dtype=dtype),
    }
    return SimpleNamespace(**(attributes | changes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 48), (1, 48), (5, 48), (2, 3, 48)])
@pytest.mark.parametrize("changes", [{}, {"cast_x_before_out_mul": True}])
def test_norm(ops: Any, dtype: Any, shape: tuple[int, ...], changes: dict[str, Any]) -> None:
    vendor, reference = norm.make_vendor(ops), norm.make_reference()
    instance, x, residual = (
        make_norm(dtype=dtype, **changes),
        random(*shape, dtype=dtype),
        random(*shape, dtype=dtype),
    )
    extra = random(*shape, dtype=dtype)
    close(vendor(instance, x), reference(instance, x))
    for addition in (None, extra):
        actual = vendor(instance, x.clone(), residual.clone(), addition)
        expected = reference(instance, x, residual, addition)
        close(actual[0], expected[0])
        close(actual[1], expected[1])


def test_norm_without_weight(ops: Any) -> None:
    instance = make_norm(has_weight=False, weight=torch.ones(48))
    x, residual = random(4, 48), random(4, 48)
    vendor, reference = norm.make_vendor(ops), norm.make_reference()
    close(vendor(instance, x), reference(instance, x))
    expected = reference(instance, x, residual)
    close(vendor(instance, x, residual)[0], expected[0])
    close(residual, expected[1])


def test_norm_makes_strided_input_dense(ops: Any) -> None:
    joined, instance = random(6, 96), make_norm()
    x = joined[:, :48]
    close(norm.make_vendor(ops)(instance, x), norm.make_reference()(instance, x))


@pytest.mark.parametrize(
    "changes",
    [
        {"variance_size_override": 16},
        {"fp32_residual": True},
        {"override_orig_dtype": torch.float32},
        {"weight": torch.ones(48)},
    ],
)
def test_norm_the_vendor_cannot_express_runs_the_reference(changes: dict[str, Any]) -> None:
    def never(*args: Any) -> None:
        pytest.fail("the vendor operator was called")

    forward = norm.make_vendor(SimpleNamespace(rmsnorm=never, add_rmsnorm=never))
    instance = make_norm(dtype=torch.bfloat16, **changes)
    x, residual = random(3, 48, dtype=torch.bfloat16), random(3, 48, dtype=torch.bfloat16)
    reference = norm.make_reference()
    assert torch.equal(forward(instance, x), reference(instance, x))
    for actual, expected in zip(forward(instance, x, residual), reference(instance, x, residual), strict=True):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


def test_norm_mixed_residual_runs_the_reference(ops: Any) -> None:
    instance, x, residual = (
        make_norm(dtype=torch.bfloat16),
        random(3, 48, dtype=torch.bfloat16),
        random(3, 48),
    )
    actual, expected = (
        norm.make_vendor(ops)(instance, x, residual),
        norm.make_reference()(instance, x, residual),
    )
    assert torch.equal(actual[0], expected[0])
    assert torch.equal(actual[1], expected[1])


def test_norm_of_the_wrong_width_is_an_error(ops: Any) -> None:
    for forward in (norm.make_vendor(ops), norm.make_reference()):
        with pytest.raises(ValueError, match="48"):
            forward(make_norm(), random(3, 24))


# ---- silu_and_mul --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (2, 3, 8)])
def test_activation(ops: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    x = random(*shape, dtype=dtype)
    actual = activation.make_vendor(ops)(None, x)
    assert actual.shape == (*shape[:-1], 4)
    close(actual, activation.make_reference()(None, x))
    strided = random(*shape[:-1], 16, dtype=dtype)[..., :8]
    close(activation.make_vendor(ops)(None, strided), activation.make_reference()(None, strided))


# ---- rotary_embedding ----------------------------------------------------------------------------


def make_rotary(head_size: int, rotary_dim: int, neox: bool, dtype: Any = torch.float32) -> SimpleNamespace:
    angle = random(700, rotary_dim // 2)
    cache = torch.cat((angle.cos(), angle.sin()), -1).to(dtype)
    return SimpleNamespace(head_size=head_size, rotary_dim=rotary_dim, is_neox_style=neox, cos_sin_cache=cache)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [32, 8])
@pytest.mark.parametrize("tokens", [0, 1, 256, 257, 600])
def test_rotary(ops: Any, dtype: Any, neox: bool, rotary_dim: int, tokens: int) -> None:
    instance = make_rotary(32, rotary_dim, neox)
    positions = torch.randint(0, 600, (tokens,))
    joined = random(tokens, 4 * 32, dtype=dtype)
    query, key = joined[:, :96], joined[:, 96:]
    vendor, reference = rotary.make_vendor(ops), rotary.make_reference()
    for actual, expected in zip(
        vendor(instance, positions, query, key), reference(instance, positions, query, key), strict=True
    ):
        assert actual.shape == expected.shape
        close(actual, expected)
    heads = query.reshape(tokens, 3, 32), key.reshape(tokens, 1, 32)
    assert [x.shape for x in vendor(instance, positions, *heads)] == [x.shape for x in heads]


def test_rotary_offsets_and_fused_write(ops: Any) -> None:
    instance, query, key = make_rotary(16, 16, True), random(3, 32), random(3, 16)
    positions, offsets = torch.tensor([1, 2, 3]), torch.tensor([5, 0, 7])
    for forward in (rotary.make_vendor(ops), rotary.make_reference()):
        shifted = forward(instance, positions, query, key, offsets)
        moved = forward(instance, positions + offsets, query, key)
        assert torch.equal(shifted[0], moved[0])
        with pytest.raises(NotImplementedError, match="fused KV write"):
            forward(instance, positions, query, key, None, object())


def test_rotary_never_exceeds_the_limit() -> None:
    sizes = []

    def record(
        positions: Any, rotary_dim: int, head_size: int, cache: Any, neox: bool, q: Any, k: Any, offsets: Any
    ) -> Any:
        sizes.append(positions.size(0))
        return q, k

    forward = rotary.make_vendor(SimpleNamespace(flashinfer_rotary_embedding=record))
    forward(make_rotary(8, 8, True), torch.zeros(600, dtype=torch.int64), random(600, 8), random(600, 8))
    assert sizes == [256, 256, 88]


# ---- the plugin ----------------------------------------------------------------------------------


def test_importing_the_plugin_imports_neither_torch_nor_sglang() -> None:
    code = (
        "import sys, kunlun_backend.kernels.plugin, kunlun_backend.vendor.xpu;"
        "print([m for m in ('torch', 'sglang', 'triton', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_op_impls_refer_to_what_exists(ops: Any) -> None:
    impls = plugin.get_op_impls()
    assert {(impl.op, impl.provider) for impl in impls} == {
        (op, provider)
        for op in ("rms_norm", "silu_and_mul", "rotary_embedding")
        for provider in ("vendor", "reference")
    }
    modules = {module.__name__: module for module in (norm, activation, rotary)}
    for impl in impls:
        module, _, name = impl.make.partition(":")
        assert callable(getattr(modules[module], name)(ops))
        assert set(impl.vendor_ops) <= set(OPERATORS)


def server_args(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_running_requests": 1023, "kv_cache_dtype": "auto", "dcp_size": 1},
        {"max_running_requests": 4000, "dp_size": 4, "enable_dp_attention": True},
        {"max_running_requests": 4000, "attention_backend": "torch_native"},
        {"cuda_graph_config": SimpleNamespace(decode=SimpleNamespace(backend="disabled", max_bs=2048, bs=None))},
    ],
)
def test_acceptable_arguments(fields: dict[str, Any]) -> None:
    assert plugin.check_server_args(server_args(**fields)) == []


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("max_running_requests", {"max_running_requests": 1024}),
        ("max_running_requests", {"max_running_requests": 1024, "attention_backend": "kunlun"}),
        ("max_running_requests", {"max_running_requests": 4096, "dp_size": 2, "enable_dp_attention": True}),
        ("cuda_graph_max_bs", {"cuda_graph_max_bs": 1024}),
        ("cuda_graph_max_bs_decode", {"cuda_graph_max_bs_decode": 1024}),
        (
            "cuda_graph_config.decode",
            {"cuda_graph_config": SimpleNamespace(decode=SimpleNamespace(backend="full", max_bs=None, bs=[1, 1024]))},
        ),
        ("kv_cache_dtype", {"kv_cache_dtype": "fp8_e4m3"}),
        ("dcp_size", {"dcp_size": 2}),
    ],
)
def test_refused_arguments(field: str, fields: dict[str, Any]) -> None:
    (problem,) = plugin.check_server_args(server_args(**fields))
    assert problem.field == field
    assert problem.remedy.startswith("--")
