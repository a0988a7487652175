"""Order of implementations: what they ask for, then plugin name. The same on every machine."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kunhook.errors import KunhookError
from kunhook.registration import Implementation


def ordered(implementations: Iterable[Implementation]) -> tuple[Implementation, ...]:
    """Sort by ``before`` and ``after``, ties by plugin name.

    Raises:
        KunhookError: the constraints go round in a circle; the text names hook and plugins.
    """
    by_name = {implementation.plugin: implementation for implementation in implementations}
    followers: dict[str, set[str]] = {name: set() for name in by_name}
    for name, implementation in by_name.items():
        for other in implementation.marks.before:
            if other in by_name and other != name:
                followers[name].add(other)
        for other in implementation.marks.after:
            if other in by_name and other != name:
                followers[other].add(name)
    waiting = dict.fromkeys(by_name, 0)
    for names in followers.values():
        for name in names:
            waiting[name] += 1
    ready = [name for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    result = []
    while ready:
        name = heapq.heappop(ready)
        result.append(by_name[name])
        for follower in followers[name]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, follower)
    if len(result) < len(by_name):
        hook = next(iter(by_name.values())).hook
        circle = " -> ".join(_circle({name: followers[name] for name, count in waiting.items() if count}))
        raise KunhookError(f"hook {hook!r}: before/after go round in a circle: {circle}. Drop one constraint.")
    return tuple(result)


def _circle(followers: dict[str, set[str]]) -> list[str]:
    """One circle among plugins each of which follows another of them."""
    before = {follower: name for name in sorted(followers) for follower in sorted(followers[name])}
    way = [min(followers)]
    while way[-1] not in way[:-1]:
        way.append(before[way[-1]])
    return way[way.index(way[-1]) :][::-1]
