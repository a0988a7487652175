"""Trace one hook in a running process, by swapping the callable and swapping it back.

Nothing is prepared for tracing: while it is off, SGLang calls the plugin's own object, and once it
is off again the very same object is back in its place. While it is on, calls go through a wrapt
wrapper that counts them and adds up their time.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kunhook import refs
from kunhook.bound import Bound
from kunhook.errors import KunhookError

TRACEABLE = (
    "get_attn_backend_cls",
    "get_kv_pool_cls",
    "get_op_impls",
    "get_paged_allocator_cls",
)
"""Hooks whose answers are called again and again; every other answer is asked once and done."""


class Calls(msgspec.Struct, kw_only=True):
    """What tracing counted for one callable."""

    count: int = 0
    seconds: float = 0.0


class _Swap(msgspec.Struct, frozen=True, kw_only=True):
    """One replaced callable and how to put the original back."""

    restore: Callable[[], None]


class Tracer:
    """Tracing in this process. Safe to use from any thread."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._lock = threading.Lock()
        self._swaps: dict[tuple[str, str], list[_Swap]] = {}
        self._calls: dict[str, Calls] = {}

    def on(self, hook: str, key: str | None = None) -> int:
        """Start tracing a hook, or one key of it; returns how many callables were swapped.

        Raises:
            KunhookError: nobody answers the hook, it is not called repeatedly, or nothing that came
                from it is alive in this process.
        """
        with self._lock:
            swapped = 0
            for name in self._keys(hook, key):
                if (hook, name) in self._swaps:
                    continue
                swaps = list(self._swap(hook, name))
                if swaps:
                    self._swaps[hook, name] = swaps
                    swapped += len(swaps)
            if not swapped and not any(traced[0] == hook for traced in self._swaps):
                raise KunhookError(f"nothing of hook {hook!r} is alive in this process; trace a scheduler.")
            return swapped

    def off(self, hook: str, key: str | None = None) -> int:
        """Stop tracing; returns how many callables were put back."""
        with self._lock:
            restored = 0
            for traced in [t for t in self._swaps if t[0] == hook and key in (None, t[1])]:
                for swap in self._swaps.pop(traced):
                    swap.restore()
                    restored += 1
            return restored

    def report(self) -> dict[str, Any]:
        """Hooks traced now, and what was counted since the process started."""
        with self._lock:
            return {
                "tracing": [f"{hook}[{key}]" if key else hook for hook, key in self._swaps],
                "calls": {name: msgspec.to_builtins(calls) for name, calls in sorted(self._calls.items())},
            }

    def counts(self) -> dict[str, int]:
        """Calls counted per hook and key."""
        with self._lock:
            totals: dict[str, int] = {}
            for name, calls in self._calls.items():
                hook = name.partition(" ")[0]
                totals[hook] = totals.get(hook, 0) + calls.count
            return totals

    def _keys(self, hook: str, key: str | None) -> list[str]:
        answered = self._bound.plan.named(hook)
        if hook not in TRACEABLE:
            raise KunhookError(
                f"hook {hook!r} is asked once and its answer used as it is; there is nothing to trace. "
                f"Hooks that can be traced: {', '.join(TRACEABLE)}."
            )
        if not answered:
            raise KunhookError(f"no active plugin answers hook {hook!r}.")
        if key is not None and key not in answered:
            raise KunhookError(f"hook {hook!r} has no active answer for {key!r}; it has {', '.join(answered)}.")
        return list(answered) if key is None else [key]

    def _swap(self, hook: str, key: str) -> Iterator[_Swap]:
        label = f"{hook}[{key}]" if key else hook
        alive = self._bound.alive
        if hook == "get_op_impls":
            from kunhook.seams import registries

            classes = registries.operator_classes(key)
            for operator in alive.operators(classes):
                if registries.is_forwarded(operator, self._bound, key):
                    yield _swap_attribute(operator, "_forward_method", self._wrapper(label, type(operator).__name__))
            return
        value = self._bound.plan.value(hook, key)
        cls = refs.resolve(getattr(value, "cls", value), wanted_by=label)
        methods = [name for name, member in vars(cls).items() if inspect.isfunction(member) and name[0] != "_"]
        for instance in alive.instances(cls):
            for name in methods:
                yield _swap_attribute(instance, name, self._wrapper(label, f"{cls.__name__}.{name}"))

    def _wrapper(self, label: str, name: str) -> Callable[..., Any]:
        calls = self._calls.setdefault(f"{label} {name}", Calls())

        def count(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return wrapped(*args, **kwargs)
            finally:
                calls.count += 1
                calls.seconds += time.perf_counter() - started

        return count


def _swap_attribute(owner: Any, name: str, wrapper: Callable[..., Any]) -> _Swap:
    """Put a wrapper in the place of an attribute of one instance."""
    import wrapt  # only a process that is traced needs it

    held = vars(owner)
    own = name in held
    original = held[name] if own else getattr(owner, name)
    setattr(owner, name, wrapt.FunctionWrapper(original, wrapper))

    def restore() -> None:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return _Swap(restore=restore)
