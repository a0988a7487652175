"""Order: constraints first, then plugin name; never chance."""

from __future__ import annotations

import itertools

import pytest

from hookspecs import ImplMarks
from kunhook.errors import KunhookError
from kunhook.order import ordered
from kunhook.registration import Implementation


def implementation(plugin: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Implementation:
    return Implementation(
        hook="init_backend",
        plugin=plugin,
        function=lambda: None,
        arguments=(),
        marks=ImplMarks(before=before, after=after),
    )


@pytest.mark.parametrize(
    ("constraints", "order"),
    [
        ({"a": {}, "b": {}, "c": {}}, "abc"),
        ({"a": {"after": ("c",)}, "b": {}, "c": {}}, "bca"),
        ({"a": {}, "b": {}, "c": {"before": ("a",)}}, "bca"),
        ({"a": {"after": ("b",)}, "b": {"after": ("c",)}, "c": {"after": ("d",)}, "d": {}}, "dcba"),
        ({"a": {"after": ("c",)}, "b": {}, "c": {"before": ("a",)}}, "bca"),
        ({"a": {"after": ("absent",), "before": ("absent",)}, "b": {}}, "ab"),
        ({"a": {"after": ("a",)}, "b": {}}, "ab"),
    ],
)
def test_order_of_any_permutation(constraints: dict[str, dict[str, tuple[str, ...]]], order: str) -> None:
    implementations = [implementation(plugin, **marks) for plugin, marks in constraints.items()]
    for permutation in itertools.permutations(implementations):
        assert "".join(i.plugin for i in ordered(permutation)) == order


@pytest.mark.parametrize(
    ("constraints", "circle"),
    [
        ({"a": {"after": ("b",)}, "b": {"after": ("a",)}}, "a -> b -> a"),
        ({"a": {"before": ("b",)}, "b": {"before": ("c",)}, "c": {"before": ("a",)}}, "a -> b -> c -> a"),
        # "a" and "z" only stand next to the circle; dropping their constraints would not help.
        ({"a": {"after": ("m",)}, "m": {"after": ("n",)}, "n": {"after": ("m",)}, "z": {}}, "m -> n -> m"),
    ],
)
def test_a_circle_names_hook_and_its_plugins(constraints: dict[str, dict[str, tuple[str, ...]]], circle: str) -> None:
    with pytest.raises(KunhookError) as caught:
        ordered(implementation(plugin, **marks) for plugin, marks in constraints.items())
    assert str(caught.value) == (
        f"hook 'init_backend': before/after go round in a circle: {circle}. Drop one constraint."
    )


def test_nothing_to_order() -> None:
    assert ordered([]) == ()
