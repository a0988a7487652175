"""Quantization methods."""

from __future__ import annotations

from collections.abc import Mapping

from hookspecs.markers import Mode, hookspec
from hookspecs.records import DeviceDetection, Ref


@hookspec(mode=Mode.MERGE, since=1, none="SGLang's own method of that name, which may need kernels the device lacks.")
def get_quantization_config(detection: DeviceDetection) -> Mapping[str, Ref] | None:
    """Offer quantization methods by name.

    Asked while the plan is composed; SGLang constructs the class in launcher and workers when a
    checkpoint or ``--quantization`` names the method.

    Args:
        detection: the detection that won.

    Returns:
        Method name, one that SGLang knows, to a subclass of its ``QuantizationConfig``.

    Errors:
        A name SGLang does not know stops startup: it has no seam that would ever ask for it.
        A class that is not such a subclass stops startup.

    Example::

        @hookimpl
        def get_quantization_config():
            return {"w8a8_int8": "acme_backend.quantization:AcmeW8A8Int8Config"}
    """
