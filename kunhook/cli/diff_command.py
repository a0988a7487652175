"""``kunhook diff``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import click

from kunhook import diff
from kunhook.cli import options
from kunhook.diff import Change, Finding, Report
from kunhook.plan import ANY_HOOK, State, compose
from kunhook.seams import targets
from kunhook.seams.targets import Role, Target

_KEYS = ("hook", "path", "role", "change", "old_signature", "new_signature", "moved_to", "what_to_do")
_COLUMNS = ("HOOK", "NAME", "CHANGE", "OLD", "NEW", "WHAT TO DO")
_WORDS = {
    Change.SAME: "same",
    Change.MOVED: "moved",
    Change.CHANGED: "signature changed",
    Change.GONE: "gone",
    Change.NEW: "new",
}
_SECTIONS: tuple[tuple[str, Callable[[Finding], bool]], ...] = (
    ("Needs work", lambda f: f.needs_work),
    ("Could retire a debt", lambda f: f.retires_debt),
    ("Changed, kunhook follows", lambda f: f.role != Role.AVAILABLE and f.change is not Change.SAME),
    ("Defined elsewhere, still found", lambda f: f.change is Change.SAME and f.moved_to is not None),
    ("Seams kunhook does not use", lambda f: f.change is not Change.SAME),
)


@click.command("diff")
@click.argument("old")
@click.argument("new")
@options.json_option
@click.option("--markdown", is_flag=True, help="Tables to paste into an issue.")
def command(old: str, new: str, as_json: bool, markdown: bool) -> int:
    """What changed between two versions of SGLang at every seam and debt, and what to do.

    OLD and NEW are wheels, folders that hold sglang/, or the version of the installed SGLang.
    Nothing of SGLang is imported. Exit status 1 when kunhook does not follow NEW everywhere.
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other.")
    before, after = diff.open_tree(old), diff.open_tree(new)
    report = diff.compare(before, after, [*targets.TARGETS, *_debts_of_plugins((before, after))])
    if as_json:
        options.print_json(_data(report))
    else:
        for line in _lines(report, _table if markdown else _list):
            click.echo(line)
    return 1 if report.needs_work else 0


def _debts_of_plugins(trees: tuple[diff.Tree, diff.Tree]) -> Iterator[Target]:
    from kunhook.activation import current_profile

    plan = compose(current_profile(), assume=True)
    for row in plan.rows:
        if row.state is State.FAILED and row.hook in (ANY_HOOK, "get_triton_workarounds"):
            click.echo(f"kunhook: debts of plugin {row.plugin!r} are left out: {row.why}", err=True)
    for record in plan.named("get_triton_workarounds").values():
        yield diff.debt_of_plugin(record.target, record.sglang, trees)


def _data(report: Report) -> dict[str, object]:
    return {
        "old": report.old,
        "new": report.new,
        "targets": [
            {key: getattr(finding, key) for key in (*_KEYS, "needs_work", "retires_debt")}
            for finding in report.findings
        ],
        "summary": report.summary(),
    }


def _lines(report: Report, write: Callable[[list[Finding]], Iterator[str]]) -> Iterator[str]:
    counts = report.summary()
    yield f"# SGLang {report.old} -> {report.new}"
    yield ""
    compared = ", ".join(f"{counts[change]} {word}" for change, word in _WORDS.items() if counts[change])
    yield f"{len(report.findings)} names: {compared or 'none'}."
    yield f"{counts['needs_work'] or 'None'} of those kunhook uses need{'s' * (counts['needs_work'] < 2)} work."
    left = list(report.findings)
    for title, belongs in _SECTIONS:
        chosen = [finding for finding in left if belongs(finding)]
        left = [finding for finding in left if not belongs(finding)]
        if chosen:
            yield f"\n## {title}\n"
            yield from write(chosen)


def _list(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"- {finding.path}: {_WORDS[finding.change]}{f' (hook {finding.hook})' if finding.hook else ''}"
        if finding.change is not Change.SAME:
            for label, signature in (("old", finding.old_signature), ("new", finding.new_signature)):
                if signature is not None:
                    yield f"    {label}  {signature}"
        if finding.moved_to:
            yield f"    now  {finding.moved_to}"
        if finding.what_to_do:
            yield f"    do   {finding.what_to_do}"


def _table(findings: Iterable[Finding]) -> Iterator[str]:
    yield _row(_COLUMNS)
    yield _row(["---"] * len(_COLUMNS))
    for finding in findings:
        place = f"`{finding.path}`" + (f" now `{finding.moved_to}`" if finding.moved_to else "")
        signatures = [f"`{text}`" if text else "" for text in (finding.old_signature, finding.new_signature)]
        yield _row([finding.hook, place, _WORDS[finding.change], *signatures, finding.what_to_do])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
