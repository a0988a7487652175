"""``kunhook audit``."""

from __future__ import annotations

import click
import msgspec

from kunhook.cli import options


@click.command("audit")
@options.profile_options
@options.json_option
@click.option("--verbose", is_flag=True, help="Also print what explains each difference, and how much is unstable.")
def command(profile: str | None, overrides: tuple[str, ...], as_json: bool, verbose: bool) -> int:
    """Every attribute that differs with us loaded, and which declared seam explains it.

    Takes a minute: three interpreters import SGLang, one of them on the software Kunlun.
    """
    from kunhook.audit import run

    options.use_sim()
    plan = options.plan_of(profile, overrides)
    report, unstable = run.audit(plan, overrides)
    if as_json:
        options.print_json(msgspec.to_builtins(report))
    else:
        for label, findings in (
            ("unexplained", report.unexplained),
            ("debt", report.debts),
            ("explained", report.explained),
        ):
            for f in findings:
                click.echo(
                    f"{label:11} {f.where}: {_change(f.kind, f.before, f.after)}{_why(f.hook, f.seam, f.why, verbose)}"
                )
        click.echo(
            f"{len(report.unexplained)} unexplained, {len(report.debts)} in debt, {len(report.explained)} explained; "
            f"plan {plan.digest}, profile {plan.profile.name or '(none)'}"
        )
        if verbose:
            click.echo(f"{unstable} things differ between two runs without us and were left out")
    return 1 if report.unexplained else 0


def _change(kind: str, before: str, after: str) -> str:
    return f"{kind} {before} -> {after}" if before and after else f"{kind} {before or after}"


def _why(hook: str, seam: str, why: str, verbose: bool) -> str:
    if not seam:
        return ""
    return f" [{hook or 'own'}]" + (f" {seam}; {why}" if verbose else "")
