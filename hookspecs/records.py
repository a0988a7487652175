"""Frozen records that hooks return.

Every record is immutable and compares by value, so that two processes that composed the same plan
can prove it by digest. A field of type ``Ref`` takes the object itself or a reference
``"package.module:name"``; a reference keeps planning free of heavy imports and is resolved when the
plan is connected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

Ref: TypeAlias = str | type | Callable[..., Any]
"""An object, or the string ``"package.module:name"`` that names it."""

Text: TypeAlias = Annotated[str, msgspec.Meta(description="words for people")]
"""Words for people: shown, and left out of a plan's digest."""

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]

KVPoolKind: TypeAlias = Literal["mha", "mla", "dsa"]
GraphPhase: TypeAlias = Literal["decode", "prefill"]
DraftPhase: TypeAlias = Literal["draft_decode", "draft_extend"]
CommGroup: TypeAlias = Literal["world", "tp", "attention_tp", "attn_cp", "moe_ep", "moe_tp", "moe_dp", "pp"]


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin says about itself, in a module or object attribute named ``plugin_info``.

    Attributes:
        summary: one line for ``kunhook plugins``.
        device: name of the device the plugin drives; None when it works on any device.
        sglang: version range of SGLang it supports, as a PEP 440 specifier.
        requires: distributions it needs, as PEP 508 requirements. They are checked, not imported.
        libraries: modules of the vendor's runtime. ``kunhook doctor libraries`` imports those that
            are installed, each in a process of its own.
        spec_version: newest contract version whose hooks the plugin uses.
    """

    summary: str = ""
    device: str | None = None
    sglang: str = ""
    requires: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    spec_version: int = 1


class DetectionStage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of looking for a device.

    Attributes:
        name: ``wheel``, ``runtime``, ``device`` or a name of the plugin's own.
        ok: True passed, False failed, None not tried.
        detail: what was found, or the exception type and text.
    """

    name: str
    ok: bool | None
    detail: str = ""


class DeviceDetection(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``detect_device``.

    Attributes:
        device: device name, for example ``"kunlun"``.
        present: every stage that has to pass has passed.
        variant: which implementation, for example ``"vendor"`` or ``"sim"``.
        reason: one sentence: what was found, or the first stage that failed and why.
        broken: parts of the device's software are there but do not work. Startup stops then;
            a device that is merely absent leaves SGLang alone.
        stages: every step in order.
    """

    device: str
    present: bool
    reason: str
    variant: str = ""
    broken: bool = False
    stages: tuple[DetectionStage, ...] = ()


class DeviceCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the device can do; SGLang chooses code paths by it. Fields as in SGLang's own struct."""

    supports_triton: bool = False
    graph_capture: bool = False
    piecewise_graph: bool = False
    hicache_device_kernels: bool = False
    supports_pynccl: bool = False
    pin_memory: bool = False


class DeviceRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``get_device_runtime``: the identity of the device and the code that drives it.

    Attributes:
        device_name: name SGLang prints and selects by, for example ``"kunlun"``.
        device_type: torch device type its tensors live on, for example ``"cuda"`` or ``"cpu"``.
        dispatch_key: key of fused-op forwards in SGLang; operators with no implementation under
            this key run SGLang's torch reference.
        driver: a class without constructor arguments that has the methods of
            ``hookspecs.device.DeviceDriver``.
        capabilities: what the device can do.
        compute_capability: ``(major, minor)`` SGLang may compare with; None when not applicable.
        profiler_activity: name of a ``torch.profiler.ProfilerActivity`` member.
    """

    device_name: str
    device_type: str
    dispatch_key: str
    driver: Ref
    capabilities: DeviceCapabilities = DeviceCapabilities()
    compute_capability: tuple[int, int] | None = None
    profiler_activity: str = "CPU"


class EnvDefault(msgspec.Struct, frozen=True, kw_only=True):
    """A default for an environment variable. It never replaces a value the operator set."""

    value: str
    reason: Text


class ArgDefault(msgspec.Struct, frozen=True, kw_only=True):
    """A default for a field of SGLang's server arguments. A flag the user typed always wins."""

    value: Any
    reason: Text


class ArgProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why the server cannot run with these arguments."""

    field: str
    value: str
    message: str
    remedy: str


class AttnBackend(msgspec.Struct, frozen=True, kw_only=True):
    """An attention backend.

    Attributes:
        cls: subclass of SGLang's ``AttentionBackend``, constructed with the model runner.
        summary: what it covers.
        deterministic: usable under ``--enable-deterministic-inference``.
    """

    cls: Ref
    summary: Text = ""
    deterministic: bool = False


class OpLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of an operator: ``name`` is the quantity, ``maximum`` the largest value allowed."""

    name: str
    maximum: int


class OpImpl(msgspec.Struct, frozen=True, kw_only=True):
    """One implementation of one operator.

    Attributes:
        op: operator name, for example ``"rms_norm"``; see ``hookspecs.kernels.OPERATORS``.
        make: called once when the plan is connected, with the bound vendor operators (None when no
            plugin provides any); returns the function that becomes the forward of the operator's
            SGLang class, with that class's own signature.
        provider: ``"vendor"``, ``"reference"`` or a name of the plugin's own. ``"reference"`` is
            never chosen unless a profile asks for it.
        dtypes: torch dtype names it accepts.
        vendor_ops: vendor operators it calls; a missing one stops startup by name.
        limits: largest values it accepts.
        capturable: may be called while a graph is captured.
        notes: anything an operator of a deployment should know.
    """

    op: str
    make: Ref
    provider: str
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    vendor_ops: tuple[str, ...] = ()
    limits: tuple[OpLimit, ...] = ()
    capturable: bool = True
    notes: Text = ""


class VendorOps(msgspec.Struct, frozen=True, kw_only=True):
    """The vendor's operator library.

    Attributes:
        library: name shown to people, for example ``"sim"`` or ``"kunlun_ops"``.
        bind: called once without arguments; returns an object with one callable attribute per
            operator and ``missing``, the tuple of contract operators the library lacks.
        operators: names of the contract operators.
        features: optional abilities, for example ``"logit_cap"``; code asks here, never by trying.
    """

    library: str
    bind: Ref
    operators: tuple[str, ...]
    features: tuple[str, ...] = ()


class CommInitSizing(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes used while a communication group is created. None keeps SGLang's own value.

    Attributes:
        warmup_elements: elements of the first all-reduce on the group.
        warmup_bytes: bytes per peer of the all-to-all or P2P warm-up.
        buffer_bytes: communication buffer of the group.
        queue_chunk_bytes: largest message of the shared-memory broadcast queue.
        queue_chunks: number of chunks of that queue.
        timeout_s: collective timeout in seconds.
    """

    warmup_elements: Size | None = None
    warmup_bytes: Size | None = None
    buffer_bytes: Size | None = None
    queue_chunk_bytes: Size | None = None
    queue_chunks: Size | None = None
    timeout_s: Seconds | None = None


class CapturePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which decode steps are captured.

    Attributes:
        mode: ``"off"``, ``"piecewise"`` or ``"full"``.
        batch_sizes: batch sizes to capture; empty leaves the choice to SGLang.
        on_failure: ``"stop"`` ends startup, ``"eager"`` serves uncaptured and counts it.
    """

    mode: Literal["off", "piecewise", "full"] = "off"
    batch_sizes: tuple[Count, ...] = ()
    on_failure: Literal["stop", "eager"] = "stop"


class TritonSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether Triton kernels can launch on the device, and why."""

    supported: bool
    reason: Text


class TritonWorkaround(msgspec.Struct, frozen=True, kw_only=True):
    """A replacement for one Triton kernel that cannot run on the device.

    It is a debt: SGLang has no seam for it, so it goes through SGLang's hook registry and is
    listed with everything needed to retire it.

    Attributes:
        target: dotted path of the function that launches the kernel (not of the kernel).
        replacement: the function called instead.
        reason: what fails on the device.
        sglang: version range in which the target exists in this form.
        upstream: reference to the upstream discussion, empty when there is none.
        remove_when: the condition under which this record goes away.
    """

    target: str
    replacement: Ref
    reason: Text
    sglang: str
    remove_when: Text
    upstream: Text = ""


class SpecSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a speculative algorithm runs on the device.

    Attributes:
        supported: True allows it.
        reason: shown when it is refused.
        draft_attn_backends: attention backends its draft model may use.
        default_draft_attn_backend: the one used when the user names none.
    """

    supported: bool
    reason: Text = ""
    draft_attn_backends: tuple[str, ...] = ()
    default_draft_attn_backend: str | None = None


class KVTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """A KV transfer engine for prefill/decode disaggregation: SGLang's four roles."""

    manager: Ref
    sender: Ref
    receiver: Ref
    bootstrap_server: Ref


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number a plugin reports about itself in this process."""

    name: str
    value: float
    unit: str = ""
    help: str = ""
