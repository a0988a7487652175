"""Cores for each rank of the software Kunlun."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from kunlun_backend.device import plugin, threads


@pytest.mark.parametrize(
    ("ranks", "cores", "binding"),
    [
        (1, [0, 1, 2, 3], "0,1,2,3"),
        (2, [0, 1, 2, 3], "0,1|2,3"),
        (3, [0, 1, 2, 3, 4, 5, 6], "0,1,2|3,4|5,6"),
        (2, [4, 7], "4|7"),
        (3, [4, 7], "4|7|4"),
        (3, [0, 2, 5, 9], "0,2|5|9"),
        (2, [3], "3|3"),
    ],
)
def test_binding(ranks: int, cores: list[int], binding: str) -> None:
    assert threads.binding(ranks, cores) == binding


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_every_rank_gets_cores_and_every_core_is_used(ranks: int, count: int) -> None:
    groups = [group.split(",") for group in threads.binding(ranks, list(range(count))).split("|")]
    assert len(groups) == ranks
    assert {int(core) for group in groups for core in group} == set(
        range(count if ranks < count else min(ranks, count))
    )
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ({}, 1),
        ({"tp_size": 4}, 4),
        ({"tp_size": 2, "pp_size": 2}, 4),
        ({"tp_size": 8, "nnodes": 2}, 4),
        ({"tp_size": 1, "nnodes": 2}, 1),
        ({"tp_size": 2, "dp_size": 2}, 4),
        ({"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, 4),
    ],
)
def test_ranks_on_this_host(arguments: dict[str, object], ranks: int) -> None:
    assert threads.ranks_on_this_host(server_args(**arguments)) == ranks


def server_args(**changes: object) -> SimpleNamespace:
    defaults = {"tp_size": 1, "pp_size": 1, "dp_size": 1, "nnodes": 1, "device": "cpu"}
    return SimpleNamespace(**defaults | changes)


def test_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 1, 3})
    assert threads.available_cores() == [1, 3, 5]
    environment = plugin.get_launch_env(server_args(tp_size=2))
    assert environment[threads.BIND_VARIABLE].value == "1,3|5"
    assert environment[threads.BIND_VARIABLE].reason == "2 rank(s) share 3 core(s)"


def test_no_binding_on_the_card() -> None:
    assert plugin.get_launch_env(server_args(device="cuda")) is None
