"""The object that ``bind`` returns: one attribute per operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kunlun_backend.vendor.contract import CONTRACT, OPERATORS


class VendorTable:
    """Bound operators of one library.

    Every present operator is an attribute holding the library's own callable, so a caller that keeps
    it pays nothing for the table. Asking for an absent one names it.

    Attributes:
        library: ``"sim"`` or ``"xpu"``.
        features: optional abilities of the library, for example ``"logit_cap"``.
        missing: full names of contract operators the library lacks.
    """

    library: str
    features: frozenset[str]
    missing: tuple[str, ...]

    def __init__(self, library: str, operators: Mapping[str, Callable[..., Any]], features: tuple[str, ...]) -> None:
        unknown = sorted(set(operators) - set(OPERATORS))
        if unknown:
            raise ValueError(f"not operators of the contract: {', '.join(unknown)}")
        self.library = library
        self.features = frozenset(features)
        self.missing = tuple(CONTRACT[name].full_name for name in OPERATORS if name not in operators)
        self.__dict__.update(operators)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Only reached for names that are not there.
        contract = CONTRACT.get(name)
        if contract is None:
            raise AttributeError(f"{name!r} is no operator of the vendor contract")
        raise AttributeError(f"the installed vendor library has no {contract.full_name}")

    def __repr__(self) -> str:
        return f"VendorTable(library={self.library!r}, missing={self.missing!r})"
