"""``kunhook list``."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from hookspecs import HOOKS
from kunhook.cli import options
from kunhook.errors import KunhookError
from kunhook.plan import ANY_HOOK, Plan, State

_COLUMNS = ("HOOK", "PLUGIN", "VERSION", "STATE", "WHY")
_LIVE_COLUMNS = ("ROLE", "PID", *_COLUMNS)


@click.command("list")
@options.profile_options
@options.json_option
@click.option("--hook", metavar="HOOK", help="Only this hook.")
@click.option("--plugin", metavar="PLUGIN", help="Only this plugin.")
@click.option("--state", metavar="STATE", help=f"Only this state: {', '.join(State)}.")
@click.option("--live", is_flag=True, help="What the running processes have read back from SGLang.")
def command(
    profile: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    hook: str | None,
    plugin: str | None,
    state: str | None,
    live: bool,
) -> int:
    """Every hook and plugin with state and reason."""
    plan = options.plan_of(profile, overrides)
    options.one_of("hook", hook, [*HOOKS, ANY_HOOK])
    options.one_of("plugin", plugin, {row.plugin for row in plan.rows})
    options.one_of("state", state, list(State))

    def wanted(row: Any) -> bool:
        return all(w is None or w == f for w, f in ((hook, row.hook), (plugin, row.plugin), (state, row.state)))

    return _live(plan, wanted, as_json) if live else _planned(plan, wanted, as_json)


def _planned(plan: Plan, wanted: Any, as_json: bool) -> int:
    rows = [row for row in plan.rows if wanted(row)]
    if as_json:
        options.print_json(_plan_data(plan, rows))
    else:
        options.print_table(_COLUMNS, ((_label(r), r.plugin, r.version, r.state, r.why) for r in rows))
        click.echo(f"plan {plan.digest}, profile {plan.profile.name or '(none)'}")
    for problem in plan.problems:
        click.echo(f"kunhook: {problem}", err=True)
    return 1 if plan.problems else 0


def _live(plan: Plan, wanted: Any, as_json: bool) -> int:
    from kunhook import manifest

    processes = manifest.read()
    reports = {process.manifest.pid: _report_of(process) for process in processes}
    problems = [*_disagreeing(processes), *_unused(processes, reports)]
    if as_json:
        data = _plan_data(plan, [row for row in plan.rows if wanted(row)])
        data["processes"] = []
        for process in processes:
            entry = manifest.to_builtins(process)
            entry["hooks"] = [msgspec.to_builtins(h) for h in process.manifest.hooks if wanted(h)]
            entry |= reports[process.manifest.pid]
            data["processes"].append(entry)
        options.print_json(data)
    elif not processes:
        click.echo("no running process has a plan of this user")
    else:
        rows = [
            (p.role, str(p.manifest.pid), _label(h), h.plugin, h.version, h.state, h.why)
            for p in processes
            for h in p.manifest.hooks
            if wanted(h)
        ]
        options.print_table(_LIVE_COLUMNS, rows)
        for process in processes:
            report = reports[process.manifest.pid]
            click.echo(f"{process.role} {process.manifest.pid}: plan {process.manifest.digest}{_numbers(report)}")
    for problem in problems:
        click.echo(f"kunhook: {problem}", err=True)
    return 1 if problems else 0


def _report_of(process: Any) -> dict[str, Any]:
    """What a process says of itself now; nothing when it does not answer."""
    from kunhook import control

    try:
        reply = control.request(process.manifest.pid, {"command": "report"})
    except KunhookError:
        return {"used": {}, "calls": {}}
    return {name: reply[name] for name in ("used", "calls", "metrics")}


def _numbers(report: dict[str, Any]) -> str:
    named = {**report["calls"], **report.get("metrics", {})}
    return "".join(f", {name} {value:g}" for name, value in named.items())


def _unused(processes: list[Any], reports: dict[int, dict[str, Any]]) -> list[str]:
    """Hooks that have to run and were used by no process of a server that has loaded its model."""
    families: dict[int, list[Any]] = {}
    for process in processes:
        families.setdefault(process.manifest.launcher, []).append(process)
    problems: list[str] = []
    for launcher, family in families.items():
        if not any(process.manifest.ready for process in family):
            continue
        used = {hook for process in family for hook, count in reports[process.manifest.pid]["used"].items() if count}
        problems.extend(
            f"hook {hook.hook} of plugin {hook.plugin} has to run, but no process of launcher {launcher} used it; "
            f"its seam is {hook.seam}"
            for hook in family[0].manifest.hooks
            if hook.planned and HOOKS[hook.hook].marks.must_run and hook.hook not in used
        )
    return problems


def _disagreeing(processes: list[Any]) -> list[str]:
    digests: dict[int, set[str]] = {}
    for process in processes:
        digests.setdefault(process.manifest.launcher, set()).add(process.manifest.digest)
    return [
        f"processes of launcher {pid} run different plans" for pid, found in sorted(digests.items()) if len(found) > 1
    ]


def _plan_data(plan: Plan, rows: list[Any]) -> dict[str, Any]:
    return {
        "profile": plan.profile.name,
        "digest": plan.digest,
        "device": plan.device.device if plan.device else None,
        "hooks": [msgspec.to_builtins(row) for row in rows],
        "problems": list(plan.problems),
    }


def _label(row: Any) -> str:
    return f"{row.hook}[{row.key}]" if row.key else str(row.hook)
