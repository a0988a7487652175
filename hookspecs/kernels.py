"""Kernels: the vendor's operator library and the operators built on it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hookspecs.markers import Mode, hookspec
from hookspecs.records import DeviceDetection, OpImpl, VendorOps


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that SGLang lets a device replace.

    Attributes:
        name: name used in profiles and listings.
        forward: signature of the function that ``OpImpl.make`` returns.
        meaning: what it computes, in one sentence.
    """

    name: str
    forward: str
    meaning: str


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator(
            name="rms_norm",
            forward="(self, x, residual=None, post_residual_addition=None, quant_linear=None) -> x | (x, residual)",
            meaning="x / rms(x) * weight over the last dimension; with a residual, of x + residual.",
        ),
        Operator(
            name="silu_and_mul",
            forward="(self, x) -> y",
            meaning="silu of the first half of the last dimension times the second half.",
        ),
        Operator(
            name="rotary_embedding",
            forward="(self, positions, query, key, offsets=None, fused_set_kv_buffer_arg=None) -> (query, key)",
            meaning="Rotate query and key by their positions, neox or interleaved.",
        ),
    )
}
"""Operators by name. An ``OpImpl`` for any other name is refused."""


@hookspec(mode=Mode.ONE, since=1, none="No vendor operators; implementations that need some are refused.")
def get_vendor_ops(detection: DeviceDetection) -> VendorOps | None:
    """Hand over the vendor's operator library.

    Asked while the plan is composed, in every process; bound once per worker. A contract operator
    the installed library lacks is reported by name at that moment, not at the first request.

    Args:
        detection: the detection that won; its ``variant`` tells a software device from a real one.

    Returns:
        A record whose ``bind`` produces the table of operators.

    Errors:
        A library that cannot be imported stops startup with exception type and text.

    Example::

        @hookimpl
        def get_vendor_ops():
            return VendorOps(
                library="acme_ops", bind="acme_backend.ops:bind", operators=("norm", "rope"))
    """


@hookspec(mode=Mode.MERGE, since=1, none="Every operator runs SGLang's torch reference.")
def get_op_impls(detection: DeviceDetection) -> Sequence[OpImpl] | None:
    """Offer implementations of operators.

    Asked while the plan is composed; the choice per operator is made once, and what ``make`` returns
    is the very function SGLang calls.

    Args:
        detection: the detection that won.

    Returns:
        Any number of implementations. One plugin may offer several of one operator; the first
        whose provider is not ``"reference"`` is its proposal. A profile chooses another with
        ``ops.<operator>.use = "<provider or plugin>"``.

    Errors:
        An unknown operator, or a vendor operator that is missing, stops startup by name. Two
        plugins with proposals for one operator are a conflict on that operator.

    Example::

        @hookimpl
        def get_op_impls():
            return [OpImpl(
                op="silu_and_mul", make="acme_backend.activation:make", provider="vendor",
                vendor_ops=("swiglu",), dtypes=("bfloat16",))]
    """
