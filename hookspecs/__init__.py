"""Hook specifications: the contract between SGLang hardware plugins and ``kunhook``.

Importing this package imports pluggy, msgspec and the standard library, nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from hookspecs import (
    attention,
    cache,
    comm,
    device,
    graph,
    kernels,
    memory,
    metrics,
    quantization,
    server,
    speculative,
    triton,
)
from hookspecs.markers import (
    ENTRY_POINT_GROUP,
    PROJECT,
    SPEC_VERSION,
    Asked,
    ImplMarks,
    Mode,
    SpecMarks,
    hookimpl,
    hookspec,
    impl_marks,
    spec_marks,
)
from hookspecs.records import (
    ArgDefault,
    ArgProblem,
    AttnBackend,
    CapturePolicy,
    CommInitSizing,
    DetectionStage,
    DeviceCapabilities,
    DeviceDetection,
    DeviceRuntime,
    EnvDefault,
    KVTransfer,
    Metric,
    OpImpl,
    OpLimit,
    PluginInfo,
    Ref,
    SpecSupport,
    TritonSupport,
    TritonWorkaround,
    VendorOps,
)

SPEC_MODULES: tuple[ModuleType, ...] = (
    device,
    server,
    memory,
    attention,
    comm,
    graph,
    kernels,
    triton,
    quantization,
    speculative,
    cache,
    metrics,
)
"""Modules that hold specifications, in the order the documentation shows them."""


class HookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One extension point, as read from its specification."""

    name: str
    subject: str
    function: Callable[..., Any]
    marks: SpecMarks
    arguments: tuple[str, ...]

    @property
    def has_winner(self) -> bool:
        """Whether the plan settles on answers; otherwise every implementation is called, later."""
        return self.marks.mode is not Mode.EACH and self.marks.asked is Asked.PLAN

    @property
    def signature(self) -> str:
        """The signature as written, for people."""
        return f"{self.name}{inspect.signature(self.function)}".replace("'", "")

    @property
    def summary(self) -> str:
        """First line of the documentation."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


def _read(module: ModuleType) -> list[HookSpec]:
    subject = module.__name__.rpartition(".")[2]
    return [
        HookSpec(
            name=name,
            subject=subject,
            function=function,
            marks=marks,
            arguments=tuple(function.__code__.co_varnames[: function.__code__.co_argcount]),
        )
        for name, function in vars(module).items()
        if inspect.isfunction(function) and (marks := spec_marks(function)) is not None
    ]


HOOKS: dict[str, HookSpec] = {spec.name: spec for module in SPEC_MODULES for spec in _read(module)}
"""Every extension point by name, grouped by subject."""

__all__ = [
    "ENTRY_POINT_GROUP",
    "HOOKS",
    "PROJECT",
    "SPEC_MODULES",
    "SPEC_VERSION",
    "ArgDefault",
    "ArgProblem",
    "Asked",
    "AttnBackend",
    "CapturePolicy",
    "CommInitSizing",
    "DetectionStage",
    "DeviceCapabilities",
    "DeviceDetection",
    "DeviceRuntime",
    "EnvDefault",
    "HookSpec",
    "ImplMarks",
    "KVTransfer",
    "Metric",
    "Mode",
    "OpImpl",
    "OpLimit",
    "PluginInfo",
    "Ref",
    "SpecMarks",
    "SpecSupport",
    "TritonSupport",
    "TritonWorkaround",
    "VendorOps",
    "hookimpl",
    "hookspec",
    "impl_marks",
    "spec_marks",
]
