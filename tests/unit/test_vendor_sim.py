"""The software Kunlun against plain float32 references, and against its own contract."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kunlun_backend.vendor import _sim_plan, sim, xpu  # noqa: E402
from kunlun_backend.vendor.contract import CONTRACT, OPERATORS, ContractError  # noqa: E402

UNLIMITED = 1 << 30
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DTYPES = list(TOLERANCE)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def ops() -> Any:
    return sim.bind()


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape).to(dtype)


def close(actual: Any, expected: Any, dtype: Any) -> None:
    torch.testing.assert_close(actual.float(), expected.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


# ---- the table -----------------------------------------------------------------------------------


def test_table_has_every_contract_operator(ops: Any) -> None:
    assert ops.missing == ()
    assert set(sim.OPERATORS) == set(CONTRACT)
    for name in OPERATORS:
        assert callable(getattr(ops, name))
    assert "logit_cap" in ops.features
    with pytest.raises(AttributeError, match="no operator of the vendor contract"):
        ops.nonexistent  # noqa: B018


@pytest.fixture
def fake_wheels(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    kunlun_ops = types.ModuleType("kunlun_ops")
    for name in ("rmsnorm", "swiglu", "reshape_and_cache", "prefill_attention", "speculative_attention"):
        setattr(kunlun_ops, name, lambda *args, **kwargs: None)
    monkeypatch.setitem(sys.modules, "kunlun_ops", kunlun_ops)
    monkeypatch.setitem(sys.modules, "xspeedgate_ops", types.ModuleType("xspeedgate_ops"))
    return kunlun_ops


def test_xpu_hands_out_the_wheels_own_functions_and_names_the_missing(fake_wheels: types.ModuleType) -> None:
    table = xpu.bind()
    assert table.rmsnorm is fake_wheels.rmsnorm
    assert table.missing == (
        "kunlun_ops.add_rmsnorm",
        "torch.ops.xspeedgate_ops.flashinfer_rotary_embedding",
    )
    assert table.features == frozenset()
    with pytest.raises(AttributeError, match=r"kunlun_ops\.add_rmsnorm"):
        table.add_rmsnorm  # noqa: B018


def test_xpu_without_wheels_raises_the_loaders_error() -> None:
    with pytest.raises(ImportError):
        xpu.bind()


def test_xpu_versions_reads_metadata() -> None:
    versions = xpu.versions()
    assert versions["torch"]
    assert versions["kunlun_ops"] is None


# ---- norm and activation -------------------------------------------------------------------------


def norm_reference(x: Any, weight: Any, eps: float) -> Any:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return normed if weight is None else normed * weight.float()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "hidden"), [(0, 8), (1, 7), (3, 576), (17, 33)])
@pytest.mark.parametrize("weighted", [True, False])
def test_rmsnorm(ops: Any, dtype: Any, tokens: int, hidden: int, weighted: bool) -> None:
    x, weight = random(tokens, hidden, dtype=dtype), random(hidden, dtype=dtype) if weighted else None
    out = torch.full_like(x, float("nan"))
    assert ops.rmsnorm(x, weight, out, 1e-5) is None
    close(out, norm_reference(x, weight, 1e-5), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [0, 1, 9])
def test_add_rmsnorm_updates_the_residual_it_is_given(ops: Any, dtype: Any, tokens: int) -> None:
    x, residual, weight = (
        random(tokens, 40, dtype=dtype),
        random(tokens, 40, dtype=dtype),
        random(40, dtype=dtype),
    )
    out, total = torch.empty_like(x), x + residual
    ops.add_rmsnorm(x, residual, weight, out, 1e-6, False, True, None, None, residual, None)
    assert torch.equal(residual, total)
    close(out, norm_reference(total, weight, 1e-6), dtype)


def test_rmsnorm_rounds_like_huggingface(ops: Any) -> None:
    x, weight = random(5, 64, dtype=torch.bfloat16), random(64, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    ops.rmsnorm(x, weight, out, 1e-5)
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    assert torch.equal(out, weight * wide.to(torch.bfloat16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(0, 4), (1, 1536), (5, 3)])
def test_swiglu(ops: Any, dtype: Any, tokens: int, width: int) -> None:
    x, y = random(tokens, 2 * width, dtype=dtype), torch.empty(tokens, width, dtype=dtype)
    ops.swiglu(x=x, y=y)
    gate, up = x.float().chunk(2, -1)
    close(y, gate * torch.sigmoid(gate) * up, dtype)


# ---- rotary --------------------------------------------------------------------------------------


def rotary_reference(x: Any, positions: Any, cache: Any, rotary_dim: int, neox: bool) -> Any:
    out, half = x.float().clone(), rotary_dim // 2
    cos, sin = cache.float()[positions, None, :half], cache.float()[positions, None, half:]
    first = slice(0, half) if neox else slice(0, rotary_dim, 2)
    second = slice(half, rotary_dim) if neox else slice(1, rotary_dim, 2)
    a, b = x.float()[..., first], x.float()[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(("tokens", "head_size", "rotary_dim"), [(0, 8, 8), (1, 64, 64), (256, 16, 16), (7, 32, 8)])
def test_rotary(ops: Any, dtype: Any, neox: bool, tokens: int, head_size: int, rotary_dim: int) -> None:
    angle = random(300, rotary_dim // 2)
    cache, positions = torch.cat((angle.cos(), angle.sin()), -1), torch.randint(0, 300, (tokens,))
    joined = random(tokens, 4 * head_size, dtype=dtype)
    query = joined[:, : 3 * head_size].view(tokens, 3, head_size)
    key = joined[:, 3 * head_size :].view(tokens, 1, head_size)
    before = joined.clone()
    q, k = ops.flashinfer_rotary_embedding(positions, rotary_dim, head_size, cache, neox, query, key, None)
    close(q, rotary_reference(query, positions, cache, rotary_dim, neox), dtype)
    close(k, rotary_reference(key, positions, cache, rotary_dim, neox), dtype)
    assert torch.equal(joined, before), "inputs are left alone"


def test_rotary_rounds_like_huggingface(ops: Any) -> None:
    x = random(6, 3, 16, dtype=torch.bfloat16)
    angle, positions = random(10, 8), torch.arange(6)
    cache = torch.cat((angle.cos(), angle.sin()), -1)
    rotated, _ = ops.flashinfer_rotary_embedding(positions, 16, 16, cache, True, x, x, None)
    cos, sin = (part.repeat(1, 2).to(x.dtype)[:6, None] for part in (angle.cos(), angle.sin()))
    turned = torch.cat((-x[..., 8:], x[..., :8]), -1)
    assert torch.equal(rotated, x * cos + turned * sin)


# ---- cache writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 16])
def test_reshape_and_cache(ops: Any, dtype: Any, block_size: int) -> None:
    k_cache, v_cache = (
        torch.zeros(6, 2, block_size, 8, dtype=dtype),
        torch.zeros(6, 2, block_size, 4, dtype=dtype),
    )
    joined = random(5, 24, dtype=dtype)
    k, v = joined[:, :16].view(5, 2, 8), joined[:, 16:].view(5, 2, 4)
    slots = torch.randperm(6 * block_size)[:5].to(torch.int32)
    ops.reshape_and_cache(k, v, k_cache, v_cache, slots, None, None, 0)
    for token, slot in enumerate(slots.tolist()):
        assert torch.equal(k_cache[slot // block_size, :, slot % block_size], k[token])
        assert torch.equal(v_cache[slot // block_size, :, slot % block_size], v[token])
    assert k_cache.count_nonzero() == k.numel()
    ops.reshape_and_cache(k[:0], v[:0], k_cache, v_cache, slots[:0], None, None, 0)


# ---- attention -----------------------------------------------------------------------------------


def attention_reference(q: Any, k: Any, v: Any, left: int, right: int, scale: float, cap: float, sink: Any) -> Any:
    """q [t, heads, d] as the last positions of k, v [n, kv_heads, d], all in float32."""
    share = q.size(1) // k.size(1)
    k, v = k.float().repeat_interleave(share, 1), v.float().repeat_interleave(share, 1)
    scores = torch.einsum("thd,nhd->htn", q.float(), k) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    position = torch.arange(q.size(0))[:, None] + k.size(0) - q.size(0)
    key = torch.arange(k.size(0))
    scores = scores.masked_fill((key > position + right) | (key < position - left), float("-inf"))
    if sink is not None:
        scores = torch.cat((scores, sink.float().view(-1, 1, 1).expand(-1, q.size(0), 1)), -1)
    return torch.einsum("htn,nhd->thd", scores.softmax(-1)[..., : k.size(0)], v)


class Paged:
    """Requests with random cached keys, scattered over blocks, and their packed form."""

    def __init__(self, lengths: list[int], shape: tuple[int, int, int, int], block_size: int, dtype: Any) -> None:
        self.heads, self.kv_heads, self.dim, self.v_dim = shape
        self.lengths, self.block_size = lengths, block_size
        blocks = [-(-n // block_size) for n in lengths]
        total = sum(blocks) + 3
        self.k_cache = random(total, self.kv_heads, block_size, self.dim, dtype=dtype)
        self.v_cache = random(total, self.kv_heads, block_size, self.v_dim, dtype=dtype)
        order, self.tables = torch.randperm(total).to(torch.int32), torch.zeros(len(lengths), max(blocks) + 2)
        self.tables = self.tables.to(torch.int32)
        self.keys, self.values = [], []
        for row, count in enumerate(blocks):
            chosen, order = order[:count], order[count:]
            self.tables[row, :count] = chosen
            self.keys.append(self.k_cache[chosen].transpose(1, 2).flatten(0, 1)[: lengths[row]])
            self.values.append(self.v_cache[chosen].transpose(1, 2).flatten(0, 1)[: lengths[row]])


def lod(lengths: list[int]) -> Any:
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


SHAPES = {
    "gqa": (9, 3, 64, 64),
    "mha": (4, 4, 24, 24),
    "mqa": (4, 1, 40, 40),
    "narrow-values": (8, 2, 32, 16),
}
CASES = [
    ("gqa", torch.bfloat16),
    ("gqa", torch.float16),
    ("gqa", torch.float32),
    ("mha", torch.float32),
    ("mqa", torch.bfloat16),
    ("narrow-values", torch.float32),
]
EXTENDS = {
    "one": ([5], [0]),
    "ragged": ([3, 1, 7], [0, 4, 100]),
    "equal": ([20, 20], [0, 0]),
    "mixed": ([70, 1, 1, 2, 0, 40], [90, 64, 600, 3, 0, 0]),
    "large": ([300, 2, 300], [0, 5, 30]),
}
VARIANTS = {
    "plain": (-1, 0.0, False),
    "window": (5, 0.0, False),
    "self-only": (0, 0.0, False),
    "cap": (-1, 5.0, False),
    "sink": (-1, 0.0, True),
    "all": (37, 5.0, True),
}


@pytest.mark.parametrize(("shape", "dtype"), CASES)
@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("extend", EXTENDS)
def test_prefill_attention(ops: Any, shape: str, extend: str, variant: str, block_size: int, dtype: Any) -> None:
    new, cached = EXTENDS[extend]
    window, cap, with_sink = VARIANTS[variant]
    paged = Paged([a + b for a, b in zip(new, cached, strict=True)], SHAPES[shape], block_size, dtype)
    q = random(sum(new), paged.heads, paged.dim, dtype=dtype)
    sink = random(paged.heads) if with_sink else None
    q_lod, kv_lod = lod(new), lod(paged.lengths)
    left, scale = window if window >= 0 else UNLIMITED, paged.dim**-0.5
    expected = [
        attention_reference(part, k, v, left, 0, scale, cap, sink)
        for part, k, v in zip(q.split(new), paged.keys, paged.values, strict=True)
    ]
    for cached_keys in (True, False):
        k = paged.k_cache if cached_keys else torch.cat(paged.keys)
        v = paged.v_cache if cached_keys else torch.cat(paged.values)
        tables = paged.tables if cached_keys else None
        out = torch.full((sum(new), paged.heads, paged.v_dim), float("nan"), dtype=dtype)
        ops.prefill_attention(
            q, k, v, out, True, cached_keys, tables, q_lod, q_lod, kv_lod, kv_lod,
            None, None, window, 0, sink, logit_cap=cap,
        )  # fmt: skip
        close(out, torch.cat(expected), dtype)


@pytest.mark.parametrize("window", [(-1, -1), (3, 5)])
@pytest.mark.parametrize("extend", EXTENDS)
def test_prefill_attention_without_causality(ops: Any, extend: str, window: tuple[int, int]) -> None:
    new, cached = EXTENDS[extend]
    paged = Paged([a + b for a, b in zip(new, cached, strict=True)], SHAPES["gqa"], 1, torch.float32)
    q, q_lod, kv_lod = random(sum(new), 9, 64), lod(new), lod(paged.lengths)
    left, right = (bound if bound >= 0 else UNLIMITED for bound in window)
    out = torch.empty(sum(new), 9, 64)
    ops.prefill_attention(
        q, paged.k_cache, paged.v_cache, out, False, True, paged.tables, q_lod, q_lod, kv_lod, kv_lod,
        swa_left=window[0], swa_right=window[1],
    )  # fmt: skip
    parts = zip(q.split(new), paged.keys, paged.values, strict=True)
    expected = [attention_reference(part, k, v, left, right, 0.125, 0.0, None) for part, k, v in parts]
    close(out, torch.cat(expected), torch.float32)


@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("variant", ["plain", "window", "sink"])
def test_long_prompt_after_a_long_prefix(ops: Any, variant: str, block_size: int) -> None:
    """Large enough for the merge of prefix pieces, which no other case reaches."""
    window, cap, with_sink = VARIANTS[variant]
    paged = Paged([5300], (2, 1, 16, 16), block_size, torch.float32)
    q, sink = random(200, 2, 16), random(2) if with_sink else None
    out, q_lod, kv_lod = torch.empty_like(q), lod([200]), lod([5300])
    ops.prefill_attention(
        q, paged.k_cache, paged.v_cache, out, True, True, paged.tables, q_lod, q_lod, kv_lod, kv_lod,
        None, None, window, 0, sink, logit_cap=cap,
    )  # fmt: skip
    left = window if window >= 0 else UNLIMITED
    expected = attention_reference(q, paged.keys[0], paged.values[0], left, 0, 0.25, cap, sink)
    close(out, expected, torch.float32)


@pytest.mark.parametrize(("shape", "dtype"), CASES)
@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("q_len", [1, 3, 17])
def test_speculative_attention(ops: Any, shape: str, q_len: int, variant: str, block_size: int, dtype: Any) -> None:
    window, cap, with_sink = VARIANTS[variant]
    lengths = [17, 600, 18, 333, 64, 64]
    paged = Paged(lengths, SHAPES[shape], block_size, dtype)
    q = random(len(lengths), q_len, paged.heads, paged.dim, dtype=dtype)
    out = torch.full((*q.shape[:3], paged.v_dim), float("nan"), dtype=dtype)
    sink, lens = random(paged.heads) if with_sink else None, torch.tensor(lengths, dtype=torch.int32)
    ops.speculative_attention(
        out, q, paged.k_cache, paged.v_cache, lens, lens, len(lengths), q_len, 4096, paged.heads, paged.dim,
        0.3, paged.kv_heads, block_size, paged.tables.size(1), window, paged.tables, sink, logit_cap=cap,
    )  # fmt: skip
    left = window if window >= 0 else UNLIMITED
    for row, (k, v) in enumerate(zip(paged.keys, paged.values, strict=True)):
        close(out[row], attention_reference(q[row], k, v, left, 0, 0.3, cap, sink), dtype)


def decode_arguments(batch: int = 2, **changes: Any) -> dict[str, Any]:
    lens = torch.full((batch,), 3, dtype=torch.int32)
    arguments = {
        "out": torch.empty(batch, 1, 4, 8),
        "q": random(batch, 1, 4, 8),
        "k_cache": random(8, 2, 1, 8),
        "v_cache": random(8, 2, 1, 8),
        "context_lens_cpu": lens,
        "context_lens_xpu": lens,
        "batch_num": batch,
        "qlen": 1,
        "max_context_len": 8,
        "head_num": 4,
        "head_dim": 8,
        "scale": 1.0,
        "kv_head_num": 2,
        "block_size": 1,
        "max_num_blocks_per_seq": 3,
        "max_window_size": -1,
        "block_tables": torch.zeros(batch, 3, dtype=torch.int32),
    }
    return arguments | changes


def test_lengths_that_change_in_place_are_seen(ops: Any) -> None:
    """Captured steps refresh their tables in place; plans must not outlive the lengths they came from."""
    arguments = decode_arguments()
    arguments["block_tables"].copy_(torch.arange(6).view(2, 3))
    ops.speculative_attention(**arguments)
    arguments["context_lens_cpu"].copy_(torch.tensor([1, 3]))
    ops.speculative_attention(**arguments)
    torch.testing.assert_close(arguments["out"][0, 0], arguments["v_cache"][0, :, 0].repeat_interleave(2, 0))


def test_empty_batches(ops: Any) -> None:
    ops.speculative_attention(**decode_arguments(batch=0))
    empty, nothing = lod([]), torch.empty(0, 4, 8)
    ops.prefill_attention(
        nothing,
        torch.empty(0, 2, 8),
        torch.empty(0, 2, 8),
        nothing,
        True,
        False,
        None,
        empty,
        empty,
        empty,
        empty,
    )


def test_split_by_length_saves_padding_only_where_it_pays() -> None:
    lengths = [600, 64, 590, 60]
    cut = _sim_plan.split_by_length(range(4), lengths.__getitem__, unit=100, overhead=1000)
    assert [sorted(run) for run in cut] == [[0, 2], [1, 3]]
    kept = _sim_plan.split_by_length(range(4), lengths.__getitem__, unit=1, overhead=10_000)
    assert [sorted(run) for run in kept] == [[0, 1, 2, 3]]


# ---- refusals ------------------------------------------------------------------------------------


def refused(argument: str, call: Any) -> ContractError:
    with pytest.raises(ContractError) as caught:
        call()
    error = caught.value
    assert argument in error.argument
    assert error.operator in {contract.full_name for contract in CONTRACT.values()}
    for part in (error.operator, error.argument, str(error.value), error.limit, error.remedy):
        assert part in str(error)
    return error


def test_decode_batch_limit(ops: Any) -> None:
    ops.speculative_attention(**decode_arguments(batch=1023))
    error = refused("batch_num", lambda: ops.speculative_attention(**decode_arguments(batch=1024)))
    assert error.limit == "at most 1023"


def test_rotary_token_limit(ops: Any) -> None:
    def call(tokens: int) -> None:
        positions, heads = torch.zeros(tokens, dtype=torch.int64), random(tokens, 1, 8)
        ops.flashinfer_rotary_embedding(positions, 8, 8, random(4, 8), True, heads, heads, None)

    call(256)
    refused("tokens", lambda: call(257))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("dtype of q", {"q": torch.empty(2, 1, 4, 8, dtype=torch.float64)}),
        ("dtype of out", {"out": torch.empty(2, 1, 4, 8, dtype=torch.bfloat16)}),
        ("layout of out", {"out": torch.empty(2, 1, 8, 4).transpose(2, 3)}),
        ("layout of q", {"q": torch.empty(2, 1, 8, 4).transpose(2, 3)}),
        ("dtype of k", {"k_cache": torch.empty(8, 2, 1, 8, dtype=torch.float16)}),
        ("layout of v_cache", {"v_cache": torch.empty(2, 8, 1, 8).transpose(0, 1)}),
        ("rank of k_cache", {"k_cache": torch.empty(8, 2, 8)}),
        ("head dimension", {"k_cache": torch.empty(8, 2, 1, 4)}),
        ("heads", {"k_cache": torch.empty(8, 3, 1, 8), "v_cache": torch.empty(8, 3, 1, 8), "kv_head_num": 3}),
        ("kv_head_num", {"block_size": 16}),
        ("context_lens_cpu", {"context_lens_cpu": torch.tensor([3, 3])}),
        ("context_lens_cpu", {"context_lens_cpu": torch.tensor([3, 0], dtype=torch.int32)}),
        ("context_lens_cpu", {"max_context_len": 2}),
        ("dtype of context_lens_xpu", {"context_lens_xpu": torch.tensor([3, 3])}),
        ("dtype of block_tables", {"block_tables": torch.zeros(2, 3, dtype=torch.int64)}),
        ("shape of block_tables", {"block_tables": torch.zeros(2, 2, dtype=torch.int32)}),
        ("shape of block_tables", {"max_num_blocks_per_seq": 4}),
        ("shape of sink", {"sink": torch.zeros(3)}),
        ("shape of q", {"head_dim": 16}),
    ],
)
def test_speculative_attention_refuses(ops: Any, argument: str, changes: dict[str, Any]) -> None:
    refused(argument, lambda: ops.speculative_attention(**decode_arguments(**changes)))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("context_qlen_lod_cpu", {"context_qlen_lod_cpu": torch.tensor([0, 4])}),
        ("context_qlen_lod_cpu", {"context_qlen_lod_cpu": torch.tensor([0, 3], dtype=torch.int32)}),
        ("dtype of context_kvlen_lod_xpu", {"context_kvlen_lod_xpu": torch.tensor([0, 4])}),
        ("shape of k", {"k": torch.empty(5, 2, 8)}),
        ("block_table", {"block_table": torch.zeros(1, 4, dtype=torch.int32)}),
        ("rank of k_cache", {"is_prefix_cache": True}),
        ("alibi_slopes", {"alibi_slopes": torch.zeros(4)}),
        ("softmax_lse", {"softmax_lse": torch.zeros(4)}),
    ],
)
def test_prefill_attention_refuses(ops: Any, argument: str, changes: dict[str, Any]) -> None:
    table = lod([4])
    arguments = {
        "q": random(4, 4, 8),
        "k": random(4, 2, 8),
        "v": random(4, 2, 8),
        "out": torch.empty(4, 4, 8),
        "is_causal": True,
        "is_prefix_cache": False,
        "block_table": None,
        "context_qlen_lod_cpu": table,
        "context_qlen_lod_xpu": table,
        "context_kvlen_lod_cpu": table,
        "context_kvlen_lod_xpu": table,
    }
    ops.prefill_attention(**arguments)
    refused(argument, lambda: ops.prefill_attention(**(arguments | changes)))


def test_norms_refuse(ops: Any) -> None:
    x, weight = random(4, 8), random(8)
    out = torch.empty_like(x)
    refused("rank of x", lambda: ops.rmsnorm(x[0], weight, out[0], 1e-5))
    refused("layout of x", lambda: ops.rmsnorm(random(8, 4).T, weight, out, 1e-5))
    refused("dtype of weight", lambda: ops.rmsnorm(x, weight.half(), out, 1e-5))
    refused("dtype of x", lambda: ops.rmsnorm(x.double(), weight, out, 1e-5))
    refused("shape of out", lambda: ops.rmsnorm(x, weight, out[:2], 1e-5))
    refused("dtype of residual", lambda: add_norm(ops, residual=x.half()))
    refused("reserved_6", lambda: add_norm(ops, reserved_6=False))
    refused("reserved_8", lambda: add_norm(ops, reserved_8=x))


def add_norm(ops: Any, **changes: Any) -> None:
    x = random(4, 8)
    arguments = dict.fromkeys(CONTRACT["add_rmsnorm"].arguments) | CONTRACT["add_rmsnorm"].fixed
    arguments |= {"x": x, "residual": x.clone(), "residual_output": x.clone(), "out": x.clone()}
    ops.add_rmsnorm(**(arguments | {"weight": x[0], "eps": 1e-5} | changes))


def test_swiglu_refuses(ops: Any) -> None:
    refused("last dimension", lambda: ops.swiglu(random(2, 5), random(2, 2)))
    refused("shape of y", lambda: ops.swiglu(random(2, 8), random(2, 3)))
    refused("layout of x", lambda: ops.swiglu(random(8, 2).T, random(2, 4)))


def test_reshape_and_cache_refuses(ops: Any) -> None:
    k, cache, slots = random(2, 2, 8), torch.zeros(4, 2, 1, 8), torch.zeros(2, dtype=torch.int32)
    refused("slot_mapping", lambda: ops.reshape_and_cache(k, k, cache, cache, slots.long(), None, None, 0))
    refused("slot_mapping", lambda: ops.reshape_and_cache(k, k, cache, cache, slots[:1], None, None, 0))
    refused("dtype of k", lambda: ops.reshape_and_cache(k.half(), k, cache, cache, slots, None, None, 0))
    refused("quant_mode", lambda: ops.reshape_and_cache(k, k, cache, cache, slots, None, None, 1))
    refused("shape of v", lambda: ops.reshape_and_cache(k, random(2, 2, 4), cache, cache, slots, None, None, 0))
    refused(
        "layout of k",
        lambda: ops.reshape_and_cache(k.mT.contiguous().mT, k, cache, cache, slots, None, None, 0),
    )
    refused("dtype of k_cache", lambda: ops.reshape_and_cache(
        k.to(torch.int8), k, cache.to(torch.int8), cache, slots, None, None, 0
    ))  # fmt: skip


def test_rotary_refuses(ops: Any) -> None:
    positions, heads, cache = torch.zeros(3, dtype=torch.int64), random(3, 2, 8), random(4, 8)
    call = ops.flashinfer_rotary_embedding
    refused("offsets", lambda: call(positions, 8, 8, cache, True, heads, heads, positions))
    refused("rotary_dim", lambda: call(positions, 4, 8, cache, True, heads, heads, None))
    refused("dtype of cos_sin_cache", lambda: call(positions, 8, 8, cache.half(), True, heads, heads, None))
    refused("dtype of key", lambda: call(positions, 8, 8, cache, True, heads, heads.half(), None))
    refused("shape of query", lambda: call(positions, 8, 8, cache, True, heads[:2], heads, None))
    refused("dtype of positions", lambda: call(positions.float(), 8, 8, cache, True, heads, heads, None))
