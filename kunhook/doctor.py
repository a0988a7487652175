"""Named checks of an installation. Each survives a broken plugin and says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata, util

import msgspec

from kunhook import activation, discovery, versions
from kunhook.errors import KunhookError, UsageError, nearest
from kunhook.plan import Plan, compose
from kunhook.seams import catalogue

OK, WARN, FAILED = "ok", "warn", "failed"

_IMPORT_TIMEOUT = 120.0
_UNDEFINED = re.compile(r"undefined symbol: (\S+)")
_MISSING = re.compile(r"([^\s:'\"(]+): cannot open shared object file")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report."""

    name: str
    state: str
    message: str


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks look at; composing may itself have failed."""

    plan: Plan | None
    error: str | None


def run(names: Iterable[str], *, profile: str | None = None, overrides: tuple[str, ...] = ()) -> list[Finding]:
    """Run checks by name.

    Raises:
        UsageError: the configuration names something that does not exist.
    """
    try:
        subject = _Subject(plan=compose(activation.current_profile(profile, overrides)), error=None)
    except UsageError:
        raise
    except KunhookError as error:
        subject = _Subject(plan=None, error=str(error))
    findings: list[Finding] = []
    for name in names:
        found = list(CHECKS[name](subject))
        findings.extend(Finding(name=name, state=state, message=message) for state, message in found)
    return findings


def _versions(subject: _Subject) -> Iterator[tuple[str, str]]:
    """SGLang and the required distributions are within the declared ranges."""
    found = versions.installed(versions.SGLANG)
    if reason := versions.unmet(versions.SGLANG, found, catalogue.SUPPORTED):
        yield FAILED, f"{reason}. Install one with: pip install 'sglang{catalogue.SUPPORTED}'"
    else:
        tested = "tested" if found in catalogue.TESTED else f"not among the tested versions {catalogue.TESTED}"
        yield (OK if found in catalogue.TESTED else WARN), f"sglang {found}, {tested}"
    for requirement in metadata.requires("kunhook") or ():
        if "extra ==" not in requirement and (reason := versions.unmet_requirement(requirement)):
            yield FAILED, reason
    yield OK, f"kunhook {versions.installed('kunhook')} with its requirements"


def _duplicates(subject: _Subject) -> Iterator[tuple[str, str]]:
    """No two distributions announce the same name; none is installed twice."""
    clean = True
    by_name: dict[tuple[str, str], list[discovery.Announcement]] = {}
    for point in discovery.announcements():
        by_name.setdefault((point.group, point.name), []).append(point)
    for (group, name), points in by_name.items():
        if len(points) > 1:
            clean = False
            named = " and ".join(f"{p.distribution} {p.version} ({p.value}, {p.location})" for p in points)
            yield FAILED, f"{group}: {name!r} is announced by {named}. Uninstall the one you do not want."
    interesting = {point.distribution for point in discovery.announcements()} | {"kunhook", "sglang"}
    places: dict[str, list[str]] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name in interesting:
            places.setdefault(name, []).append(f"{distribution.version} in {distribution.locate_file('')}")
    for name, found in places.items():
        if len(set(found)) > 1:
            clean = False
            yield WARN, f"{name} is found more than once, the first wins: {'; '.join(found)}"
    if clean:
        yield OK, "every announced name belongs to one distribution"


def _device(subject: _Subject) -> Iterator[tuple[str, str]]:
    """The stages of looking for each device."""
    if subject.plan is None:
        yield FAILED, subject.error or ""
        return
    if not subject.plan.detections:
        yield FAILED, "no enabled plugin detects a device; enable one, for example kunlun-device"
    for detection in subject.plan.detections:
        for stage in detection.stages:
            mark = {True: "ok", False: "failed", None: "not tried"}[stage.ok]
            state = WARN if stage.ok is False else OK
            yield state, f"{detection.device}, {stage.name}: {mark}, {stage.detail}"
        if detection.broken:
            yield FAILED, f"{detection.device} is broken: {detection.reason}"
        elif detection.present:
            yield OK, f"{detection.device} is present: {detection.reason}"
        else:
            yield WARN, f"{detection.device} is absent, the stack is inactive: {detection.reason}"


def _libraries(subject: _Subject) -> Iterator[tuple[str, str]]:
    """Libraries of the vendors' runtimes load; unresolved symbols are named."""
    registered = subject.plan.registrations if subject.plan else ()
    modules = sorted({module for each in registered for module in each.info.libraries})
    if not modules:
        yield OK, "no enabled plugin names a library"
    for module in modules:
        if util.find_spec(module) is None:
            yield OK, f"{module} is not installed"
            continue
        yield _import_alone(module)


def _import_alone(module: str) -> tuple[str, str]:
    """Import a vendor library in a process of its own, which may crash."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"], capture_output=True, text=True, timeout=_IMPORT_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"{module}: import did not end within {_IMPORT_TIMEOUT:.0f} s"
    if done.returncode == 0:
        return OK, f"{module} loads"
    if match := _UNDEFINED.search(done.stderr):
        return (
            FAILED,
            f"{module}: undefined symbol {match[1]}: its wheel does not fit the others; install a matching set",
        )
    if match := _MISSING.search(done.stderr):
        return (
            FAILED,
            f"{module}: library {match[1]} is missing; install the vendor's runtime or correct its search path",
        )
    if done.returncode < 0:
        return FAILED, f"{module}: the process was ended by signal {-done.returncode} while importing it"
    last = done.stderr.strip().splitlines()[-1:] or ["no output"]
    return FAILED, f"{module}: {last[0]}"


def _filters(subject: _Subject) -> Iterator[tuple[str, str]]:
    """SGLang's own switches name plugins that exist and let this stack in."""
    platforms = {p.name for p in discovery.announcements() if p.group == discovery.PLATFORM_GROUP}
    plugins = {p.name for p in discovery.announcements() if p.group == discovery.GENERAL_GROUP}
    clean = True
    selected = os.environ.get(activation.PLATFORM_VARIABLE)
    if selected and selected not in platforms:
        clean = False
        yield FAILED, f"{activation.PLATFORM_VARIABLE}={selected}: no such platform. {nearest(selected, platforms)}"
    listed = os.environ.get(activation.FILTER_VARIABLE, "")
    names = [name.strip() for name in listed.split(",") if name.strip()]
    for name in names:
        if name not in platforms | plugins:
            clean = False
            yield (
                FAILED,
                f"{activation.FILTER_VARIABLE} lists {name!r}, which nobody announces. "
                f"{nearest(name, platforms | plugins)}",
            )
    if names and activation.GENERAL_PLUGIN not in names:
        clean = False
        yield FAILED, f"{activation.FILTER_VARIABLE}={listed} leaves out {activation.GENERAL_PLUGIN!r}; add it"
    if names and not selected and not platforms.intersection(names):
        clean = False
        yield (
            FAILED,
            f"{activation.FILTER_VARIABLE}={listed} also filters platforms and lists none of "
            f"{', '.join(sorted(platforms))}; add yours, or set {activation.PLATFORM_VARIABLE}",
        )
    if clean:
        yield OK, f"{activation.PLATFORM_VARIABLE} and {activation.FILTER_VARIABLE} let the stack in"


def _plan(subject: _Subject) -> Iterator[tuple[str, str]]:
    """The plan of this environment could be started."""
    if subject.plan is None:
        yield FAILED, subject.error or ""
        return
    for problem in subject.plan.problems:
        yield FAILED, problem
    if not subject.plan.problems:
        device = subject.plan.device
        active = sum(row.state.value == "active" for row in subject.plan.rows)
        yield OK, f"plan {subject.plan.digest}: {active} active rows on {device.device if device else 'no device'}"


CHECKS: dict[str, Callable[[_Subject], Iterator[tuple[str, str]]]] = {
    "versions": _versions,
    "duplicates": _duplicates,
    "device": _device,
    "libraries": _libraries,
    "filters": _filters,
    "plan": _plan,
}
"""Every check by name, in the order they run."""
