"""The vendor's own wheels: ``kunlun_ops`` and ``torch.ops.xspeedgate_ops``.

``bind`` hands out the vendor's functions themselves. What a wheel lacks is reported by name in
``missing``; nothing is replaced and nothing falls back.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from kunlun_backend.vendor.contract import CONTRACT, OPERATORS
from kunlun_backend.vendor.table import VendorTable

FEATURES: tuple[str, ...] = ()
"""Optional abilities. The vendor's argument lists show no soft-cap."""

_DISTRIBUTIONS = ("torch_xmlir", "torch", "kunlun_ops", "xspeedgate_ops", "cocopod", "xpu_flash_ops")


def bind() -> VendorTable:
    """Import the vendor's wheels and look up every contract operator.

    Returns:
        The table; ``missing`` names what the installed wheels lack.

    Raises:
        ImportError, OSError: a wheel is absent or does not load. The message is the loader's own.
    """
    kunlun_ops = import_module("kunlun_ops")
    # Importing the wheel registers the operators with torch; the module object itself is not used.
    import_module("xspeedgate_ops")
    xspeedgate = import_module("torch").ops.xspeedgate_ops
    homes = {"kunlun_ops": kunlun_ops, "torch.ops.xspeedgate_ops": xspeedgate}
    found: dict[str, Callable[..., Any]] = {}
    for name in OPERATORS:
        # torch.ops raises AttributeError for an unknown operator, so getattr's default serves both.
        operator = getattr(homes[CONTRACT[name].namespace], name, None)
        if operator is not None:
            found[name] = operator
    return VendorTable("xpu", found, FEATURES)


def versions() -> dict[str, str | None]:
    """Installed version of each distribution of the vendor stack; None when it is not installed.

    Reads package metadata only and imports nothing.
    """
    found: dict[str, str | None] = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
