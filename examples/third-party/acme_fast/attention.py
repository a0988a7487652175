"""Another attention backend for the Kunlun device."""

from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend


class AcmeFastAttnBackend(TorchNativeAttnBackend):
    """SGLang's own torch implementation under a name of this plugin."""
