"""Settle who wins: profile first, then ``replaces``, then the only answer; else a conflict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from hookspecs import HookSpec, Mode, OpImpl, VendorOps
from hookspecs.kernels import OPERATORS
from kunhook.errors import KunhookError, nearest
from kunhook.profile import NOBODY, Choice, Profile
from kunhook.registration import Implementation

PROFILE_PLUGIN = "(profile)"
"""Shown as the plugin of an answer that a profile's parameters made on their own."""

REFERENCE = "reference"


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's answer for one key. ``label`` is the key as listed."""

    key: str
    label: str
    plugin: str
    value: Any
    replaces: tuple[str, ...] = ()
    provider: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A winning answer."""

    plugin: str
    value: Any


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one proposal."""

    key: str
    plugin: str
    state: Literal["active", "shadowed", "failed"]
    why: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of resolving one hook."""

    answers: Mapping[str, Answer]
    verdicts: tuple[Verdict, ...]
    problems: tuple[str, ...]


def proposals(spec: HookSpec, key: str, implementation: Implementation, value: Any) -> Iterable[Proposal]:
    """Split one plugin's answer into proposals, one per key.

    Raises:
        KunhookError: an implementation of an operator nobody knows.
    """
    common: dict[str, Any] = {"plugin": implementation.plugin, "replaces": implementation.marks.replaces}
    if spec.marks.mode is Mode.ONE:
        return [Proposal(key=key, label=key, value=value, **common)]
    if isinstance(value, Mapping):
        return [Proposal(key=name, label=name, value=item, **common) for name, item in value.items()]
    offered = [_op_proposal(impl, common) for impl in value]
    for label, count in Counter(proposal.label for proposal in offered).items():
        if count > 1:
            raise KunhookError(
                f"plugin {implementation.plugin!r} offers {label} {count} times; give providers other names."
            )
    return offered


def _op_proposal(impl: OpImpl, common: dict[str, Any]) -> Proposal:
    if impl.op not in OPERATORS:
        raise KunhookError(
            f"plugin {common['plugin']!r} implements unknown operator {impl.op!r}. {nearest(impl.op, OPERATORS)}"
        )
    return Proposal(key=impl.op, label=f"{impl.op}@{impl.provider}", value=impl, provider=impl.provider, **common)


def resolve(spec: HookSpec, all_proposals: list[Proposal], profile: Profile) -> Outcome:
    """Pick the winner for every key of one hook."""
    by_key: dict[str, list[Proposal]] = {}
    for proposal in all_proposals:
        by_key.setdefault(proposal.key, []).append(proposal)
    with_params = [key for key in spec.marks.keys or ("",) if profile.hook_params(spec.name, key)]
    answers: dict[str, Answer] = {}
    verdicts: list[Verdict] = []
    problems: list[str] = []
    for key in [*by_key, *(key for key in with_params if key not in by_key)]:
        winner, more, problem = _winner(spec, key, by_key.get(key, []), profile)
        verdicts.extend(more)
        if problem:
            problems.append(problem)
        answer = Answer(plugin=winner.plugin, value=winner.value) if winner else None
        choice = profile.hook_choice(spec.name, key or None)
        if not problem and (choice is None or choice.value != NOBODY):
            answer = _with_params(spec, key, answer, profile, verdicts)
        if answer:
            answers[key] = answer
    problems.extend(_unused_choices(spec, set(by_key), {p.plugin for p in all_proposals}, profile))
    return Outcome(answers=answers, verdicts=tuple(verdicts), problems=tuple(problems))


def _winner(
    spec: HookSpec, key: str, candidates: list[Proposal], profile: Profile
) -> tuple[Proposal | None, list[Verdict], str | None]:
    choice = profile.hook_choice(spec.name, key or None)
    if choice is not None and candidates and not _leaves_open(choice, key, candidates):
        return _chosen(spec, key, candidates, choice)
    standing, verdicts = _standing(candidates)
    if not standing:
        return None, verdicts, None
    plugins = list(dict.fromkeys(proposal.plugin for proposal in standing))
    if len(plugins) > 1:
        return None, verdicts + _conflict(standing, plugins, key), _conflict_text(spec, key, plugins)
    winner, *others = standing
    verdicts.extend(
        Verdict(key=o.label, plugin=o.plugin, state="shadowed", why=f"{winner.label} comes first") for o in others
    )
    replaced = [p for p in winner.replaces if any(c.plugin == p for c in candidates)]
    why = f"replaces {', '.join(replaced)}" if replaced else "only implementation"
    verdicts.append(Verdict(key=winner.label, plugin=winner.plugin, state="active", why=why))
    return winner, verdicts, None


def _standing(candidates: list[Proposal]) -> tuple[list[Proposal], list[Verdict]]:
    """Proposals that compete without a profile: no references, none that is replaced."""
    verdicts: list[Verdict] = []
    proposing = [c for c in candidates if c.provider != REFERENCE]
    for reference in (c for c in candidates if c.provider == REFERENCE):
        why = f"a reference is used only when a profile says ops.{reference.key}.use = {REFERENCE!r}"
        verdicts.append(Verdict(key=reference.label, plugin=reference.plugin, state="shadowed", why=why))
    replacing = _replaced_by(proposing)
    standing = []
    for proposal in proposing:
        if by := replacing.get(proposal.plugin):
            why = f"{by} declares replaces={proposal.plugin!r}"
            verdicts.append(Verdict(key=proposal.label, plugin=proposal.plugin, state="shadowed", why=why))
        else:
            standing.append(proposal)
    return standing, verdicts


def _replaced_by(proposing: list[Proposal]) -> dict[str, str]:
    """Plugins that give way, and to whom.

    Plugins that replace each other, directly or round a circle, all keep standing: none of them may
    vanish, so they are a conflict like any other.
    """
    direct = {c.plugin: sorted(set(c.replaces) - {c.plugin}) for c in proposing}

    def reached(plugin: str) -> set[str]:
        found: set[str] = set()
        waiting = [plugin]
        while waiting:
            new = set(direct.get(waiting.pop(), ())) - found
            found |= new
            waiting.extend(new)
        return found

    return {loser: winner for winner in sorted(direct) for loser in direct[winner] if winner not in reached(loser)}


def _leaves_open(choice: Choice, key: str, candidates: list[Proposal]) -> bool:
    """A plugin chosen for a whole hook says nothing about the keys it does not answer."""
    return choice.whole and bool(key) and choice.value != NOBODY and not any(_matches(c, choice) for c in candidates)


def _matches(candidate: Proposal, choice: Choice) -> bool:
    """``use`` names a plugin, a provider, or one provider of a plugin."""
    return choice.value in (candidate.plugin, candidate.provider, f"{candidate.plugin}:{candidate.provider}")


def _chosen(
    spec: HookSpec, key: str, candidates: list[Proposal], choice: Choice
) -> tuple[Proposal | None, list[Verdict], str | None]:
    if choice.value == NOBODY:
        why = f"switched off by {NOBODY!r} at {choice.source}"
        return None, [Verdict(key=c.label, plugin=c.plugin, state="shadowed", why=why) for c in candidates], None
    matching = [c for c in candidates if _matches(c, choice)]
    matching.sort(key=lambda c: c.provider == REFERENCE and choice.value == c.plugin)
    plugins = list(dict.fromkeys(c.plugin for c in matching))
    if not matching:
        known = {c.plugin for c in candidates} | {c.provider for c in candidates if c.provider}
        problem = (
            f"{choice.source}: {_label(spec, key)} is to be answered by {choice.value!r}, "
            f"which does not answer it. {nearest(choice.value, known)}"
        )
        failed = [Verdict(key=c.label, plugin=c.plugin, state="failed", why=problem) for c in candidates]
        return None, failed, problem
    if len(plugins) > 1:
        named = [f"{plugin}:{choice.value}" for plugin in plugins]
        return None, _conflict(matching, plugins, key), _conflict_text(spec, key, plugins, named)
    winner = matching[0]
    verdicts = [
        Verdict(
            key=c.label,
            plugin=c.plugin,
            state="shadowed",
            why=f"{winner.plugin} is chosen by {choice.value!r} at {choice.source}",
        )
        for c in candidates
        if c is not winner
    ]
    why = f"chosen by {choice.value!r} at {choice.source}"
    return winner, [*verdicts, Verdict(key=winner.label, plugin=winner.plugin, state="active", why=why)], None


def _conflict(standing: list[Proposal], plugins: list[str], key: str) -> list[Verdict]:
    return [
        Verdict(
            key=c.label,
            plugin=c.plugin,
            state="failed",
            why=f"conflict with {', '.join(p for p in plugins if p != c.plugin) or c.plugin}",
        )
        for c in standing
    ]


def _label(spec: HookSpec, key: str) -> str:
    return f"{spec.name}[{key}]" if key else spec.name


def _conflict_text(spec: HookSpec, key: str, plugins: list[str], choices: list[str] | None = None) -> str:
    value = (choices or plugins)[0]
    if spec.name == "get_op_impls":
        line = f'ops.{key}.use = "{value}"'
    elif key:
        line = f'hooks.{spec.name}.keys.{key}.use = "{value}"'
    else:
        line = f'hooks.{spec.name}.use = "{value}"'
    return (
        f"conflict: plugins {' and '.join(repr(p) for p in plugins)} both answer {_label(spec, key)}. "
        f"Choose one in the profile, for example with the line: {line}"
    )


def _with_params(
    spec: HookSpec, key: str, answer: Answer | None, profile: Profile, verdicts: list[Verdict]
) -> Answer | None:
    record = spec.marks.params
    params = profile.hook_params(spec.name, key) if record else {}
    if record is None or not params:
        return answer
    types = {field.name: field.type for field in msgspec.structs.fields(record)}
    changes = {name: msgspec.convert(setting.value, types[name]) for name, setting in params.items()}
    places = ", ".join(sorted({str(setting.source) for setting in params.values()}))
    if answer is None:
        verdicts.append(Verdict(key=key, plugin=PROFILE_PLUGIN, state="active", why=f"params at {places}"))
        return Answer(plugin=PROFILE_PLUGIN, value=record(**changes))
    for index, verdict in enumerate(verdicts):
        if verdict.key == key and verdict.state == "active":
            verdicts[index] = msgspec.structs.replace(verdict, why=f"{verdict.why}; params at {places}")
    return Answer(plugin=answer.plugin, value=msgspec.structs.replace(answer.value, **changes))


def _unused_choices(spec: HookSpec, keys: set[str], plugins: set[str], profile: Profile) -> Iterable[str]:
    """Choices for keys that nobody proposes: a wish that would otherwise be lost in silence."""
    whole = f"hooks.{spec.name}.use"
    prefixes = (f"hooks.{spec.name}.keys.", *(("ops.",) if spec.name == "get_op_impls" else ()))
    for name, setting in profile.settings.items():
        if name == whole:
            key, used = "", setting.value in {*plugins, NOBODY} or "" in keys
        elif name.startswith(prefixes) and name.endswith(".use"):
            prefix = next(p for p in prefixes if name.startswith(p))
            key = name[len(prefix) : -len(".use")]
            used = key in keys
        else:
            continue
        if not used:
            who = repr(setting.value) if name == whole and keys else "no active plugin"
            verb = "does not answer" if name == whole and keys else "answers"
            yield f"{setting.source}: {name} = {setting.value!r}, but {who} {verb} {_label(spec, key)}."


def missing_vendor_ops(answers: Mapping[str, Mapping[str, Answer]]) -> list[str]:
    """Vendor operators that chosen implementations call and the vendor's library does not declare."""
    answer = answers.get("get_vendor_ops", {}).get("")
    vendor: VendorOps | None = answer.value if answer else None
    declared = set(vendor.operators) if vendor else set()
    library = vendor.library if vendor else "no plugin answers get_vendor_ops"
    problems = []
    for op, op_answer in answers.get("get_op_impls", {}).items():
        missing = [name for name in op_answer.value.vendor_ops if name not in declared]
        if missing:
            problems.append(
                f"operator {op!r} of plugin {op_answer.plugin!r} needs vendor operator "
                f"{', '.join(missing)}, which is missing ({library}). "
                f'Install a library that has it, or use the torch path with ops.{op}.use = "reference".'
            )
    return problems
