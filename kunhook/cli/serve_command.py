"""``kunhook serve``."""

from __future__ import annotations

import os

import click

from kunhook.cli import options


@click.command("serve", context_settings={"ignore_unknown_options": True})
@options.profile_options
@options.sim_option
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="-- SGLANG_FLAGS...")
def command(profile: str | None, overrides: tuple[str, ...], sim: bool, flags: tuple[str, ...]) -> None:
    """Start `sglang serve` with the plan composed. Everything after -- is SGLang's."""
    from kunhook import launch

    if sim:
        options.use_sim()
    plan = options.plan_of(profile, overrides)
    device = launch.refuse_unstartable(plan)
    arguments = launch.command_line(flags)
    os.execve(arguments[0], arguments, launch.environment(plan, device, overrides))
