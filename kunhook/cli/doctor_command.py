"""``kunhook doctor``."""

from __future__ import annotations

import click

from kunhook.cli import options


@click.command("doctor")
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@options.profile_options
@options.json_option
@click.option("--list", "only_names", is_flag=True, help="Print the names of the checks.")
def command(
    checks: tuple[str, ...], profile: str | None, overrides: tuple[str, ...], as_json: bool, only_names: bool
) -> int:
    """Check the installation, one named check at a time. Without names, run all of them."""
    from kunhook import doctor

    if only_names:
        for name, check in doctor.CHECKS.items():
            click.echo(f"{name:12} {(check.__doc__ or '').partition(chr(10))[0]}")
        return 0
    for name in checks:
        options.one_of("check", name, doctor.CHECKS)
    findings = doctor.run(checks or tuple(doctor.CHECKS), profile=profile, overrides=overrides)
    if as_json:
        options.print_json({"checks": [{"name": f.name, "state": f.state, "message": f.message} for f in findings]})
    else:
        for finding in findings:
            click.echo(f"[{finding.state:6}] {finding.name}: {finding.message}")
    return 1 if any(finding.state == doctor.FAILED for finding in findings) else 0
