"""``kunhook plan``."""

from __future__ import annotations

import click
import msgspec

from kunhook.cli import options
from kunhook.digest import encoded
from kunhook.plan import compose


@click.command("plan")
@options.profile_options
@options.json_option
@options.sim_option
def command(profile: str | None, overrides: tuple[str, ...], as_json: bool, sim: bool) -> int:
    """The plan that would run, on a machine without device, torch or SGLang.

    A device that is not here is assumed to be; only the rows say so.
    """
    from kunhook.activation import current_profile

    if sim:
        options.use_sim()
    plan = compose(current_profile(profile, overrides), assume=True)
    if as_json:
        options.print_json(
            {
                "profile": plan.profile.name,
                "device": msgspec.to_builtins(plan.device),
                "sglang": plan.sglang,
                "digest": plan.digest,
                "answers": {
                    hook: {key: {"plugin": a.plugin, "value": encoded(a.value)} for key, a in keys.items()}
                    for hook, keys in plan.answers.items()
                },
                "calls": {hook: [call.plugin for call in calls] for hook, calls in plan.calls.items()},
                "hooks": [msgspec.to_builtins(row) for row in plan.rows],
                "problems": list(plan.problems),
            }
        )
    else:
        for hook, keys in plan.answers.items():
            for key, answer in keys.items():
                click.echo(f"{hook}{f'[{key}]' if key else ''} = {encoded(answer.value)}  ({answer.plugin})")
        for hook, calls in plan.calls.items():
            click.echo(f"{hook} calls {', '.join(call.plugin for call in calls)}")
        click.echo(f"plan {plan.digest}, profile {plan.profile.name or '(none)'}")
    for problem in plan.problems:
        click.echo(f"kunhook: {problem}", err=True)
    return 1 if plan.problems else 0
