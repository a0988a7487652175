"""Write ``docs/hooks.md`` from the specifications: ``python -m hookspecs.document > docs/hooks.md``."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

import msgspec

from hookspecs import HOOKS, SPEC_MODULES, SPEC_VERSION, HookSpec
from hookspecs.kernels import OPERATORS

_SECTIONS = ("Args", "Returns", "Errors")


def render() -> str:
    """The whole page."""
    # Docstrings mark code with two backticks, Markdown with one; fences keep their three.
    return re.sub(r"(?<!`)``(?!`)", "`", "\n".join(_page())) + "\n"


def _page() -> Iterator[str]:
    yield "# Hooks"
    yield ""
    yield "<!-- Written by `make docs` from hookspecs/. Edit the specifications, not this file. -->"
    yield ""
    yield f"Contract version {SPEC_VERSION}, {len(HOOKS)} hooks. `kunhook show HOOK` prints one of them with the"
    yield "implementations of this machine."
    yield ""
    yield "| hook | mode | asked | decides |"
    yield "|---|---|---|---|"
    for spec in HOOKS.values():
        yield f"| [`{spec.name}`](#{spec.name}) | {spec.marks.mode} | {spec.marks.asked} | {spec.summary} |"
    for module in SPEC_MODULES:
        subject = module.__name__.rpartition(".")[2]
        yield ""
        yield f"## {subject.title()}"
        yield ""
        yield inspect.getdoc(module) or ""
        for spec in HOOKS.values():
            if spec.subject == subject:
                yield from _hook(spec)
        if subject == "kernels":
            yield from _operators()


def _hook(spec: HookSpec) -> Iterator[str]:
    text, sections, example = _split(inspect.getdoc(spec.function) or "")
    yield ""
    yield f"### {spec.name}"
    yield ""
    yield "```python"
    yield spec.signature
    yield "```"
    yield ""
    yield text
    yield ""
    yield f"- **Mode:** {spec.marks.mode}; asked at {spec.marks.asked}; since contract version {spec.marks.since}."
    yield f"- **None means:** {spec.marks.none}"
    if spec.marks.keys:
        yield f"- **Keys** (`{spec.marks.key_argument}`): {', '.join(f'`{key}`' for key in spec.marks.keys)}."
    if spec.marks.params:
        names = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(spec.marks.params))
        yield f"- **Parameters** (`hooks.{spec.name}.params`): {names}."
    for name, lines in sections.items():
        if name == "Args":
            yield f"- **{name}:**"
            yield from (f"  {line}" for line in _arguments(lines))
        else:
            yield f"- **{name}:** {' '.join(lines)}"
    yield ""
    yield "```python"
    yield example
    yield "```"


def _split(doc: str) -> tuple[str, dict[str, list[str]], str]:
    """Free text, named sections, and the example."""
    before, _, example = doc.partition("Example::")
    text: list[str] = []
    sections: dict[str, list[str]] = {}
    current: list[str] = text
    for line in before.splitlines():
        name = line.strip().rstrip(":")
        if line.endswith(":") and name in _SECTIONS:
            current = sections.setdefault(name, [])
        elif current is text:
            text.append(line)
        elif line.strip():
            current.append(line.strip() if name not in _SECTIONS else line)
    return "\n".join(text).strip(), sections, textwrap.dedent(example).strip()


def _arguments(lines: list[str]) -> Iterator[str]:
    """One list item per argument; continuation lines join the item above."""
    item = ""
    for line in lines:
        head = line.partition(":")[0]
        if line.partition(":")[1] and all(part.isidentifier() for part in head.split(", ")):
            if item:
                yield item
            item = f"- `{head}`:{line.partition(':')[2]}"
        else:
            item += f" {line}"
    if item:
        yield item


def _operators() -> Iterator[str]:
    yield ""
    yield "### Operators"
    yield ""
    yield "| operator | forward | computes |"
    yield "|---|---|---|"
    for operator in OPERATORS.values():
        yield f"| `{operator.name}` | `{operator.forward.replace('|', chr(92) + '|')}` | {operator.meaning} |"


if __name__ == "__main__":
    sys.stdout.write(render())
