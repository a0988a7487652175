"""Options that several commands share, and what they mean."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from kunhook.errors import UsageError, nearest
from kunhook.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])

SCHEMA = 1
"""Version of every ``--json`` output."""


def profile_options(function: F) -> F:
    """``--profile`` and ``--set``."""
    function = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one value; may be repeated."
    )(function)
    return click.option("--profile", metavar="NAME", help="Profile to use instead of $KUNHOOK_PROFILE.")(function)


json_option = click.option("--json", "as_json", is_flag=True, help="Plain JSON with stable keys.")
sim_option = click.option("--sim", is_flag=True, help="Use the software Kunlun (the same as KUNLUN_DEVICE=sim).")


def use_sim() -> None:
    """Make this process and its children look for the software Kunlun."""
    from kunlun_backend.device.detection import DEVICE_VARIABLE, SIM

    os.environ[DEVICE_VARIABLE] = SIM


def plan_of(profile: str | None, overrides: Iterable[str]) -> Plan:
    """Compose the plan of this environment, without loading any device runtime."""
    from kunhook.activation import current_profile
    from kunhook.plan import compose

    return compose(current_profile(profile, tuple(overrides)))


def one_of(kind: str, value: str | None, known: Iterable[str]) -> None:
    """Refuse a filter value that nothing could match."""
    names = set(known)
    if value is not None and value not in names:
        raise UsageError(f"unknown {kind} {value!r}. {nearest(value, names)}")


def print_json(data: dict[str, Any]) -> None:
    """Print plain JSON, no colour, keys in the order given."""
    click.echo(json.dumps({"schema": SCHEMA, **data}, indent=2, default=str))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, title: str | None = None) -> None:
    """Print a table as wide as the terminal; one line per row when output goes to a file."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_escape(str(cell)) for cell in row))
    if not console.is_terminal:
        console.width = 240
    console.print(table)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
