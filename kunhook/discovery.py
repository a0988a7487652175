"""Find plugins. One scan of the installed metadata per process; nothing is imported here."""

from __future__ import annotations

import functools
from importlib import metadata

import msgspec

from hookspecs import ENTRY_POINT_GROUP
from kunhook.errors import KunhookError

PLATFORM_GROUP = "sglang.srt.platforms"
GENERAL_GROUP = "sglang.srt.plugins"


class Candidate(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A plugin somebody announces: where its code is, and which distribution brought it."""

    name: str
    distribution: str
    version: str
    value: str


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
            distribution=point.dist.name if point.dist else "unknown",
            version=point.dist.version if point.dist else "unknown",
            location=str(point.dist.locate_file("")) if point.dist else "",
        )
        for group in (ENTRY_POINT_GROUP, PLATFORM_GROUP, GENERAL_GROUP)
        for point in everything.select(group=group)
    }
    return tuple(sorted(found))


def candidates() -> tuple[Candidate, ...]:
    """Plugins announced under ``kunhook.plugins``, sorted by name.

    Raises:
        KunhookError: two distributions announce one name, or one announces it with two values.
    """
    result: dict[str, Candidate] = {}
    for point in announcements():
        if point.group != ENTRY_POINT_GROUP:
            continue
        candidate = Candidate(
            name=point.name, distribution=point.distribution, version=point.version, value=point.value
        )
        other = result.setdefault(point.name, candidate)
        if other != candidate:
            raise KunhookError(
                f"plugin name {point.name!r} is announced twice: by {other.distribution} {other.version} "
                f"({other.value}) and by {candidate.distribution} {candidate.version} ({candidate.value}). "
                f"Uninstall one of the two distributions."
            )
    return tuple(result.values())
