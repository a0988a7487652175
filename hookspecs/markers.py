"""The two decorators of the contract, and the marks they leave.

``hookspec`` declares an extension point; ``hookimpl`` answers one. Both are thin layers over
pluggy's markers: pluggy does the matching by name, the marks say how several answers combine.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import pluggy

PROJECT = "kunhook"
"""The pluggy project name. Specs and implementations find each other through it."""

ENTRY_POINT_GROUP = "kunhook.plugins"
"""Entry-point group in which distributions announce plugins."""

SPEC_VERSION = 1
"""Version of the contract. A hook's ``since`` never exceeds it."""

_SPEC_ATTRIBUTE = "kunhook_marks"
_IMPL_ATTRIBUTE = "kunhook_impl_marks"

F = TypeVar("F", bound=Callable[..., Any])


class Mode(StrEnum):
    """How the answers of several plugins to one hook combine."""

    ONE = "one"
    """Exactly one answer wins; two answers are a conflict."""
    MERGE = "merge"
    """Mappings of named things are united; the same name twice is a conflict."""
    EACH = "each"
    """Everybody is called, in order."""


class Asked(StrEnum):
    """When a hook is called. No hook is called on a path that runs per token."""

    PLAN = "plan"
    """While the plan is composed, once per process, before SGLang has parsed its arguments."""
    LAUNCH = "launch"
    """Once, in the launcher, when SGLang resolves its server arguments."""
    WORKER = "worker"
    """Once in each process that loads a model, at the moment the hook's text names."""
    REPORT = "report"
    """Whenever a process writes its manifest."""


class SpecMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What ``hookspec`` records about an extension point."""

    mode: Mode
    since: int
    asked: Asked
    none: str
    key_argument: str | None = None
    keys: tuple[str, ...] = ()
    params: type[msgspec.Struct] | None = None
    must_run: bool = False


class ImplMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What ``hookimpl`` records about an implementation."""

    replaces: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_pluggy_spec = pluggy.HookspecMarker(PROJECT)
_pluggy_impl = pluggy.HookimplMarker(PROJECT)


def hookspec(
    *,
    mode: Mode,
    since: int,
    none: str,
    asked: Asked = Asked.PLAN,
    key: tuple[str, tuple[str, ...]] | None = None,
    params: type[msgspec.Struct] | None = None,
    must_run: bool = False,
) -> Callable[[F], F]:
    """Declare an extension point.

    Args:
        mode: how answers combine.
        since: contract version that introduced the hook.
        none: what SGLang does when nobody answers, as one sentence.
        asked: when the hook is called.
        key: name of the argument that takes a key, and its closed set of values. The hook is asked
            once per value, and each value is resolved on its own.
        params: record type of the answer when a profile may set its fields one by one under
            ``hooks.<name>.params``; a field set there replaces the field of the winning answer.
        must_run: the answer has to be used by the time the server is ready, or it is reported.
    """
    marks = SpecMarks(
        mode=mode,
        since=since,
        asked=asked,
        none=none,
        key_argument=key[0] if key else None,
        keys=key[1] if key else (),
        params=params,
        must_run=must_run,
    )

    def mark(function: F) -> F:
        setattr(function, _SPEC_ATTRIBUTE, marks)
        return _pluggy_spec(function)

    return mark


def _names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def hookimpl(
    function: F | None = None,
    *,
    replaces: str | tuple[str, ...] = (),
    before: str | tuple[str, ...] = (),
    after: str | tuple[str, ...] = (),
) -> Any:
    """Mark a function as the answer to the hook of the same name.

    Args:
        replaces: plugins whose answer to this hook gives way to this one. They are listed as
            shadowed, never silently lost.
        before, after: plugins this implementation is called before or after. Only order is
            affected. Unknown plugins are ignored, so a plugin may name one that is not installed.
    """
    marks = ImplMarks(replaces=_names(replaces), before=_names(before), after=_names(after))

    def mark(target: F) -> F:
        setattr(target, _IMPL_ATTRIBUTE, marks)
        return _pluggy_impl(target)

    return mark if function is None else mark(function)


def spec_marks(function: Callable[..., Any]) -> SpecMarks | None:
    """The marks of a hook specification, or None when the function is not one."""
    return getattr(function, _SPEC_ATTRIBUTE, None)


def has_impl_marks(value: object) -> bool:
    """Whether ``hookimpl`` was applied to ``value``, function or not."""
    return isinstance(getattr(value, _IMPL_ATTRIBUTE, None), ImplMarks)


def impl_marks(function: Callable[..., Any]) -> ImplMarks:
    """The marks of an implementation; defaults when it was marked with bare pluggy."""
    return getattr(function, _IMPL_ATTRIBUTE, ImplMarks())
