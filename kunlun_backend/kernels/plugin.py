"""The ``kunlun-kernels`` plugin: attention backend and operators of the Kunlun device.

Everything heavy is named by reference, so that a plan can be listed without torch or SGLang.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hookspecs import ArgProblem, AttnBackend, DeviceDetection, OpImpl, PluginInfo, VendorOps, hookimpl
from kunlun_backend.device.detection import DEVICE, SIM
from kunlun_backend.vendor.contract import CONTRACT, OPERATORS

plugin_info = PluginInfo(
    summary="attention backend and operators on the vendor's kernels",
    device=DEVICE,
    sglang=">=0.5.17,<0.6",
    libraries=("kunlun_ops", "xspeedgate_ops"),
)

_BACKEND_FIELDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
_DECODE_BATCH = CONTRACT["speculative_attention"].limit("batch_num")
_ROTARY_TOKENS = CONTRACT["flashinfer_rotary_embedding"].limit("tokens")


@hookimpl
def get_attn_backend_cls() -> dict[str, AttnBackend]:
    """The ``kunlun`` backend."""
    return {
        "kunlun": AttnBackend(
            cls="kunlun_backend.kernels.attention:KunlunAttnBackend",
            summary="MHA and GQA, paged, sliding window, soft-cap where the library has it, sinks",
        )
    }


@hookimpl
def get_default_attn_backend() -> str:
    """``kunlun`` unless the user names another."""
    return "kunlun"


@hookimpl
def get_vendor_ops(detection: DeviceDetection) -> VendorOps:
    """The software library or the installed wheels, by the device that was found."""
    if detection.variant == SIM:
        return VendorOps(
            library="sim", bind="kunlun_backend.vendor.sim:bind", operators=OPERATORS, features=("logit_cap",)
        )
    return VendorOps(library="kunlun_ops", bind="kunlun_backend.vendor.xpu:bind", operators=OPERATORS)


@hookimpl
def get_op_impls() -> tuple[OpImpl, ...]:
    """Vendor and reference implementations of the three operators."""
    return (
        OpImpl(
            op="rms_norm",
            make="kunlun_backend.kernels.norm:make_vendor",
            provider="vendor",
            vendor_ops=("rmsnorm", "add_rmsnorm"),
            notes="norms with a partial variance, float32 residual or mixed dtypes run the reference",
        ),
        OpImpl(op="rms_norm", make="kunlun_backend.kernels.norm:make_reference", provider="reference"),
        OpImpl(
            op="silu_and_mul",
            make="kunlun_backend.kernels.activation:make_vendor",
            provider="vendor",
            vendor_ops=("swiglu",),
        ),
        OpImpl(op="silu_and_mul", make="kunlun_backend.kernels.activation:make_reference", provider="reference"),
        OpImpl(
            op="rotary_embedding",
            make="kunlun_backend.kernels.rotary:make_vendor",
            provider="vendor",
            vendor_ops=("flashinfer_rotary_embedding",),
            notes=f"longer inputs are rotated {_ROTARY_TOKENS} tokens at a time, the operator's limit",
        ),
        OpImpl(op="rotary_embedding", make="kunlun_backend.kernels.rotary:make_reference", provider="reference"),
    )


@hookimpl
def check_server_args(server_args: Any) -> list[ArgProblem]:
    """Refuse decode batches, KV dtypes and parallelism the attention operators cannot run.

    Another attention backend brings limits of its own, so the check is silent then.
    """
    chosen = {getattr(server_args, name, None) for name in _BACKEND_FIELDS} - {None}
    if chosen and "kunlun" not in chosen:
        return []
    problems = [
        ArgProblem(
            field=field,
            value=str(value),
            message=f"speculative_attention, the decode kernel, takes at most {_DECODE_BATCH} requests",
            remedy=f"{flag} {_DECODE_BATCH}",
        )
        for field, flag, value in _batch_sizes(server_args)
        if value > _DECODE_BATCH
    ]
    kv_dtype = getattr(server_args, "kv_cache_dtype", None) or "auto"
    if kv_dtype not in ("auto", "bf16", "bfloat16", "float16"):
        problems.append(
            ArgProblem(
                field="kv_cache_dtype",
                value=str(kv_dtype),
                message="the attention operators read keys and values in the dtype of the activations only",
                remedy="--kv-cache-dtype auto",
            )
        )
    dcp_size = getattr(server_args, "dcp_size", None) or 1
    if dcp_size > 1:
        problems.append(
            ArgProblem(
                field="dcp_size",
                value=str(dcp_size),
                message="the attention backend does not split keys between ranks",
                remedy="--dcp-size 1",
            )
        )
    return problems


def _batch_sizes(server_args: Any) -> Iterator[tuple[str, str, int]]:
    """Every bound on the decode batch the arguments state: (field, flag, value)."""
    running = getattr(server_args, "max_running_requests", None)
    if running:
        # With data-parallel attention SGLang divides the number; each rank decodes its own share.
        shares = server_args.dp_size if getattr(server_args, "enable_dp_attention", False) else 1
        yield "max_running_requests", "--max-running-requests", -(-running // shares)
    for field in ("cuda_graph_max_bs", "cuda_graph_max_bs_decode"):
        largest = getattr(server_args, field, None)
        if largest:
            yield field, "--" + field.replace("_", "-"), largest
    decode = getattr(getattr(server_args, "cuda_graph_config", None), "decode", None)
    if decode is not None and getattr(decode, "backend", "disabled") != "disabled":
        sizes = [getattr(decode, "max_bs", None) or 0, *(getattr(decode, "bs", None) or ())]
        yield "cuda_graph_config.decode", "--cuda-graph-max-bs-decode", max(sizes)
