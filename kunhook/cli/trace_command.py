"""``kunhook trace``."""

from __future__ import annotations

from typing import Any

import click

from hookspecs import HOOKS
from kunhook.cli import options
from kunhook.errors import KunhookError


@click.group("trace")
def command() -> None:
    """Count and time the calls of one hook in running processes."""


_hook_option = click.option("--hook", required=True, metavar="HOOK", help="Hook to trace.")
_key_option = click.option("--key", metavar="KEY", help="Only this key of the hook, for example an operator.")
_pid_option = click.option("--pid", type=int, metavar="PID", help="Only this process; default every scheduler.")


@command.command("on")
@_hook_option
@_key_option
@_pid_option
@options.json_option
def switch_on(hook: str, key: str | None, pid: int | None, as_json: bool) -> int:
    """Swap the hook's callables for counting ones."""
    return _send("on", hook, key, pid, as_json)


@command.command("off")
@_hook_option
@_key_option
@_pid_option
@options.json_option
def switch_off(hook: str, key: str | None, pid: int | None, as_json: bool) -> int:
    """Put the original callables back and print what was counted."""
    return _send("off", hook, key, pid, as_json)


@command.command("show")
@_pid_option
@options.json_option
def show(pid: int | None, as_json: bool) -> int:
    """Print what is traced and what was counted."""
    return _send("report", None, None, pid, as_json)


def _send(action: str, hook: str | None, key: str | None, pid: int | None, as_json: bool) -> int:
    from kunhook import control

    options.one_of("hook", hook, HOOKS)
    answers = []
    for process in _processes(pid):
        reply = control.request(process.manifest.pid, {"command": "trace", "action": action, "hook": hook, "key": key})
        answers.append({"pid": process.manifest.pid, "role": process.role, **reply})
    if as_json:
        options.print_json({"processes": answers})
        return 0
    for answer in answers:
        click.echo(f"{answer['role']} {answer['pid']}: tracing {', '.join(answer['tracing']) or 'nothing'}")
        for name, calls in answer["calls"].items():
            mean = 1e6 * calls["seconds"] / calls["count"] if calls["count"] else 0.0
            click.echo(f"  {name}: {calls['count']} calls, {mean:.1f} us each")
    return 0


def _processes(pid: int | None) -> list[Any]:
    from kunhook import manifest

    found = manifest.read()
    if pid is not None:
        chosen = [process for process in found if process.manifest.pid == pid]
        if not chosen:
            raise KunhookError(f"no running process {pid} has a plan of this user; see: kunhook list --live")
        return chosen
    chosen = [process for process in found if process.role.startswith("scheduler")]
    if not chosen:
        raise KunhookError("no scheduler of this user is running; start a server first.")
    return chosen
