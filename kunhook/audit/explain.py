"""Tie each difference to the seam or debt that explains it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kunhook import refs
from kunhook.audit import loaded
from kunhook.audit.compare import Difference
from kunhook.audit.rules import RULES, Rule
from kunhook.plan import Plan
from kunhook.seams.catalogue import Kind, seam_for

OWN = "own: needed by the stack itself"
UNEXPLAINED = "no declared seam explains it"

_SHOWN = 3
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A difference and its explanation, as it is printed."""

    where: str
    kind: str
    before: str
    after: str
    hook: str
    seam: str
    why: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit."""

    unexplained: tuple[Finding, ...]
    explained: tuple[Finding, ...]
    debts: tuple[Finding, ...]


def explain(differences: Iterable[Difference], plan: Plan, reference: Mapping[str, str]) -> Report:
    """Explain every difference that can be.

    Args:
        differences: what differs with us.
        plan: the frozen plan that ran.
        reference: modules loaded without us and their origins.
    """
    found = list(differences)
    modules = {d.path[2]: loaded.reason(d.path[2], d.after, reference, plan) for d in found if _is_module(d)}
    matchers = list(_matchers(plan, [name for name, reason in modules.items() if reason]))
    sides = {(d.where, text) for d in found for text in (d.before, d.after)}
    unexplained: list[Finding] = []
    explained: list[Finding] = []
    debts: list[Finding] = []
    for difference in found:
        if _is_module(difference) and (reason := modules[difference.path[2]]):
            package = difference.path[2].partition(".")[0]
            finding = _finding(difference, "", OWN, f"modules: {reason}")
            # One line a package, with the names of the modules.
            explained.append(msgspec.structs.replace(finding, where=f"sys.modules.{package}", after=difference.path[2]))
            continue
        rule = next((m.rule for m in matchers if m.matches(difference) and _moved(m.rule, difference, sides)), None)
        if rule is None:
            unexplained.append(_finding(difference, "", "", UNEXPLAINED))
            continue
        seam = seam_for(rule.hook, plan.sglang) if rule.hook else None
        text = f"{seam.kind}: {seam.target}" if seam else OWN
        in_debt = seam is not None and seam.kind is Kind.DEBT
        finding = _finding(difference, rule.hook, text, rule.why)
        if rule.whole:
            finding = msgspec.structs.replace(finding, where=".".join(difference.path[1:3]))
        (debts if in_debt else explained).append(finding)
    return Report(unexplained=tuple(unexplained), explained=tuple(_merged(explained)), debts=tuple(debts))


class _Matcher:
    """A rule with the facts of one answer filled in."""

    def __init__(self, rule: Rule, facts: Mapping[str, str]) -> None:
        self.rule = rule
        self._where, self._before, self._after = (
            re.compile(_filled(pattern, facts)) for pattern in (rule.where, rule.before, rule.after)
        )

    def matches(self, difference: Difference) -> bool:
        return (
            difference.kind == self.rule.kind
            and self._where.fullmatch(difference.where) is not None
            and self._before.fullmatch(difference.before) is not None
            and self._after.fullmatch(difference.after) is not None
        )


def _filled(pattern: str, facts: Mapping[str, str]) -> str:
    return pattern.format_map({name: re.escape(value) for name, value in facts.items()})


def _matchers(plan: Plan, modules: Iterable[str]) -> Iterator[_Matcher]:
    runtime = plan.value("get_device_runtime")
    common = {
        "platform": runtime.device_name.title().replace("-", "").replace("_", "") + "Platform",
        "dispatch_key": runtime.dispatch_key,
    }
    for rule in RULES:
        wanted = {
            name
            for pattern in (rule.where, rule.before, rule.after)
            for name in _PLACEHOLDER.findall(pattern.replace("{{", "").replace("}}", ""))
        } - set(common)
        if not wanted:
            yield _Matcher(rule, common)
        elif wanted == {"loaded"}:
            yield from (_Matcher(rule, {"loaded": name}) for name in modules)
        else:
            for key, answer in plan.named(rule.hook).items():
                yield _Matcher(rule, common | _facts(key, answer))


def _facts(key: str, answer: Any) -> dict[str, str]:
    """What rules may say about an answer, whatever record it is."""
    ref = next((getattr(answer, name) for name in ("cls", "make") if hasattr(answer, name)), answer)
    module, _, name = refs.name_of(ref).partition(":")
    return {
        "key": key,
        "module": module,
        "name": name,
        "object": f"{module}.{name}",
        "package": module.partition(".")[0],
        "value": str(getattr(answer, "value", "")),
        "target": str(getattr(answer, "target", "")),
    }


def _moved(rule: Rule, difference: Difference, sides: set[tuple[str, str]]) -> bool:
    if rule.moved is None:
        return True
    return (difference.where, (difference.before or difference.after).replace(*rule.moved)) in sides


def _is_module(difference: Difference) -> bool:
    return difference.path[:2] == ("process", "sys.modules") and difference.kind == "added"


def _finding(difference: Difference, hook: str, seam: str, why: str) -> Finding:
    return Finding(
        where=difference.where,
        kind=difference.kind,
        before=difference.before,
        after=difference.after,
        hook=hook,
        seam=seam,
        why=why,
    )


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """One finding for each place, kind and explanation."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.where, finding.kind, finding.hook, finding.why), []).append(finding)
    for group in groups.values():
        yield msgspec.structs.replace(
            group[0], before=_joined(f.before for f in group), after=_joined(f.after for f in group)
        )


def _joined(texts: Iterable[str]) -> str:
    found = sorted({text for text in texts if text})
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
