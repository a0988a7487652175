"""What differs between two snapshots, one difference for each smallest thing that does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

SECTIONS = ("modules", "classes", "process")

Path = tuple[str, ...]

_MANY = 64
_FEW = 8
_UNSTABLE = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{4,}(?![0-9A-Za-z])|\d+")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not the same.

    Attributes:
        path: section, owner, attribute, and what is inside it.
        kind: ``added``, ``removed``, ``changed`` or ``reordered``.
        before: without us; empty when there was nothing.
        after: with us; empty when there is nothing any more.
    """

    path: Path
    kind: str
    before: str
    after: str

    @property
    def where(self) -> str:
        """The path as people write it: ``package.module.NAME[entry]``."""
        _, owner, *rest = self.path
        if not rest:
            return owner
        attribute, *inside = rest
        return f"{owner}.{attribute}{''.join(label if label[0] == '.' else f'[{label}]' for label in inside)}"


class Noise:
    """Differences between two snapshots that were to be equal.

    A path that changes by itself is ignored only as far as it does: another digest or number there
    is noise, another kind of thing is not.
    """

    def __init__(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        self._shapes: set[tuple[Path, str]] = set()
        for difference in differences(first, second):
            parent = self._at(difference)
            self._shapes |= {(parent, _shape(text)) for text in _texts(difference)}

    def __contains__(self, difference: Difference) -> bool:
        at = self._at(difference)
        return all((at, _shape(text)) in self._shapes for text in _texts(difference))

    def __len__(self) -> int:
        return len(self._shapes)

    @staticmethod
    def _at(difference: Difference) -> Path:
        # An entry that comes and goes has another label each time.
        return tuple(_shape(label) for label in difference.path)


def _texts(difference: Difference) -> list[str]:
    return [text for text in (difference.before, difference.after) if text]


def _shape(text: str) -> str:
    return _UNSTABLE.sub("#", text)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    """Everything that differs, in a stable order."""
    for section in SECTIONS:
        yield from _entries((section,), before[section], after[section])


def _entries(path: Path, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    for label in sorted({*before, *after}):
        here = (*path, label)
        if label not in before:
            yield from _whole(here, "added", after[label])
        elif label not in after:
            yield from _whole(here, "removed", before[label])
        elif before[label] != after[label]:
            yield from _nodes(here, before[label], after[label])


def _nodes(path: Path, before: Any, after: Any) -> Iterator[Difference]:
    if _is_owner(before) and _is_owner(after):
        if _origin(before) != _origin(after):
            # Another module under the same name: its attributes are no news.
            yield Difference(path=path, kind="changed", before=text_of(before), after=text_of(after))
        else:
            yield from _entries(path, before, after)
        return
    heads = text_of(before), text_of(after)
    inside = _inside(before), _inside(after)
    if heads[0] != heads[1]:
        yield Difference(path=path, kind="changed", before=heads[0], after=heads[1])
    elif isinstance(inside[0] or inside[1], dict):
        yield from _entries(path, inside[0] or {}, inside[1] or {})
    else:
        yield from _items(path, inside[0] or [], inside[1] or [])


def _items(path: Path, before: list[str], after: list[str]) -> Iterator[Difference]:
    had, has = Counter(before), Counter(after)
    for item in (had - has).elements():
        yield Difference(path=path, kind="removed", before=item, after="")
    for item in (has - had).elements():
        yield Difference(path=path, kind="added", before="", after=item)
    if had == has:
        yield Difference(path=path, kind="reordered", before=_listed(before), after=_listed(after))


def _whole(path: Path, kind: str, node: Any) -> Iterator[Difference]:
    """Something that is on one side only: a container entry by entry when there are few."""
    inside = None if _is_owner(node) else _inside(node)
    if inside and len(inside) <= _MANY and not all(label[:1] in (".", "(") for label in inside):
        for label, item in inside.items() if isinstance(inside, dict) else (("", item) for item in inside):
            yield from _whole((*path, label) if label else path, kind, item)
        return
    text = text_of(node)
    if isinstance(inside, dict):
        held = ", ".join(f"{label}={text_of(item)}" for label, item in list(inside.items())[:_FEW])
        text = f"{text} with {held}"
    before, after = (text, "") if kind == "removed" else ("", text)
    yield Difference(path=path, kind=kind, before=before, after=after)


def text_of(node: Any) -> str:
    """The one line of a node, or of an owner of attributes."""
    if isinstance(node, str):
        return node
    if not _is_owner(node):
        return str(node["is"])
    kind, file = _origin(node)
    return f"{kind} of {len(node)} attributes{f' from {file}' if file else ''}"


def _origin(owner: dict[str, Any]) -> tuple[str, str]:
    """Type of a module or class and the file a module comes from."""
    return text_of(owner.get("(type)", "")), text_of(owner.get("__file__", ""))


def _is_owner(node: Any) -> bool:
    """A module, a class or a section: attributes by name, without a text of its own."""
    return isinstance(node, dict) and "is" not in node


def _inside(node: Any) -> Any:
    return None if isinstance(node, str) else node.get("has", node.get("items"))


def _listed(items: list[str]) -> str:
    return ", ".join(items[:_MANY])
