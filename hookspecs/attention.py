"""Attention backends."""

from __future__ import annotations

from collections.abc import Mapping

from hookspecs.markers import Mode, hookspec
from hookspecs.records import AttnBackend, DeviceDetection


@hookspec(mode=Mode.MERGE, since=1, none="Only SGLang's own backends exist.")
def get_attn_backend_cls(detection: DeviceDetection) -> Mapping[str, AttnBackend] | None:
    """Offer attention backends by name.

    Asked while the plan is composed, in every process. The names become choices of
    ``--attention-backend``; the class is constructed in the workers.

    Args:
        detection: the detection that won.

    Returns:
        Backend name to record. A name must not be one of SGLang's own.

    Errors:
        Two plugins with one name are a conflict on that name. A class that is not a subclass of
        SGLang's ``AttentionBackend`` stops the worker. A backend asked for a feature it lacks
        raises ``NotImplementedError`` while the model is loaded, never computes a wrong result.

    Example::

        @hookimpl
        def get_attn_backend_cls():
            return {"acme": AttnBackend(cls="acme_backend.attention:AcmeAttnBackend")}
    """


@hookspec(
    mode=Mode.ONE, since=1, none="`torch_native`, SGLang's device-independent backend, is the default.", must_run=True
)
def get_default_attn_backend(detection: DeviceDetection) -> str | None:
    """Name the attention backend used when the user names none.

    Asked while the plan is composed; read in the launcher when SGLang resolves its arguments.

    Args:
        detection: the detection that won.

    Returns:
        A name from ``get_attn_backend_cls`` or one of SGLang's own, such as ``"torch_native"``.

    Errors:
        A name nobody provides stops startup and names the nearest ones.

    Example::

        @hookimpl
        def get_default_attn_backend():
            return "acme"
    """
