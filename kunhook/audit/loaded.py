"""Modules that are loaded with us only: which of them may be."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hookspecs import ENTRY_POINT_GROUP
from kunhook import discovery
from kunhook.plan import Plan

FRAMEWORK = "kunhook"

_SHIPPED = ("kunhook", "hookspecs", "kunlun_backend")
_ORIGIN = re.compile(r"class module (?P<name>\S+) from (?P<file>.+)")


def own_distributions() -> frozenset[str]:
    """The framework and every distribution that announces a plugin for it."""
    announced = (p.distribution for p in discovery.announcements() if p.group == ENTRY_POINT_GROUP)
    return frozenset({FRAMEWORK, *announced})


def own_packages() -> frozenset[str]:
    """Top-level names of the framework and of every announced plugin, enabled or not."""
    ours = own_distributions()
    values = (point.value for point in discovery.announcements() if point.distribution in ours)
    return frozenset({*_SHIPPED, *(re.split(r"[.:]", value)[0].strip() for value in values)})


def reason(name: str, origin: str, reference: Mapping[str, str], plan: Plan) -> str | None:
    """Why a module may be loaded with us only; None when nothing says so.

    A module that somebody made up, or that sits under a name that is not its own, has no reason.

    Args:
        name: its key in ``sys.modules``.
        origin: its description in the snapshot.
        reference: modules loaded without us, by name, with their descriptions.
        plan: the plan that runs.
    """
    top = name.partition(".")[0]
    found = _ORIGIN.fullmatch(origin)
    if found is None or found["name"] != name:
        return None
    if top in sys.stdlib_module_names:
        return "the standard library"
    file = Path(found["file"])
    if not file.is_file():
        return None
    if top in own_packages():
        return "the stack itself"
    if top in {library.partition(".")[0] for plugin in plan.registrations for library in plugin.info.libraries}:
        return "the vendor's runtime, named by a plugin"
    ours = own_distributions()
    provided = _providers().get(top, frozenset())
    if provided & _required(ours):
        return "a requirement of the stack"
    if top in reference and _is_part(file, reference[top]):
        return "a further module of a package that is loaded without us too"
    if provided and not provided & {canonicalize_name(name) for name in ours}:
        return f"installed by {', '.join(sorted(provided))}, which the stack uses without requiring it"
    return None


def _is_part(file: Path, package: str) -> bool:
    found = _ORIGIN.fullmatch(package)
    return found is not None and file.is_relative_to(Path(found["file"]).parent) and "__init__." in found["file"]


@functools.cache
def _providers() -> dict[str, frozenset[str]]:
    """Distributions that install each top-level name."""
    return {
        package: frozenset(canonicalize_name(name) for name in names)
        for package, names in metadata.packages_distributions().items()
    }


@functools.cache
def _required(distributions: frozenset[str]) -> frozenset[str]:
    """Everything distributions require, directly or not, extras included."""
    waiting = [canonicalize_name(name) for name in distributions]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        try:
            texts = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        wanted = {canonicalize_name(requirement.name) for requirement in map(_parsed, texts) if requirement}
        waiting += wanted - seen
        seen |= wanted
    return frozenset(seen)


def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
