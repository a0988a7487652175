"""Compare the SGLang that is running with the catalogue of targets, before anything relies on it.

Only modules that SGLang has imported already are looked at, so that the comparison imports nothing
and costs milliseconds; what is imported later can be compared by calling again.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from kunhook import versions
from kunhook.errors import nearest
from kunhook.seams import targets
from kunhook.seams.catalogue import SUPPORTED
from kunhook.seams.targets import Role, Target

_CHECKED = (Role.OVERRIDE, Role.CALL)
_MISSING = object()


class _SomeDefault:
    """Stands for any default value: only that there is one counts."""

    def __repr__(self) -> str:
        return "..."


_DEFAULT = _SomeDefault()
_HIDDEN = "(*args, **kwargs)"


def check(sglang_version: str, wanted: Iterable[Target] = targets.TARGETS) -> list[str]:
    """Compare what is imported with what the catalogue expects of this version.

    Args:
        sglang_version: version of the SGLang that is running.
        wanted: targets to compare; those that are overridden or called count.

    Returns:
        One line for each name that is missing or has another signature, naming hooks, name,
        expected and found; empty when all is as expected.
    """
    if reason := versions.unmet(versions.SGLANG, sglang_version, SUPPORTED):
        return [reason]
    hooks: dict[tuple[str, str], list[str]] = {}
    roles: dict[tuple[str, str], Role] = {}
    for target in targets.valid_in(sglang_version, wanted):
        if target.role in _CHECKED:
            key = target.path, target.signature
            hooks.setdefault(key, []).append(target.hook)
            roles[key] = target.role
    problems = []
    for (path, expected), users in hooks.items():
        module = _imported(path.partition(":")[0])
        if module is None:
            continue
        problem = _problem(module, path, expected, roles[path, expected])
        if problem:
            named = "every hook" if users == [targets.EVERY_HOOK] else f"hook {', '.join(users)}"
            problems.append(f"{named}: {path} of SGLang {sglang_version} {problem}")
    return problems


def _problem(module: ModuleType, path: str, expected: str, role: Role) -> str | None:
    holder: Any = module
    found: Any = module
    *_, name = parts = path.partition(":")[2].split(".")
    for part in parts:
        holder, found = found, inspect.getattr_static(found, part, _MISSING)
        if found is _MISSING:
            near = nearest(part, [each for each in dir(holder) if each[0] != "_"])
            return f"is missing, expected {name if expected[0] == '(' else expected + ' '}{expected}. {near}"
    text = text_of_object(found)
    if text is None or fits(role, expected, text):
        return None
    return f"has another signature: expected {expected}, found {text}"


def _imported(name: str) -> ModuleType | None:
    """A module SGLang has imported completely; one that is still being imported lacks names."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def fits(role: Role, expected: str, found: str) -> bool:
    """Whether code written for one signature works with another.

    A method that SGLang calls on our side has to be the same. A function we call may have grown
    parameters with defaults.
    """
    if expected == found:
        return True
    if role is not Role.CALL or not (expected[0] == found[0] == "("):
        return False
    offered = {p.name: p for p in parse(found)}
    used = {p.name: p for p in parse(expected)}
    kept = all(name in offered and _accepts(offered[name], parameter) for name, parameter in used.items())
    grown = all(p.default is _DEFAULT or p.kind in _VARIABLE for name, p in offered.items() if name not in used)
    # A new parameter in front of one that is passed by position would take its place.
    first = _by_position(used.values())
    return kept and grown and list(offered)[: len(first)] == first


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _by_position(parameters: Iterable[inspect.Parameter]) -> list[str]:
    return [p.name for p in parameters if p.kind in _BY_POSITION]


def _accepts(offered: inspect.Parameter, used: inspect.Parameter) -> bool:
    wider = offered.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and used.kind not in _VARIABLE
    return (offered.kind is used.kind or wider) and (used.default is not _DEFAULT or offered.default is _DEFAULT)


def parse(text: str) -> list[inspect.Parameter]:
    """Parameters of a signature in the catalogue's form."""
    function = ast.parse(f"def _{text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    return parameters_of(function.args)


def parameters_of(arguments: ast.arguments) -> list[inspect.Parameter]:
    """Parameters of a parsed function, without annotations and with a mark for any default."""
    made: list[inspect.Parameter] = []

    def add(argument: ast.arg, kind: Any, default: ast.expr | None) -> None:
        marked = inspect.Parameter.empty if default is None else _DEFAULT
        made.append(inspect.Parameter(argument.arg, kind, default=marked))

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        add(argument, _BY_POSITION[index >= len(arguments.posonlyargs)], default)
    if arguments.vararg:
        add(arguments.vararg, inspect.Parameter.VAR_POSITIONAL, None)
    for argument, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        add(argument, inspect.Parameter.KEYWORD_ONLY, keyword)
    if arguments.kwarg:
        add(arguments.kwarg, inspect.Parameter.VAR_KEYWORD, None)
    return made


def text_of(parameters: Iterable[inspect.Parameter]) -> str:
    """Parameters in the catalogue's form: names, kinds and whether they have a default."""
    empty = inspect.Parameter.empty
    bare = [p.replace(annotation=empty, default=p.default if p.default is empty else _DEFAULT) for p in parameters]
    return str(inspect.Signature(bare))


def text_of_object(value: Any) -> str | None:
    """Signature or kind of an object read without descriptors.

    None when Python cannot tell: a built-in without a signature, or a wrapper that hides it.
    """
    if isinstance(value, property | functools.cached_property):
        return "property"
    if inspect.isclass(value):
        return "class"
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if not callable(value):
        return "value"
    try:
        text = text_of(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    return None if text == _HIDDEN else text
