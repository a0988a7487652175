"""Attention on the ACME accelerator."""

from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend


class AcmeAttnBackend(TorchNativeAttnBackend):
    """SGLang's own torch implementation; a real device overrides ``forward_extend`` and ``forward_decode``."""
