"""Find plugins. One scan of the installed metadata per process; nothing is imported here."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import msgspec

from hookspecs import ENTRY_POINT_GROUP

PLATFORM_GROUP = "sglang.srt.platforms"
GENERAL_GROUP = "sglang.srt.plugins"


class Candidate(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A plugin: where its code is, and which distribution brought it.

    For a plugin file, ``value`` is its path, ``distribution`` says so, and ``version`` is a digest
    of its text, so that two processes with different texts do not pass for equal.
    """

    name: str
    distribution: str
    version: str
    value: str
    file: bool = False


class Announcement(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An entry point of any group, for checks on what else is installed."""

    group: str
    name: str
    value: str
    distribution: str
    version: str
    location: str


@functools.cache
def announcements() -> tuple[Announcement, ...]:
    """Every entry point of the three groups that matter here, sorted.

    The standard library already drops a distribution that is found a second time further down the
    path; the same (distribution, group, name, value) twice inside one counts once.
    """
    everything = metadata.entry_points()
    found = {
        Announcement(
            group=point.group,
            name=point.name,
            value=point.value,
            # A folder with entry points and no METADATA is a left-over of a broken uninstall.
            distribution=(point.dist and point.dist.name) or "unknown",
            version=(point.dist and point.dist.version) or "unknown",
            location=str(point.dist.locate_file("")) if point.dist else "",
        )
        for group in (ENTRY_POINT_GROUP, PLATFORM_GROUP, GENERAL_GROUP)
        for point in everything.select(group=group)
    }
    return tuple(sorted(found))


def candidates() -> tuple[Candidate, ...]:
    """Plugins announced under ``kunhook.plugins``, sorted by name; a name may occur twice."""
    return tuple(
        sorted(
            Candidate(name=point.name, distribution=point.distribution, version=point.version, value=point.value)
            for point in announcements()
            if point.group == ENTRY_POINT_GROUP
        )
    )


def twice(found: Iterable[Candidate]) -> dict[str, str]:
    """Names that several candidates have, and what to say about each."""
    by_name: dict[str, list[Candidate]] = {}
    for candidate in found:
        by_name.setdefault(candidate.name, []).append(candidate)
    return {
        name: f"the name is announced {len(same)} times: "
        + " and ".join(f"{c.distribution} {c.version} ({c.value})" for c in same)
        + (". Uninstall one." if len({c.distribution for c in same}) > 1 else ". Reinstall the distribution.")
        for name, same in by_name.items()
        if len(same) > 1
    }


def from_file(name: str, path: str) -> Candidate:
    """The candidate for a plugin file."""
    text = Path(path).read_bytes()
    return Candidate(
        name=name, distribution="(file)", version=hashlib.sha256(text).hexdigest()[:12], value=path, file=True
    )
