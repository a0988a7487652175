"""One operator and one attention backend for a device that somebody else brings."""

from hookspecs import AttnBackend, OpImpl, PluginInfo, hookimpl

plugin_info = PluginInfo(summary="Faster SiLU-and-multiply.", device="kunlun", sglang=">=0.5.17,<0.6")


@hookimpl
def get_op_impls():
    return [OpImpl(op="silu_and_mul", make="acme_fast.activation:make", provider="acme-fast")]


@hookimpl
def get_attn_backend_cls():
    return {"acme_fast": AttnBackend(cls="acme_fast.attention:AcmeFastAttnBackend", summary="one query at a time")}
