"""The contract package: decorators, marks, records."""

from __future__ import annotations

import functools
import inspect

import msgspec
import pytest

import hookspecs
from hookspecs import HOOKS, Asked, ImplMarks, Mode, hookimpl, hookspec, impl_marks, records, spec_marks

RECORDS = [
    value
    for value in vars(records).values()
    if inspect.isclass(value) and issubclass(value, msgspec.Struct) and value.__module__ == records.__name__
]


def answer() -> None: ...


@pytest.mark.parametrize(
    ("options", "marks"),
    [
        ({}, ImplMarks()),
        ({"replaces": "a"}, ImplMarks(replaces=("a",))),
        ({"before": ("a", "b"), "after": "c"}, ImplMarks(before=("a", "b"), after=("c",))),
    ],
)
def test_hookimpl_leaves_its_marks(options: dict[str, object], marks: ImplMarks) -> None:
    function = hookimpl(**options)(lambda: None)
    assert impl_marks(function) == marks


def test_hookimpl_works_with_and_without_parentheses() -> None:
    def one() -> None: ...

    def two() -> None: ...

    assert hookimpl(one) is one
    assert hookimpl()(two) is two
    assert impl_marks(one) == impl_marks(two) == ImplMarks()


def test_a_function_without_marks() -> None:
    assert impl_marks(answer) == ImplMarks()
    assert spec_marks(answer) is None


@pytest.mark.parametrize("option", ["tryfirst", "trylast", "wrapper", "hookwrapper", "specname"])
def test_hookimpl_has_no_option_of_pluggy(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        hookimpl(**{option: True})


def test_hookspec_records_keys_and_moment() -> None:
    @hookspec(mode=Mode.ONE, since=1, none="Nothing.", asked=Asked.WORKER, key=("kind", ("a", "b")), must_run=True)
    def get_thing(kind: str) -> None: ...

    marks = spec_marks(get_thing)
    assert marks is not None
    assert (marks.mode, marks.asked, marks.must_run) == (Mode.ONE, Asked.WORKER, True)
    assert (marks.key_argument, marks.keys) == ("kind", ("a", "b"))


def test_hookspec_needs_mode_since_and_none() -> None:
    with pytest.raises(TypeError, match=r"mode.*since.*none"):
        hookspec()


def test_signature_and_summary_are_for_people() -> None:
    spec = HOOKS["get_comm_init_sizing"]
    assert spec.signature == (
        "get_comm_init_sizing(group: CommGroup, detection: DeviceDetection) -> CommInitSizing | None"
    )
    assert spec.summary == "Choose the sizes used while a communication group is created."
    assert (spec.subject, spec.arguments) == ("comm", ("group", "detection"))


@pytest.mark.parametrize(
    ("hook", "has_winner"),
    [("get_comm_backend", True), ("get_op_impls", True), ("check_server_args", False), ("get_launch_env", False)],
)
def test_a_winner_exists_only_where_the_plan_asks(hook: str, has_winner: bool) -> None:
    assert HOOKS[hook].has_winner is has_winner


def test_every_specification_is_listed() -> None:
    written = {
        name
        for module in hookspecs.SPEC_MODULES
        for name, value in vars(module).items()
        if inspect.isfunction(value) and spec_marks(value)
    }
    assert written == set(HOOKS)
    assert [module.__name__.rpartition(".")[2] for module in hookspecs.SPEC_MODULES] == list(
        dict.fromkeys(spec.subject for spec in HOOKS.values())
    )


def test_everything_exported_exists() -> None:
    assert [name for name in hookspecs.__all__ if not hasattr(hookspecs, name)] == []
    assert {record.__name__ for record in RECORDS} <= set(hookspecs.__all__)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_records_are_frozen_and_compare_by_value(record: type[msgspec.Struct]) -> None:
    fields = msgspec.structs.fields(record)
    values = {field.name: "x" for field in fields if field.required}
    one, two = record(**values), record(**values)
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(AttributeError):
        setattr(one, fields[0].name, "y")
    with pytest.raises(TypeError):
        record(*values.values(), "positional")


def test_marks_survive_functools_wraps() -> None:
    @hookimpl(replaces="a")
    def get_comm_backend() -> str:
        return "gloo"

    @functools.wraps(get_comm_backend)
    def wrapper() -> str:
        return get_comm_backend()

    assert impl_marks(wrapper).replaces == ("a",)
