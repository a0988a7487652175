"""Debts: places without a seam, reached through SGLang's own hook registry.

The registry wraps whatever it finds at a dotted path and rebinds module-level names. On anything but a
plain function that nobody keeps elsewhere this breaks in silence, so such a target is refused here,
with the kind of object or the holder that would keep the old function.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from hookspecs import TritonWorkaround
from kunhook import refs, versions
from kunhook.bound import Bound
from kunhook.errors import KunhookError
from kunhook.plan import Plan
from kunhook.seams.readback import Readbacks

HOOK = "get_triton_workarounds"
_PACKAGE = "sglang"


class Debt(msgspec.Struct, frozen=True, kw_only=True):
    """One use of SGLang's hook registry, with everything needed to retire it."""

    name: str
    target: str
    kind: str
    reason: str
    upstream: str
    sglang: str
    remove_when: str
    plugin: str
    off_switch: str


def debts_of(plan: Plan) -> tuple[Debt, ...]:
    """The debts a plan takes on."""
    return tuple(
        Debt(
            name=name,
            target=answer.value.target,
            kind="function replaced through HookRegistry",
            reason=answer.value.reason,
            upstream=answer.value.upstream,
            sglang=answer.value.sglang,
            remove_when=answer.value.remove_when,
            plugin=answer.plugin,
            off_switch=f'hooks.{HOOK}.keys.{name}.use = "none"',
        )
        for name, answer in plan.answers.get(HOOK, {}).items()
    )


def take_on(bound: Bound, readbacks: Readbacks) -> None:
    """Apply every debt of the plan and read it back.

    Raises:
        KunhookError: a target that is missing, of another version, already hooked by somebody else,
            not a plain function, or kept by a holder the registry does not reach.
    """
    workarounds: dict[str, TritonWorkaround] = bound.plan.named(HOOK)
    if not workarounds:
        return
    _refuse_two_for_one_target(bound, workarounds)
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for name, record in workarounds.items():
        source = bound.source(HOOK, name)
        if reason := versions.unmet("sglang", bound.plan.sglang, record.sglang):
            raise KunhookError(f"{source}: the debt is for another version: {reason}.")
        original = find(record.target, source)
        if problem := unfit(record.target, original):
            raise KunhookError(f"{source}: {record.target} {problem}")
        # Read, never written: another plugin's hook on the target would wrap ours, or be lost.
        if record.target in HookRegistry._patched or HookRegistry._hooks.get(record.target):
            raise KunhookError(
                f"{source}: {record.target} is already hooked by another plugin through SGLang's registry. "
                f"Remove that plugin, or switch this off with hooks.{HOOK}.keys.{name}.use = 'none'."
            )
        HookRegistry.register(record.target, refs.resolve(record.replacement, wanted_by=source), HookType.REPLACE)
        HookRegistry.apply_hooks()
        left = list(holders(original))
        if find(record.target, source) is original or left:
            kept = f"; still held by {', '.join(left)}" if left else ""
            raise KunhookError(f"{source}: replacing {record.target} did not take{kept}.")
        readbacks.took(HOOK, name, f"{record.target} is replaced")


def _refuse_two_for_one_target(bound: Bound, workarounds: dict[str, TritonWorkaround]) -> None:
    owners: dict[str, str] = {}
    for name, record in workarounds.items():
        other = owners.setdefault(record.target, name)
        if other != name:
            raise KunhookError(
                f"{bound.source(HOOK, other)} and {bound.source(HOOK, name)} both replace {record.target}. "
                f'Switch one off: hooks.{HOOK}.keys.{name}.use = "none"'
            )


def find(target: str, source: str) -> Any:
    """The object at a dotted path, read without descriptors.

    Raises:
        KunhookError: there is none.
    """
    owner_path, _, name = target.rpartition(".")
    owner = refs.resolve_dotted(owner_path, wanted_by=source)
    found = inspect.getattr_static(owner, name, None)
    if found is None:
        raise KunhookError(f"{source}: {target} does not exist in this SGLang. Correct the path or its version range.")
    return found


def unfit(target: str, found: Any) -> str | None:
    """Why an object cannot be replaced through the registry; None when it can."""
    if isinstance(found, property | functools.cached_property):
        return "is a property; wrapped, reading it would give a method. Subclass through a platform seam instead."
    if inspect.isclass(found):
        subclasses = [f"{cls.__module__}.{cls.__qualname__}" for cls in found.__subclasses__()]
        known = f", which {', '.join(subclasses)} already derive from" if subclasses else ""
        return f"is a class{known}; instances and subclasses would keep the old one. Name its methods one by one."
    if hasattr(found, "cache_clear"):
        return "is a cached function; wrapped, it would lose cache_clear. Name the function that calls it."
    if not isinstance(found, FunctionType | staticmethod | classmethod):
        kind = type(found).__name__
        if hasattr(found, "run") or hasattr(type(found), "__getitem__"):
            return f"is a kernel object ({kind}); wrapped, kernel[grid] would fail. Name the function that launches it."
        return f"is a {kind}, not a function. Name the function that uses it."
    function = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    for test, kind in (
        (inspect.iscoroutinefunction, "a coroutine function"),
        (inspect.isasyncgenfunction, "an async generator"),
        (inspect.isgeneratorfunction, "a generator"),
    ):
        if test(function):
            return f"is {kind}; a replacement that only looks like a function would not be awaited or iterated."
    if found_by := [holder for holder in holders(function) if not _is_module_name(holder, function)]:
        return f"is also held by {', '.join(found_by)}, which would keep the old function. Find a seam for it."
    return None


def _is_module_name(holder: str, function: Any) -> bool:
    """Module-level names are rebound by the registry; so is the defining class."""
    owner, _, name = holder.rpartition(".")
    module = sys.modules.get(owner)
    if module is not None and vars(module).get(name) is function:
        return True
    return holder == f"{function.__module__}.{function.__qualname__}"


def holders(function: Any) -> Iterator[str]:
    """Dotted names of every place in SGLang's loaded modules that holds a function."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == _PACKAGE and isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                yield from _held(function, value, f"{module_name}.{name}", module_name)


def _held(function: Any, value: Any, where: str, module: str) -> Iterator[str]:
    if value is function:
        yield where
    elif isinstance(value, dict):
        # dict's own items: a lazy mapping of transformers would import a thousand modules for its.
        yield from (f"{where}[{key!r}]" for key, item in list(dict.items(value)) if _is(item, function))
    elif isinstance(value, list | tuple | set | frozenset):
        if any(_is(item, function) for item in list(value)):
            yield f"{where} ({type(value).__name__})"
    elif isinstance(value, functools.partial):
        if _is(value, function):
            yield f"{where} (partial)"
    elif isinstance(value, FunctionType):
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        if any(_is(item, function) for item in defaults):
            yield f"{where} (default argument)"
        if any(item is function for item in cells) and getattr(value, "__wrapped__", None) is not function:
            yield f"{where} (closure)"
    elif inspect.isclass(value) and value.__module__ == module:
        for name, member in list(vars(value).items()):
            inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if _is(inner, function):
                yield f"{where}.{name}"


def _is(value: Any, function: Any) -> bool:
    if isinstance(value, functools.partial):
        return function in (value.func, *value.args) or function in value.keywords.values()
    return value is function


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
