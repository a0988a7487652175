"""References ``"package.module:name"``: resolved when bound, named when compared."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from kunhook.errors import KunhookError, describe


def resolve(ref: Any, *, wanted_by: str) -> Any:
    """The object a reference names; anything but a string is the object itself.

    Raises:
        KunhookError: malformed, or the module or name is not there; with exception type and text.
    """
    if not isinstance(ref, str):
        return ref
    module, colon, name = ref.partition(":")
    if not colon or not module or not name:
        raise KunhookError(f"{wanted_by}: {ref!r} is not a reference of the form 'package.module:name'.")
    try:
        target = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except Exception as error:
        raise KunhookError(f"{wanted_by}: {ref!r} cannot be loaded: {describe(error)}") from error
    return target


def resolve_dotted(path: str, *, wanted_by: str) -> Any:
    """The object at a dotted path: the longest importable module, then attributes.

    Raises:
        KunhookError: nothing is there; with exception type and text.
    """
    try:
        return pkgutil.resolve_name(path)
    except Exception as error:
        raise KunhookError(f"{wanted_by}: {path} cannot be found: {describe(error)}") from error


def name_of(value: Any) -> str:
    """Stable text for an object: the reference that would name it."""
    if isinstance(value, str):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module and name:
        return f"{module}:{name}"
    return f"{type(value).__module__}:{type(value).__qualname__} instance"
