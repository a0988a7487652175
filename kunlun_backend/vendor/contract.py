"""The vendor's operator contract, as data.

One record per operator this project calls. The records are what the two libraries behind the
contract have in common: ``xpu`` checks the installed wheels against them, ``sim`` implements them,
``kunhook ops`` prints them. The module imports no torch, so a plan can be listed without a device.

Argument names and limits come from public call sites; nothing here was read from the wheels
themselves. Names beginning with ``reserved`` are positions whose meaning is not public and whose
value is always the one in ``OpContract.fixed``.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ContractError(ValueError):
    """An operator was called outside its contract.

    Attributes:
        operator: full name of the operator.
        argument: the offending argument.
        value: what it was.
        limit: what the contract allows.
        remedy: what the caller can do.
    """

    def __init__(self, operator: str, argument: str, value: object, limit: str, remedy: str) -> None:
        super().__init__(f"{operator}: {argument} is {value}; the contract allows {limit}. {remedy}")
        self.operator = operator
        self.argument = argument
        self.value = value
        self.limit = limit
        self.remedy = remedy


class ContractLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The largest value of a quantity that an operator computes correctly."""

    quantity: str
    maximum: int
    source: str


class OpContract(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one vendor operator.

    Attributes:
        name: attribute under which a bound table offers it.
        namespace: where the vendor keeps it, ``"kunlun_ops"`` or ``"torch.ops.xspeedgate_ops"``.
        arguments: argument names in order.
        fixed: arguments that always take one value, with that value.
        optional: trailing arguments a caller may leave out.
        limits: documented limits.
        returns: what it returns; the empty string for out-parameter operators.
        notes: what a reader of a call site should know.
    """

    name: str
    namespace: str
    arguments: tuple[str, ...]
    fixed: dict[str, Any] = {}
    optional: tuple[str, ...] = ()
    limits: tuple[ContractLimit, ...] = ()
    returns: str = ""
    notes: str = ""

    @property
    def full_name(self) -> str:
        """Namespace and name, as people search for it."""
        return f"{self.namespace}.{self.name}"

    def limit(self, quantity: str) -> int:
        """The documented maximum of ``quantity``. Raises KeyError when there is none."""
        for limit in self.limits:
            if limit.quantity == quantity:
                return limit.maximum
        raise KeyError(f"{self.full_name} documents no limit of {quantity!r}")


_KUNLUN = "kunlun_ops"
_XSPEEDGATE = "torch.ops.xspeedgate_ops"

_CONTRACTS = (
    OpContract(
        name="rmsnorm",
        namespace=_KUNLUN,
        arguments=("x", "weight", "out", "eps"),
        notes=(
            "out = x / rms(x) * weight over the last dimension; weight None means ones. x and out are "
            "[tokens, hidden], contiguous, of one dtype. Longer forms exist."
        ),
    ),
    OpContract(
        name="add_rmsnorm",
        namespace=_KUNLUN,
        arguments=(
            "x",
            "residual",
            "weight",
            "out",
            "eps",
            "reserved_5",
            "reserved_6",
            "reserved_7",
            "reserved_8",
            "residual_output",
            "reserved_10",
        ),
        fixed={
            "reserved_5": False,
            "reserved_6": True,
            "reserved_7": None,
            "reserved_8": None,
            "reserved_10": None,
        },
        notes=(
            "residual_output = x + residual; out = its rmsnorm. residual_output may be residual itself. "
            "All tensors are [tokens, hidden], contiguous, of one dtype."
        ),
    ),
    OpContract(
        name="swiglu",
        namespace=_KUNLUN,
        arguments=("x", "y"),
        notes="y = silu(first half of x) * second half. x is [tokens, 2n], y is [tokens, n], contiguous.",
    ),
    OpContract(
        name="reshape_and_cache",
        namespace=_KUNLUN,
        arguments=("k", "v", "k_cache", "v_cache", "slot_mapping", "k_max", "v_max", "quant_mode"),
        fixed={"k_max": None, "v_max": None, "quant_mode": 0},
        notes=(
            "Writes k, v [tokens, kv_heads, dim] to slots of the caches [blocks, kv_heads, block_size, dim]. "
            "slot_mapping is int32 [tokens], slot = block * block_size + offset. Nothing converts dtypes."
        ),
    ),
    OpContract(
        name="prefill_attention",
        namespace=_KUNLUN,
        arguments=(
            "q",
            "k",
            "v",
            "out",
            "is_causal",
            "is_prefix_cache",
            "block_table",
            "context_qlen_lod_cpu",
            "context_qlen_lod_xpu",
            "context_kvlen_lod_cpu",
            "context_kvlen_lod_xpu",
            "alibi_slopes",
            "softmax_lse",
            "swa_left",
            "swa_right",
            "sink",
        ),
        fixed={"alibi_slopes": None, "softmax_lse": None},
        optional=("alibi_slopes", "softmax_lse", "swa_left", "swa_right", "sink"),
        notes=(
            "q and out are [tokens, heads, dim], requests one after another; lods are int32 prefix sums "
            "[requests + 1], on the host and on the device. With is_prefix_cache, k and v are the caches and "
            "block_table int32 [requests, blocks] names the blocks of each request; otherwise k and v are "
            "[tokens, kv_heads, dim] and block_table is None. Queries are the last ones of their request "
            "(bottom-right causal). Scores are scaled by dim ** -0.5; scale q for anything else. swa_left "
            "and swa_right count the keys visible before and after the query's own, -1 is unlimited. sink is "
            "[heads], a logit that takes part in the softmax and contributes no value. Table entries past a "
            "request's length must still name existing blocks."
        ),
    ),
    OpContract(
        name="speculative_attention",
        namespace=_KUNLUN,
        arguments=(
            "out",
            "q",
            "k_cache",
            "v_cache",
            "context_lens_cpu",
            "context_lens_xpu",
            "batch_num",
            "qlen",
            "max_context_len",
            "head_num",
            "head_dim",
            "scale",
            "kv_head_num",
            "block_size",
            "max_num_blocks_per_seq",
            "max_window_size",
            "block_tables",
            "sink",
        ),
        optional=("sink",),
        limits=(ContractLimit(quantity="batch_num", maximum=1023, source="baidu/vLLM-Kunlun issue 477"),),
        notes=(
            "The decode kernel. q and out are [batch, qlen, heads, dim]; context_lens is int32 [batch], the "
            "keys of each request including the new ones. max_window_size counts the keys visible before the "
            "query's own, -1 is unlimited. Table entries past a request's length must name existing blocks."
        ),
    ),
    OpContract(
        name="flashinfer_rotary_embedding",
        namespace=_XSPEEDGATE,
        arguments=(
            "positions",
            "rotary_dim",
            "head_size",
            "cos_sin_cache",
            "is_neox_style",
            "query",
            "key",
            "offsets",
        ),
        fixed={"offsets": None},
        limits=(ContractLimit(quantity="tokens", maximum=256, source="chunking in baidu-baige/sglang-kunlun"),),
        returns="(query, key)",
        notes=(
            "Rotates the first rotary_dim of every head. positions is integer [tokens]; cos_sin_cache is "
            "[positions, rotary_dim], cos then sin, float32 or the dtype of query. query and key are "
            "[tokens, heads, head_size]. Results are wrong, not refused, beyond 256 tokens on the card."
        ),
    ),
)

CONTRACT: dict[str, OpContract] = {contract.name: contract for contract in _CONTRACTS}
"""Every contract operator by name."""

OPERATORS: tuple[str, ...] = tuple(CONTRACT)
"""Names of the contract operators, in the order of the records."""
