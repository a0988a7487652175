"""The attention backend on SGLang's own pools and layers, against a naive float32 reference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sglang")

from sglang.srt.layers.attention.base_attn_backend import AttentionBackend  # noqa: E402
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention  # noqa: E402
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool  # noqa: E402
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardMode  # noqa: E402

from kunlun_backend.kernels.attention import KunlunAttnBackend  # noqa: E402
from kunlun_backend.kernels.plugin import get_attn_backend_cls  # noqa: E402
from kunlun_backend.vendor import sim  # noqa: E402
from kunlun_backend.vendor.table import VendorTable  # noqa: E402

CONTEXT, REQUESTS, SLOTS = 1024, 8, 4096
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def _seed() -> Any:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


class VendorPool:
    """A pool in the vendor's own layout, as a memory plugin would bring one."""

    contract_block_size = 16

    def __init__(self, heads: int, dim: int, v_dim: int, layers: int, dtype: Any) -> None:
        self.dtype, self.layer_num, self.start_layer = dtype, layers, 0
        self.k = [torch.zeros(SLOTS // 16, heads, 16, dim, dtype=dtype) for _ in range(layers)]
        self.v = [torch.zeros(SLOTS // 16, heads, 16, v_dim, dtype=dtype) for _ in range(layers)]

    def get_key_buffer(self, layer_id: int) -> Any:
        return self.k[layer_id]

    def get_value_buffer(self, layer_id: int) -> Any:
        return self.v[layer_id]


class World:
    """A model of a few attention layers with its pools, and what every request has said so far."""

    def __init__(
        self,
        heads: tuple[int, int] = (9, 3),
        dims: tuple[int, int] = (64, 64),
        windows: tuple[int, ...] = (-1,),
        dtype: Any = torch.float32,
        page_size: int = 1,
        pool: str = "mha",
        ops: Any = None,
        **layer: Any,
    ) -> None:
        (self.heads, self.kv_heads), (self.dim, self.v_dim), self.dtype = heads, dims, dtype
        self.page_size, self.windows, self.cap = page_size, windows, layer.get("logit_cap", 0.0)
        self.scale = layer.pop("scaling", self.dim**-0.5)
        self.layers = [
            RadixAttention(
                self.heads, self.dim, self.scale, self.kv_heads, i,
                v_head_dim=self.v_dim, sliding_window_size=window, **layer,
            )
            for i, window in enumerate(windows)
        ]  # fmt: skip
        # SGLang reads a window of 0 as none.
        self.req_to_token = torch.zeros(REQUESTS, CONTEXT, dtype=torch.int32)
        self.free = torch.randperm(SLOTS // page_size - 1) + 1
        self.runner = SimpleNamespace(
            model=torch.nn.ModuleList(self.layers),
            token_to_kv_pool=self._pool(pool),
            req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token),
            device="cpu",
            dtype=dtype,
            kv_cache_dtype=dtype,
            use_mla_backend=False,
        )
        self.backend = KunlunAttnBackend(self.runner, ops=ops or sim.bind())
        self.spoken: list[int] = [0] * REQUESTS
        self.keys = [[torch.empty(0, self.kv_heads, self.dim, dtype=dtype) for _ in windows] for _ in range(REQUESTS)]
        self.values = [
            [torch.empty(0, self.kv_heads, self.v_dim, dtype=dtype) for _ in windows] for _ in range(REQUESTS)
        ]

    def _pool(self, kind: str) -> Any:
        size = {
            "page_size": self.page_size,
            "dtype": self.dtype,
            "head_num": self.kv_heads,
            "head_dim": self.dim,
        }
        size |= {"device": "cpu", "enable_memory_saver": False, "v_head_dim": self.v_dim}
        if kind == "vendor":
            return VendorPool(self.kv_heads, self.dim, self.v_dim, len(self.windows), self.dtype)
        if kind == "mha":
            return MHATokenToKVPool(SLOTS - self.page_size, layer_num=len(self.windows), **size)
        pool = SWAKVPool(
            size=SLOTS - self.page_size,
            size_swa=SLOTS - self.page_size,
            swa_attention_layer_ids=[i for i, window in enumerate(self.windows) if window > 0],
            full_attention_layer_ids=[i for i, window in enumerate(self.windows) if window <= 0],
            **size,
        )
        mapping = torch.cat((torch.zeros(1, dtype=torch.int64), torch.randperm(SLOTS - 1) + 1, torch.tensor([-1])))
        pool.register_mapping(mapping)
        return pool

    def batch(self, mode: ForwardMode, requests: list[int], new: list[int]) -> SimpleNamespace:
        """Allocate slots for ``new`` tokens of each request and describe the step as SGLang does."""
        cached = [self.spoken[request] for request in requests]
        locations = []
        for request, start, count in zip(requests, cached, new, strict=True):
            for position in range(start, start + count):
                if position % self.page_size == 0:
                    page, self.free = int(self.free[0]), self.free[1:]
                    base = page * self.page_size
                else:
                    base = int(self.req_to_token[request, position - 1]) + 1
                self.req_to_token[request, position] = base
                locations.append(base)
        total = torch.tensor([a + b for a, b in zip(cached, new, strict=True)])
        for request, length in zip(requests, total.tolist(), strict=True):
            self.spoken[request] = length
        decode = mode == ForwardMode.DECODE
        return SimpleNamespace(
            forward_mode=mode,
            batch_size=len(requests),
            seq_lens=total,
            seq_lens_cpu=total.clone(),
            req_pool_indices=torch.tensor(requests, dtype=torch.int64),
            out_cache_loc=torch.tensor(locations, dtype=torch.int64),
            extend_seq_lens=None if decode else torch.tensor(new, dtype=torch.int32),
            extend_prefix_lens=None if decode else torch.tensor(cached, dtype=torch.int32),
            extend_seq_lens_cpu=None if decode else new,
            extend_prefix_lens_cpu=None if decode else cached,
        )

    def tensors(self, tokens: int) -> tuple[Any, Any, Any]:
        """q, k, v as slices of one projection, the way models hand them over."""
        widths = [self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.v_dim]
        q, k, v = torch.randn(tokens, sum(widths)).to(self.dtype).split(widths, -1)
        return q, k.view(-1, self.kv_heads, self.dim), v.view(-1, self.kv_heads, self.v_dim)

    def remember(self, layer: int, requests: list[int], new: list[int], k: Any, v: Any) -> None:
        for request, key, value in zip(requests, k.split(new), v.split(new), strict=True):
            self.keys[request][layer] = torch.cat((self.keys[request][layer], key))
            self.values[request][layer] = torch.cat((self.values[request][layer], value))

    def expected(self, layer: int, requests: list[int], new: list[int], q: Any, sinks: Any, causal: bool = True) -> Any:
        """Attention of each request on its own, in float32."""
        results = []
        for request, query in zip(requests, q.view(-1, self.heads, self.dim).split(new), strict=True):
            share = self.heads // self.kv_heads
            k = self.keys[request][layer].float().repeat_interleave(share, 1)
            v = self.values[request][layer].float().repeat_interleave(share, 1)
            scores = torch.einsum("thd,nhd->htn", query.float(), k) * self.scale
            if self.cap:
                scores = self.cap * torch.tanh(scores / self.cap)
            position = torch.arange(query.size(0))[:, None] + k.size(0) - query.size(0)
            key = torch.arange(k.size(0))
            hidden = (key > position) if causal else torch.zeros_like(position + key, dtype=torch.bool)
            if self.windows[layer] > 0:
                hidden = hidden | (key < position - self.windows[layer])
            scores = scores.masked_fill(hidden, float("-inf"))
            if sinks is not None:
                scores = torch.cat((scores, sinks.float().view(-1, 1, 1).expand(-1, query.size(0), 1)), -1)
            results.append(torch.einsum("htn,nhd->thd", scores.softmax(-1)[..., : k.size(0)], v))
        return torch.cat(results).flatten(1)

    def step(
        self, mode: ForwardMode, requests: list[int], new: list[int], sinks: Any = None, graph: bool = False
    ) -> None:
        """One forward of every layer, checked against the reference."""
        batch = self.batch(mode, requests, new)
        (self.backend.init_forward_metadata_out_graph if graph else self.backend.init_forward_metadata)(batch)
        options = {} if sinks is None else {"sinks": sinks}
        for i, layer in enumerate(self.layers):
            q, k, v = self.tensors(sum(new))
            out = self.backend.forward(q, k.clone(), v.clone(), layer, batch, **options)
            self.remember(i, requests, new, k, v)
            expected = self.expected(i, requests, new, q, sinks)
            assert out.dtype == self.dtype
            tolerance = TOLERANCE[self.dtype]
            torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


def converse(world: World, sinks: Any = None) -> None:
    """Prompts, a chunk after a cached prefix, decode, a mixed step, decode of a subset."""
    world.step(ForwardMode.EXTEND, [0, 1, 2], [40, 1, 130], sinks)
    world.step(ForwardMode.EXTEND, [2, 3], [70, 33], sinks)
    world.step(ForwardMode.DECODE, [0, 1, 2, 3], [1] * 4, sinks)
    world.step(ForwardMode.MIXED, [4, 0, 3, 1], [300, 1, 1, 1], sinks)
    world.step(ForwardMode.DECODE, [4, 1], [1, 1], sinks)
    world.step(ForwardMode.DECODE, [4, 1], [1, 1], sinks)


VARIANTS: dict[str, dict[str, Any]] = {
    "gqa": {},
    "mha": {"heads": (4, 4)},
    "mqa": {"heads": (4, 1), "dims": (40, 40)},
    "narrow-values": {"dims": (64, 32)},
    "window": {"windows": (16, -1, 16)},
    "soft-cap": {"logit_cap": 4.0},
    "own-scale": {"scaling": 0.25},
    "combined": {"windows": (-1, 9), "logit_cap": 4.0, "scaling": 0.3},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_conversation(variant: str, dtype: Any) -> None:
    converse(World(dtype=dtype, **VARIANTS[variant]))


@pytest.mark.parametrize("pool", ["mha", "vendor"])
@pytest.mark.parametrize("variant", ["gqa", "combined"])
def test_pages(variant: str, pool: str) -> None:
    converse(World(page_size=16, pool=pool, **VARIANTS[variant]))


@pytest.mark.parametrize("variant", ["gqa", "combined"])
def test_sinks(variant: str) -> None:
    converse(World(dtype=torch.bfloat16, **VARIANTS[variant]), sinks=torch.randn(9).to(torch.bfloat16))


def test_layers_in_a_sliding_window_pool() -> None:
    converse(World(windows=(-1, 12, -1, 12), pool="swa"))


def test_captured_decode_refreshes_the_same_tables() -> None:
    world = World(windows=(-1, 12))
    world.step(ForwardMode.EXTEND, [0, 1, 2], [40, 3, 130])
    world.backend.init_cuda_graph_state(4, 4)
    assert world.backend.get_cuda_graph_seq_len_fill_value() == 1
    world.step(ForwardMode.DECODE, [0, 1, 2], [1] * 3, graph=True)
    before = [(view.tables.data_ptr(), view.lens_cpu.data_ptr()) for view in world.backend.forward_metadata.views]
    world.step(ForwardMode.DECODE, [2, 1, 0], [1] * 3, graph=True)
    after = [(view.tables.data_ptr(), view.lens_cpu.data_ptr()) for view in world.backend.forward_metadata.views]
    assert before == after
    # A padded request, as the graph runner adds them: one token, the request slot 0.
    batch = world.batch(ForwardMode.DECODE, [1, 2], [1, 1])
    batch.batch_size, batch.seq_lens = 3, torch.cat((batch.seq_lens, torch.tensor([1])))
    batch.seq_lens_cpu, batch.req_pool_indices = batch.seq_lens.clone(), torch.tensor([1, 2, 0])
    batch.out_cache_loc = torch.cat((batch.out_cache_loc, torch.tensor([0])))
    world.backend.init_forward_metadata_out_graph(batch, in_capture=True)
    q, k, v = world.tensors(3)
    out = world.backend.forward(q, k, v, world.layers[0], batch)
    world.remember(0, [1, 2], [1, 1], k[:2], v[:2])
    torch.testing.assert_close(out[:2], world.expected(0, [1, 2], [1, 1], q[:2], None), atol=2e-5, rtol=2e-5)
    with pytest.raises(NotImplementedError, match="EXTEND"):
        world.backend.init_forward_metadata_out_graph(world.batch(ForwardMode.EXTEND, [5], [3]))


def test_keys_already_in_the_cache() -> None:
    """``save_kv_cache=False`` reads what is there, with keys in the call or without."""
    world = World()
    for mode, new in ((ForwardMode.EXTEND, 20), (ForwardMode.EXTEND, 5), (ForwardMode.DECODE, 1)):
        batch = world.batch(mode, [0], [new])
        world.backend.init_forward_metadata(batch)
        q, k, v = world.tensors(new)
        first = world.backend.forward(q, k, v, world.layers[0], batch)
        again = world.backend.forward(q, k, v, world.layers[0], batch, save_kv_cache=False)
        shared = world.backend.forward(q, None, None, world.layers[0], batch, save_kv_cache=False)
        torch.testing.assert_close(again, first)
        torch.testing.assert_close(shared, first)


def test_rows_beyond_the_batch_are_zero() -> None:
    world = World()
    batch = world.batch(ForwardMode.EXTEND, [0, 1], [5, 3])
    world.backend.init_forward_metadata(batch)
    batch.out_cache_loc = torch.cat((batch.out_cache_loc, torch.zeros(4, dtype=torch.int64)))
    world.backend.init_forward_metadata(batch)
    q, k, v = world.tensors(12)
    out = world.backend.forward(q, k, v, world.layers[0], batch)
    world.remember(0, [0, 1], [5, 3], k[:8], v[:8])
    torch.testing.assert_close(out[:8], world.expected(0, [0, 1], [5, 3], q[:8], None), atol=2e-5, rtol=2e-5)
    assert not out[8:].any()


def test_encoder_layers_see_the_whole_request() -> None:
    world = World(attn_type=AttentionType.ENCODER_ONLY)
    batch = world.batch(ForwardMode.EXTEND, [0, 1], [50, 7])
    world.backend.init_forward_metadata(batch)
    q, k, v = world.tensors(57)
    out = world.backend.forward(q, k, v, world.layers[0], batch, save_kv_cache=False)
    world.remember(0, [0, 1], [50, 7], k, v)
    expected = world.expected(0, [0, 1], [50, 7], q, None, causal=False)
    torch.testing.assert_close(out, expected, atol=2e-5, rtol=2e-5)


def test_idle_batches() -> None:
    world = World()
    batch = world.batch(ForwardMode.IDLE, [], [])
    world.backend.init_forward_metadata(batch)
    q, k, v = world.tensors(0)
    assert world.backend.forward(q, k, v, world.layers[0], batch).shape == (0, 9 * 64)


def test_a_layer_reads_no_device_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host copies of lengths are all a layer's call may look at; anything else stalls a real device."""
    world = World()
    world.step(ForwardMode.EXTEND, [0, 1], [20, 30])
    batch = world.batch(ForwardMode.DECODE, [0, 1], [1, 1])
    world.backend.init_forward_metadata(batch)
    tables = {id(view.lens_cpu) for view in world.backend.forward_metadata.views}
    read, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("a tensor was read"))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: read.append(id(self)) or tolist(self))
    world.backend.forward(*world.tensors(2), world.layers[0], batch)
    assert set(read) <= tables


def test_the_plugin_names_this_class() -> None:
    (record,) = get_attn_backend_cls().values()
    assert record.cls == f"{KunlunAttnBackend.__module__}:{KunlunAttnBackend.__qualname__}"
    assert issubclass(KunlunAttnBackend, AttentionBackend)


# ---- refusals ------------------------------------------------------------------------------------


def without(feature: str) -> VendorTable:
    full = sim.bind()
    return VendorTable("other", {name: getattr(full, name) for name in sim.OPERATORS}, tuple(full.features - {feature}))


@pytest.mark.parametrize(
    ("words", "layer"),
    [
        (("layer 0", "cross-attention"), {"is_cross_attention": True}),
        (("layer 0", "decoder_bidirectional"), {"attn_type": AttentionType.DECODER_BIDIRECTIONAL}),
        (("layer 0", "window of 4", "encoder"), {"attn_type": AttentionType.ENCODER_ONLY, "windows": (4,)}),
        (("layer 0", "soft-cap 30.0"), {"logit_cap": 30.0, "ops": without("logit_cap")}),
        (("layer 0", "soft-cap method"), {"logit_cap": 30.0, "logit_capping_method": "other"}),
        (("layer 0", "ALIBI"), {"pos_encoding_mode": "ALIBI"}),
        (("layer 0", "heads (4, 3, 3)"), {"heads": (4, 3)}),
    ],
)
def test_layers_are_refused_while_the_model_loads(words: tuple[str, ...], layer: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError) as caught:
        World(**layer)
    for word in words:
        assert word in str(caught.value)


def test_attributes_set_after_construction_are_refused() -> None:
    world = World()
    world.layers[0].xai_temperature_len = 1024
    with pytest.raises(NotImplementedError, match="layer 0: attention temperature length 1024"):
        KunlunAttnBackend(world.runner, ops=sim.bind())


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("MLA", {"use_mla_backend": True}),
        ("float8_e4m3fn", {"kv_cache_dtype": torch.float8_e4m3fn}),
        ("bfloat16 with torch.float32", {"kv_cache_dtype": torch.bfloat16}),
        ("activations of dtype torch.float64", {"dtype": torch.float64}),
        (
            "speculative decoding EAGLE",
            {"spec_algorithm": SimpleNamespace(is_none=lambda: False, name="EAGLE")},
        ),
        ("dcp_size 2", {"server_args": SimpleNamespace(dcp_size=2)}),
        ("cross-attention", {"model_config": SimpleNamespace(is_encoder_decoder=True)}),
    ],
)
def test_runners_are_refused(words: str, changes: dict[str, Any]) -> None:
    world = World()
    vars(world.runner).update(changes)
    with pytest.raises(NotImplementedError, match=words.replace("(", r"\(")):
        KunlunAttnBackend(world.runner, ops=sim.bind())


def test_chunked_local_attention_is_refused() -> None:
    world = World(use_irope=True)
    world.runner.model_config = SimpleNamespace(attention_chunk_size=8192)
    with pytest.raises(NotImplementedError, match="layer 0: chunked local attention of 8192"):
        KunlunAttnBackend(world.runner, ops=sim.bind())


def test_pools_are_refused() -> None:
    world = World()
    pool = world.runner.token_to_kv_pool
    pool.k_buffer[0] = pool.k_buffer[0].transpose(0, 1)
    with pytest.raises(NotImplementedError, match="KV pool MHATokenToKVPool: layout"):
        KunlunAttnBackend(world.runner, ops=sim.bind())


def test_missing_operators_are_refused_by_name() -> None:
    full = sim.bind()
    ops = VendorTable("other", {"rmsnorm": full.rmsnorm, "prefill_attention": full.prefill_attention}, ())
    with pytest.raises(NotImplementedError, match=r"kunlun_ops\.reshape_and_cache.*kunlun_ops\.speculative_attention"):
        World(ops=ops)


def test_two_windows_under_one_layer_id_are_refused() -> None:
    world = World(windows=(-1, 8))
    world.layers[1].layer_id = 0
    with pytest.raises(NotImplementedError, match="layer 0: two attentions with windows -1 and 8"):
        KunlunAttnBackend(world.runner, ops=sim.bind())


@pytest.mark.parametrize("mode", [ForwardMode.TARGET_VERIFY, ForwardMode.DLLM_EXTEND, ForwardMode.DRAFT_EXTEND_V2])
def test_forward_modes_are_refused(mode: ForwardMode) -> None:
    world = World()
    with pytest.raises(NotImplementedError, match=mode.name):
        world.backend.init_forward_metadata(world.batch(mode, [0], [2]))


def test_unknown_arguments_of_a_call_are_refused() -> None:
    world = World()
    batch = world.batch(ForwardMode.EXTEND, [0], [4])
    world.backend.init_forward_metadata(batch)
    q, k, v = world.tensors(4)
    world.backend.forward(q, k, v, world.layers[0], batch, topk_indices=None, return_lse=False)
    with pytest.raises(NotImplementedError, match="layer 0: argument q_rope of type Tensor"):
        world.backend.forward(q, k, v, world.layers[0], batch, q_rope=q)
