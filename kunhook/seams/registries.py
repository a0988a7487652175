"""SGLang's ``register_*`` and ``add_*_choices`` functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hookspecs import OpImpl
from kunhook import refs
from kunhook.bound import Bound
from kunhook.errors import KunhookError, describe
from kunhook.seams.readback import Readbacks


def add_choices(bound: Bound, readbacks: Readbacks) -> None:
    """Make names of attention backends choices of the command line."""
    from sglang.srt import server_args as module

    names = bound.plan.named("get_attn_backend_cls")
    choices = module.ATTENTION_BACKEND_CHOICES
    for name, record in names.items():
        if name not in choices:
            module.add_attention_backend_choices([name])
        if record.deterministic and name not in module.DETERMINISTIC_ATTENTION_BACKEND_CHOICES:
            module.add_deterministic_attention_backend_choices([name])
        if name not in choices:
            raise KunhookError(
                f"{bound.source('get_attn_backend_cls', name)}: SGLang did not take the choice {name!r}."
            )
        readbacks.took("get_attn_backend_cls", name, "choice of --attention-backend")
    default = bound.plan.value("get_default_attn_backend")
    if default is not None and default not in choices:
        raise KunhookError(
            f"{bound.source('get_default_attn_backend')}: no attention backend is called {default!r}. "
            f"Backends of plugins: {', '.join(names) or 'none'}."
        )


def register_attention(bound: Bound, readbacks: Readbacks) -> None:
    """Register attention backend classes by name."""
    from sglang.srt.layers.attention import attention_registry
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

    for name, record in bound.plan.named("get_attn_backend_cls").items():
        source = bound.source("get_attn_backend_cls", name)
        cls = refs.resolve(record.cls, wanted_by=source)
        if not (inspect.isclass(cls) and issubclass(cls, AttentionBackend)):
            raise KunhookError(f"{source}: {cls!r} is not a subclass of SGLang's AttentionBackend.")
        if name in attention_registry.ATTENTION_BACKENDS:
            raise KunhookError(f"{source}: SGLang already has an attention backend {name!r}. Use another name.")
        factory = _factory(bound, cls)
        attention_registry.register_attention_backend(name)(factory)
        readbacks.compare(
            bound,
            "get_attn_backend_cls",
            name,
            attention_registry.ATTENTION_BACKENDS.get(name),
            factory,
            "attention_registry.ATTENTION_BACKENDS",
        )


def _factory(bound: Bound, cls: type) -> Callable[[Any], Any]:
    """What SGLang calls once per model runner: makes the plugin's own class, and remembers the instance."""

    def make(model_runner: Any) -> Any:
        backend = cls(model_runner)
        bound.alive.backend(backend, model_runner)
        return backend

    return make


_OPERATOR_CLASSES = {
    "rms_norm": "sglang.srt.layers.layernorm:RMSNorm",
    "silu_and_mul": "sglang.srt.layers.activation:SiluAndMul",
    "rotary_embedding": "sglang.srt.layers.rotary_embedding.base:RotaryEmbedding",
}


def register_operators(bound: Bound, readbacks: Readbacks) -> None:
    """Hand the chosen operator implementations to SGLang's fused operators."""
    chosen = bound.plan.named("get_op_impls")
    if not chosen:
        return
    registrar = _fused_op_base()
    dispatch_key = bound.plan.value("get_device_runtime").dispatch_key
    vendor = bound.vendor_ops()
    if vendor is not None:
        readbacks.took("get_vendor_ops", "", f"bound {vendor!r}")
    missing = set(getattr(vendor, "missing", ()))
    for op, impl in chosen.items():
        source = bound.source("get_op_impls", op)
        lacking = [name for name in impl.vendor_ops if any(m.rpartition(".")[2] == name for m in missing)]
        if lacking:
            raise KunhookError(
                f"{source}: the installed vendor library lacks {', '.join(lacking)}. Install a library that has "
                f'it, or use the torch path with ops.{op}.use = "reference".'
            )
        forward = _make(impl, vendor, source)
        classes = operator_classes(op)
        for cls in classes:
            registrar.register_oot_forward(cls, forward, dispatch_key)
        # The registry has no public reader; it is read here, never written.
        registry = registrar._oot_forward_registry.get(dispatch_key, {})
        where = f"the forward of {', '.join(cls.__name__ for cls in classes)}"
        wrong = next((registry.get(cls) for cls in classes if registry.get(cls) is not forward), forward)
        readbacks.compare(bound, "get_op_impls", op, wrong, forward, where)
        bound.operators[op] = forward


def _make(impl: OpImpl, vendor: Any, source: str) -> Callable[..., Any]:
    make = refs.resolve(impl.make, wanted_by=source)
    try:
        forward = make(vendor)
    except Exception as error:
        raise KunhookError(f"{source}: {refs.name_of(impl.make)} failed: {describe(error)}") from error
    if not callable(forward):
        raise KunhookError(f"{source}: {refs.name_of(impl.make)} returned {forward!r}, which cannot be called.")
    return forward  # type: ignore[no-any-return]


def _fused_op_base() -> Any:
    try:
        from sglang.kernels.fused_op import BaseFusedOp

        if hasattr(BaseFusedOp, "register_oot_forward"):
            return BaseFusedOp
    except ImportError:
        pass
    from sglang.srt.layers.utils.multi_platform import MultiPlatformOp

    return MultiPlatformOp


def operator_classes(op: str) -> list[type]:
    """The operator's class and every subclass that computes the same.

    SGLang looks forwards up by exact type. A subclass that keeps the reference forward differs in
    its tables only, so the same implementation serves it; one that overrides it is left alone.
    """
    import sglang.srt.layers.rotary_embedding  # noqa: F401 - its subclasses have to exist

    base = refs.resolve(_OPERATOR_CLASSES[op], wanted_by=f"operator {op!r}")
    found, waiting = [], [base]
    while waiting:
        cls = waiting.pop()
        if cls.forward_native is base.forward_native and cls not in found:
            found.append(cls)
        waiting.extend(cls.__subclasses__())
    return found


def is_forwarded(operator: Any, bound: Bound, op: str) -> bool:
    """Whether a fused operator of SGLang has settled on our forward. It does at its first call."""
    method = getattr(operator, "_forward_method", None)
    return getattr(method, "__func__", None) is bound.operators.get(op) is not None


def register_storage(bound: Bound, readbacks: Readbacks) -> None:
    """Register storage backends of the hierarchical KV cache."""
    storages = bound.plan.named("get_hicache_storage")
    if not storages:
        return
    from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

    for name, ref in storages.items():
        source = bound.source("get_hicache_storage", name)
        if not isinstance(ref, str):
            raise KunhookError(
                f"{source}: {ref!r} must be a reference 'package.module:Class'; SGLang loads it by name."
            )
        refs.resolve(ref, wanted_by=source)
        module, _, cls = ref.partition(":")
        StorageBackendFactory.register_backend(name, module, cls)
        readbacks.took("get_hicache_storage", name, "StorageBackendFactory accepted it")


def check_quantization(bound: Bound, readbacks: Readbacks) -> None:
    """Ask SGLang for every quantization method by name and compare with the plan."""
    names = bound.plan.named("get_quantization_config")
    if not names:
        return
    from sglang.srt.layers.quantization import get_quantization_config
    from sglang.srt.layers.quantization.base_config import QuantizationConfig

    for name in names:
        source = bound.source("get_quantization_config", name)
        cls = bound.object("get_quantization_config", name)
        if not (inspect.isclass(cls) and issubclass(cls, QuantizationConfig)):
            raise KunhookError(f"{source}: {cls!r} is not a subclass of SGLang's QuantizationConfig.")
        try:
            found = get_quantization_config(name)
        except ValueError as error:
            raise KunhookError(f"{source}: SGLang does not know the method {name!r}: {error}") from error
        readbacks.compare(bound, "get_quantization_config", name, found, cls, "quantization.get_quantization_config()")
