"""Check that an answer is what the specification promises."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from hookspecs import HookSpec, Ref
from kunhook.errors import KunhookError

_REF = typing.get_args(Ref)


@functools.cache
def _expected(spec_function: Any) -> Any:
    """Return annotation of a specification without its ``None``."""
    annotation = typing.get_type_hints(spec_function)["return"]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        return members[0] if len(members) == 1 else tuple(members)
    return annotation


def checked(spec: HookSpec, plugin: str, value: Any) -> Any:
    """Return ``value`` when its type is what ``spec`` says; None passes.

    Raises:
        KunhookError: it is something else; the text names plugin, hook, what came and what is wanted.
    """
    if value is None:
        return None
    expected = _expected(spec.function)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is Mapping:
        good = isinstance(value, Mapping) and all(
            isinstance(key, str) and _fits(item, arguments[1]) for key, item in value.items()
        )
    elif origin is Sequence:
        good = isinstance(value, list | tuple) and all(_fits(item, arguments[0]) for item in value)
    else:
        good = _fits(value, expected)
    if not good:
        raise KunhookError(f"plugin {plugin!r} answered {value!r}, but the hook is {spec.signature}.")
    return value


def _fits(value: Any, expected: Any) -> bool:
    if isinstance(expected, tuple) or typing.get_origin(expected) in (typing.Union, types.UnionType):
        members = expected if isinstance(expected, tuple) else typing.get_args(expected)
        if set(members) == set(_REF):
            return (isinstance(value, str) and ":" in value) or callable(value)
        return any(_fits(value, member) for member in members)
    return isinstance(value, expected)
