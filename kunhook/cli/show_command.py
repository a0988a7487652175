"""``kunhook show HOOK``."""

from __future__ import annotations

import inspect
from typing import Any

import click
import msgspec

from hookspecs import HOOKS
from kunhook import profile as profiles
from kunhook.cli import options
from kunhook.plan import Plan
from kunhook.seams.catalogue import Kind, Seam, seam_for, seams_of


@click.command("show")
@click.argument("hook")
@options.profile_options
@options.json_option
def command(hook: str, profile: str | None, overrides: tuple[str, ...], as_json: bool) -> int:
    """One hook: contract, implementations, winning rule, seam."""
    options.one_of("hook", hook, HOOKS)
    plan = options.plan_of(profile, overrides)
    spec = HOOKS[hook]
    marks = spec.marks
    rows = [row for row in plan.rows if row.hook == hook]
    seam = seam_for(hook, plan.sglang)
    facts: dict[str, Any] = {
        "hook": hook,
        "subject": spec.subject,
        "signature": spec.signature,
        "mode": marks.mode,
        "asked": marks.asked,
        "keys": list(marks.keys),
        "since": marks.since,
        "none": marks.none,
        "params": [f.name for f in msgspec.structs.fields(marks.params)] if marks.params else [],
        "sglang": plan.sglang,
        "seam": _seam_data(seam) if seam else None,
        "seams": [_seam_data(each) for each in seams_of(hook)],
        "debt": seam.target if seam and seam.kind is Kind.DEBT else None,
        "implementations": [msgspec.to_builtins(row) for row in rows],
        "ladder": _ladder(plan, hook),
        "answers": {key: repr(value) for key, value in plan.named(hook).items()},
    }
    if as_json:
        options.print_json(facts)
        return 0
    click.echo(f"{spec.signature}\n")
    click.echo(f"{inspect.getdoc(spec.function)}\n")
    for label, text in (
        ("Mode", f"{marks.mode}, asked at {marks.asked}, since contract version {marks.since}"),
        ("None", marks.none),
        ("Params", ", ".join(facts["params"]) or "none"),
        ("Seam", _seam_text(seam) if seam else f"none in SGLang {plan.sglang}"),
    ):
        click.echo(f"{label + ':':8} {text}")
    for each in seams_of(hook):
        if each is not seam:
            click.echo(f"{'':8} in SGLang {each.sglang}: {each.kind}, {each.target}")
    click.echo()
    if rows:
        options.print_table(
            ("KEY", "PLUGIN", "VERSION", "STATE", "WHY"), ((r.key, r.plugin, r.version, r.state, r.why) for r in rows)
        )
    else:
        click.echo("No plugin implements it.")
    for rung in facts["ladder"]:
        click.echo(f"{'->' if rung['wins'] else '  '} {rung['layer']:12} {rung['text']}")
    for key, value in plan.named(hook).items():
        click.echo(f"answer{f'[{key}]' if key else ''}: {value!r}")
    return 0


def _ladder(plan: Plan, hook: str) -> list[dict[str, Any]]:
    """The layers of precedence, highest first, with what each says about the hook; the winner is marked."""
    prefixes = ("ops.",) if hook == "get_op_impls" else ()
    said: dict[str, list[str]] = {"--set": [], profiles.SET_ENV: [], "profile": []}
    for setting in plan.profile.written:
        if setting.key.startswith((f"hooks.{hook}.", *prefixes)):
            place = str(setting.source)
            layer = place if place in said else "profile"
            where = f"  ({place})" if layer == "profile" else ""
            said[layer].append(f"{setting.key} = {setting.value!r}{where}")
    rungs = [(layer, "; ".join(texts) or "says nothing", bool(texts)) for layer, texts in said.items()]
    replacing = [row for row in plan.rows if row.hook == hook and row.why.startswith("replaces ")]
    texts = [f"{row.plugin} {row.why}" for row in replacing]
    rungs.append(("replaces", "; ".join(texts) or "nobody declares it", bool(texts)))
    active = list(dict.fromkeys(row.plugin for row in plan.rows if row.hook == hook and row.state == "active"))
    rungs.append(("plugins", ", ".join(active) or "nobody answers", bool(active)))
    rungs.append(("default", HOOKS[hook].marks.none, True))
    winner = next(layer for layer, _, speaks in rungs if speaks)
    return [{"layer": layer, "text": text, "wins": layer == winner} for layer, text, _ in rungs]


def _seam_data(seam: Seam) -> dict[str, str]:
    return {"kind": seam.kind, "target": seam.target, "sglang": seam.sglang}


def _seam_text(seam: Seam) -> str:
    return f"{seam.kind}: {seam.target} (SGLang {seam.sglang})"
