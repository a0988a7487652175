"""TOML with positions: which line set a key. The standard parser reads, this only locates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from kunhook.errors import UsageError

_TABLE = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(a or b or c for a, b, c in _PART.findall(dotted))


def read(path: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """Parse a file.

    Returns:
        The document, and the line on which each table and key is written. Keys inside inline tables
        have no line of their own; ``line_of`` finds the enclosing one.

    Raises:
        UsageError: the file cannot be read or is not TOML; the text has file, line and column.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.match(line):
            table = _parts(match[1])
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], number)
        elif match := _KEY.match(line):
            path_of_key = table + _parts(match[1])
            for depth in range(len(table) + 1, len(path_of_key) + 1):
                lines.setdefault(path_of_key[:depth], number)
            lines[path_of_key] = number
    return document, lines


def line_of(lines: dict[tuple[str, ...], int], key: tuple[str, ...]) -> int | None:
    """Line of ``key``, or of the nearest enclosing key or table that has one."""
    for depth in range(len(key), 0, -1):
        if key[:depth] in lines:
            return lines[key[:depth]]
    return None


def value(text: str) -> Any:
    """A TOML value written on the command line; a bare word is a string."""
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if document.keys() == {"value"} else text
