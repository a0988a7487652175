"""``kunhook plugins``."""

from __future__ import annotations

import os
from typing import Any

import click

from kunhook import discovery
from kunhook.cli import options
from kunhook.plan import ANY_HOOK, Plan, State


@click.group("plugins", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int | None:
    """Installed plugins and what they provide."""
    return context.invoke(list_plugins) if context.invoked_subcommand is None else None


@command.command("list")
@options.profile_options
@options.json_option
def list_plugins(profile: str | None = None, overrides: tuple[str, ...] = (), as_json: bool = False) -> int:
    """Name, distribution, version, hooks, operators and state of every plugin."""
    plan = options.plan_of(profile, overrides)
    plugins = [_describe(plan, candidate) for candidate in discovery.candidates()]
    if as_json:
        options.print_json({"profile": plan.profile.name, "plugins": plugins})
    else:
        options.print_table(
            ("PLUGIN", "DISTRIBUTION", "VERSION", "STATE", "HOOKS", "OPERATORS", "WHY"),
            (
                (
                    p["name"],
                    p["distribution"],
                    p["version"],
                    p["state"],
                    ", ".join(p["hooks"]),
                    ", ".join(p["operators"]),
                    p["why"],
                )
                for p in plugins
            ),
        )
    return 1 if any(p["state"] == State.FAILED for p in plugins) else 0


def _edit(action: Any, plugin: str, profile: str | None) -> int:
    from pathlib import Path

    from kunhook import profile as profiles

    # A broken profile must not keep anybody from switching a plugin off, so it is not loaded here.
    options.one_of("plugin", plugin, {candidate.name for candidate in discovery.candidates()})
    file = profiles.config_file() or Path("kunhook.toml")
    name = profile or os.environ.get(profiles.PROFILE_ENV) or profiles.DEFAULT_PROFILE
    click.echo(action(file, name, plugin))
    return 0


_profile_option = click.option(
    "--profile", metavar="NAME", help="Profile to edit instead of $KUNHOOK_PROFILE; made when there is none."
)


@command.command("enable")
@click.argument("plugin")
@_profile_option
def enable(plugin: str, profile: str | None) -> int:
    """Let a plugin in: edits the profile file, keeps its comments."""
    from kunhook import profile_edit

    return _edit(profile_edit.enable, plugin, profile)


@command.command("disable")
@click.argument("plugin")
@_profile_option
def disable(plugin: str, profile: str | None) -> int:
    """Keep a plugin out: edits the profile file, keeps its comments."""
    from kunhook import profile_edit

    return _edit(profile_edit.disable, plugin, profile)


def _describe(plan: Plan, candidate: discovery.Candidate) -> dict[str, Any]:
    rows = [row for row in plan.rows if row.plugin == candidate.name]
    whole = next((row for row in rows if row.hook == ANY_HOOK), None)
    allowed, rule = plan.profile.plugin_rule(candidate.name)
    states = {row.state for row in rows}
    if whole is not None:
        state, why = whole.state, whole.why
    elif State.FAILED in states:
        state, why = State.FAILED, next(row.why for row in rows if row.state is State.FAILED)
    elif State.ACTIVE in states:
        state, why = State.ACTIVE, rule
    else:
        state, why = State.INACTIVE, rows[0].why if rows else rule
    return {
        "name": candidate.name,
        "distribution": candidate.distribution,
        "version": candidate.version,
        "value": candidate.value,
        "enabled": allowed,
        "state": state,
        "why": why,
        "hooks": sorted({row.hook for row in rows if row.hook != ANY_HOOK}),
        "operators": sorted({row.key for row in rows if row.hook == "get_op_impls" and row.key}),
    }
