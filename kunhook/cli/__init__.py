"""The command line ``kunhook``. Results on stdout, errors on stderr.

Exit status: 0 fine, 1 a check failed, 2 wrong usage. Commands are imported when they are called, so
that ``kunhook list`` stays quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from kunhook.errors import KunhookError

_COMMANDS = {
    "audit": "Every attribute that differs with us loaded, and which declared seam explains it.",
    "config": "Effective configuration and where each value comes from.",
    "demo": "Serve a real model on the software Kunlun, ask it one question, show the hooks, stop.",
    "diff": "What changed between two versions of SGLang at every seam and debt, and what to do.",
    "doctor": "Check the installation, one named check at a time.",
    "env": "Environment report to paste into an issue.",
    "list": "Every hook and plugin with state and reason; --live asks the running processes.",
    "plan": "The plan that would run, also for a device that is not here.",
    "plugins": "Installed plugins and what they provide.",
    "serve": "Start SGLang's server with the plan composed.",
    "show": "One hook: contract, implementations, winning rule, seam.",
    "trace": "Count and time the calls of one hook in running processes.",
}


class _LazyGroup(click.Group):
    """Loads the module of a command only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"kunhook.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kunhook")
def cli() -> None:
    """Hardware plug-ins for SGLang: compose, list, override, check."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        result: Any = cli.main(args=argv, standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except KunhookError as error:
        click.echo(f"kunhook: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe, such as head, has seen enough.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(result if isinstance(result, int) else 0)
