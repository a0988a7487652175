"""Check that an answer is what the specification promises."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hookspecs import HOOKS, HookSpec, Ref, records
from kunhook.errors import KunhookError, describe
from kunhook.registration import Implementation

_REF = typing.get_args(Ref)


def ask(implementation: Implementation, **available: Any) -> Any:
    """Ask one implementation, and check what it answers.

    Raises:
        KunhookError: it raised, or answered something else; the text names plugin and hook.
    """
    try:
        value = implementation.ask(**available)
    except Exception as error:
        why = str(error) if isinstance(error, KunhookError) else describe(error)
        raise KunhookError(f"plugin {implementation.plugin!r}, hook {implementation.hook}: {why}") from error
    return checked(HOOKS[implementation.hook], implementation.plugin, value)


@functools.cache
def _expected(spec_function: Any) -> Any:
    """Return annotation of a specification without its ``None``."""
    annotation = typing.get_type_hints(spec_function)["return"]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        return members[0] if len(members) == 1 else tuple(members)
    return annotation


def checked(spec: HookSpec, plugin: str, value: Any) -> Any:
    """Return ``value`` when its type is what ``spec`` says, records with all their fields; None passes.

    Raises:
        KunhookError: it is something else; the text names plugin, hook, what came and what is wanted.
    """
    if value is None:
        return None
    expected = _expected(spec.function)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    items: dict[str, Any] = {"": value}
    if origin is Mapping:
        good = isinstance(value, Mapping) and all(
            isinstance(key, str) and _fits(item, arguments[1]) for key, item in value.items()
        )
        items = {f"[{key}]": item for key, item in value.items()} if good else {}
    elif origin is Sequence:
        good = isinstance(value, list | tuple) and all(_fits(item, arguments[0]) for item in value)
        items = {f"[{index}]": item for index, item in enumerate(value)} if good else {}
    else:
        good = _fits(value, expected)
    if not good:
        raise KunhookError(f"plugin {plugin!r} answered {value!r}, but the hook is {spec.signature}.")
    for label, item in items.items():
        if wrong := _wrong_field(item):
            raise KunhookError(f"plugin {plugin!r} answered {spec.name}{label} with {wrong}.")
    return value


def _wrong_field(record: Any) -> str | None:
    """The first field of a record, or of a record inside it, that is not of its declared type."""
    if not isinstance(record, msgspec.Struct):
        return None
    for name, annotation in _fields(type(record)).items():
        value = getattr(record, name)
        if annotation == Ref:
            if not _fits(value, annotation):
                return f"{name} = {value!r}: neither an object nor a reference 'package.module:name'"
            continue
        try:
            msgspec.convert(value, annotation)
        except msgspec.ValidationError as error:
            return f"{name} = {value!r}: {error}"
        for inner in value if isinstance(value, tuple) else (value,):
            if wrong := _wrong_field(inner):
                return f"{name}: {wrong}"
    return None


@functools.cache
def _fields(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Fields the contract declares for a record with their types; none when the record is not its own."""
    own = next((cls for cls in record.__mro__ if cls.__module__ == records.__name__), None)
    return typing.get_type_hints(own, include_extras=True) if own else {}


def _fits(value: Any, expected: Any) -> bool:
    if isinstance(expected, tuple) or typing.get_origin(expected) in (typing.Union, types.UnionType):
        members = expected if isinstance(expected, tuple) else typing.get_args(expected)
        if set(members) == set(_REF):
            return (isinstance(value, str) and ":" in value) or callable(value)
        return any(_fits(value, member) for member in members)
    return isinstance(value, expected)
