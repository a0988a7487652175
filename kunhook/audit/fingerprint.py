"""Describe an object so that two processes can compare what they hold.

Two shapes. A *text* is one line: what the object is, with a digest of what is inside it. A *node* is
a text, or for a container that is worth opening a text with a node for each entry, so that a
difference can be named. Neither runs code of the object: attributes are read from ``__dict__`` and
from slots, never through ``getattr``, so nothing lazy is loaded by looking.
"""

from __future__ import annotations

import collections
import enum
import functools
import hashlib
import logging
import pathlib
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

OPEN_DEPTH = 2
"""Levels of containers whose entries are nodes of their own."""
TEXT_DEPTH = 3
"""Levels a text's digest looks into; below that only kind, name and size count."""
MAX_ENTRIES = 20_000
"""Containers with more entries are data: their entries count in a digest, not one by one."""

_LONGEST = 100
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_EMPTY: Any = object()
_MAPPINGS = (dict, types.MappingProxyType)
_SEQUENCES = (list, tuple, collections.deque)
_SETS = (set, frozenset)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_PRINTABLE = (re.Pattern, pathlib.PurePath, range, slice, types.GenericAlias, types.UnionType)
"""Types of the standard library whose ``repr`` is cheap, complete and without effects."""
_PRINTABLE_BY_NAME = frozenset({("torch", "dtype"), ("torch", "device"), ("torch", "layout"), ("torch", "memory_format")})
_PRINTABLE_MODULES = frozenset({"typing", "typing_extensions"})
_OPAQUE = (logging.Logger, logging.Handler)
"""Types whose state the snapshot records elsewhere."""


def digest(parts: Iterable[str]) -> str:
    """Ten hexadecimal digits over an ordered sequence of texts."""
    sum_ = hashlib.blake2b(digest_size=5)
    for part in parts:
        sum_.update(part.encode("utf-8", "surrogatepass"))
        sum_.update(b"\0")
    return sum_.hexdigest()


def node_text(node: Any) -> str:
    """The one line of a node."""
    return node if isinstance(node, str) else str(node["is"])


class Fingerprinter:
    """Describes objects of one process.

    Args:
        class_name: gives a class its name; two classes of one name have to get two.
    """

    def __init__(self, class_name: Callable[[type], str] | None = None) -> None:
        self._class_name = class_name or name_of
        self._texts: dict[tuple[int, int], str] = {}
        self._codes: dict[int, str] = {}
        # Objects are remembered by id, so they must outlive the memory.
        self._kept: list[Any] = []
        self._kinds: dict[type, Callable[[Any, int], str]] = {}

    def node(self, value: Any, depth: int = OPEN_DEPTH) -> Any:
        """A node: containers and objects are opened ``depth`` levels down."""
        text = self.text(value)
        if depth <= 0:
            return text
        entries = self._entries(value)
        if entries is None or len(entries) > MAX_ENTRIES:
            return text
        cls = type(value)
        if issubclass(cls, (*_SEQUENCES, *_SETS)) and not _has_fields(cls):
            items = [self.text(item) for _, item in entries]
            return {"is": text, "items": items if issubclass(cls, _SEQUENCES) else sorted(items)}
        return {"is": text, "has": dict(_distinct((key, self.node(item, depth - 1)) for key, item in entries))}

    def text(self, value: Any, depth: int = TEXT_DEPTH) -> str:
        """One line that is equal in two processes when the objects are."""
        if type(value) in _PLAIN:
            return _shortened(value)
        key = (id(value), depth)
        known = self._texts.get(key)
        if known is None:
            known = self._texts[key] = self._described(value, depth)
            self._kept.append(value)
        return known

    # -- kinds

    def _described(self, value: Any, depth: int) -> str:
        cls = type(value)
        if issubclass(cls, type):
            return f"class {self._class_name(value)}"
        if issubclass(cls, types.ModuleType):
            return f"module {_field(value, '__name__')}"
        if cls is types.FunctionType:
            return self._function(value, depth)
        if cls is functools._lru_cache_wrapper:
            # What it remembers is a cache; what it computes is not.
            return f"cached {self.text(_fields_of(value).get('__wrapped__'), depth)}"
        if cls in _BUILTIN_CALLABLES:
            return self._builtin(value)
        if cls is types.MethodType:
            return f"method {self.text(value.__func__, depth)} of {self.text(value.__self__, depth - 1)}"
        if cls in (staticmethod, classmethod):
            return f"{cls.__name__} {self.text(value.__func__, depth)}"
        if issubclass(cls, property):
            parts = (self.text(part, depth) for part in (value.fget, value.fset, value.fdel) if part is not None)
            return f"property {' '.join(parts)}"
        if cls is types.CodeType:
            return f"code {value.co_name} {self._code(value)}"
        if cls is types.CellType:
            return f"cell {self.text(_cell(value), depth - 1)}"
        if issubclass(cls, enum.Enum):
            return f"{self._class_name(cls)}.{_fields_of(value).get('_name_')}"
        if issubclass(cls, weakref.ref):
            return f"weak reference to {self.text(_referent(value), 0)}"
        if _is_printable(cls):
            return _without_addresses(repr(value), _LONGEST)
        return self._inside(value, depth)

    def _function(self, function: types.FunctionType, depth: int) -> str:
        name = f"{function.__module__}.{function.__qualname__}"
        parts = [f"function {name} code {self._code(function.__code__)}"]
        home = function.__globals__.get("__name__")
        if home != function.__module__:
            parts.append(f"from {home}")
        if depth <= 0:
            return " ".join(parts)
        below = depth - 1
        for label, held in (
            ("defaults", [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]),
            ("closure", [_cell(cell) for cell in function.__closure__ or ()]),
            ("attributes", sorted(vars(function).items())),
        ):
            if held:
                parts.append(f"{label} {digest(self.text(item, below) for item in held)}")
        return " ".join(parts)

    def _builtin(self, value: Any) -> str:
        name = getattr(value, "__qualname__", None) or value.__name__
        owner = getattr(value, "__objclass__", None)
        if owner is not None:
            return f"{type(value).__name__} {name} of {self._class_name(owner)}"
        home = getattr(value, "__self__", None)
        at = self.text(home, 0) if home is not None else getattr(value, "__module__", None)
        return f"{type(value).__name__} {name} of {at}"

    def _code(self, code: types.CodeType) -> str:
        known = self._codes.get(id(code))
        if known is None:
            constants = (
                self._code(item) if isinstance(item, types.CodeType) else _constant(item) for item in code.co_consts
            )
            known = digest(
                (code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars, code.co_filename, *constants)
            )
            self._codes[id(code)] = known
            self._kept.append(code)
        return known

    # -- what is inside

    def _inside(self, value: Any, depth: int) -> str:
        cls = type(value)
        name = self._class_name(cls)
        entries = None if cls in _OPAQUE else self._entries(value, names=depth > 0)
        if entries is None:
            return f"object {name}"
        size = f"{name} of {len(entries)}" if issubclass(cls, (*_MAPPINGS, *_SEQUENCES, *_SETS)) else f"object {name}"
        if depth <= 0 or not entries:
            return size
        parts = [f"{key}={self.text(item, depth - 1)}" for key, item in entries]
        if issubclass(cls, _SETS):
            parts.sort()
        return f"{size} {digest(parts)}"

    def _entries(self, value: Any, *, names: bool = True) -> list[tuple[str, Any]] | None:
        """Labelled content of a container or object; None when it has none."""
        cls = type(value)
        if issubclass(cls, (type, types.ModuleType, *_OPAQUE)) or cls in _LEAVES or _is_printable(cls):
            return None
        found: list[tuple[str, Any]] = []
        if issubclass(cls, _MAPPINGS):
            pairs = dict.items(value) if issubclass(cls, dict) else value.items()
            found = [(self._label(key) if names else "", item) for key, item in list(pairs)]
        elif issubclass(cls, _SETS):
            found = [("", item) for item in list(value)]
        elif issubclass(cls, _SEQUENCES):
            found = [(str(index), item) for index, item in enumerate(list(value))]
        elif not _has_fields(cls):
            return None
        if _has_fields(cls) and not issubclass(cls, enum.Enum):
            found += ((f".{name}", item) for name, item in _fields_of(value).items())
        return found

    def _label(self, key: Any) -> str:
        if type(key) is str:
            return key if len(key) <= _LONGEST else _shortened(key)
        return self.text(key, 1)


_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_LEAVES = frozenset(
    {
        *_PLAIN,
        *_BUILTIN_CALLABLES,
        types.FunctionType,
        types.MethodType,
        types.CodeType,
        types.CellType,
        functools._lru_cache_wrapper,
        staticmethod,
        classmethod,
        property,
        weakref.ref,
    }
)


def name_of(cls: type) -> str:
    """Module and qualified name of a class, read without running its metaclass."""
    module = _static(cls, "__module__")
    qualname = type.__dict__["__qualname__"].__get__(cls)
    return f"{module}.{qualname}" if module != "builtins" else qualname


def _static(cls: type, name: str) -> Any:
    try:
        found = type.__dict__[name].__get__(cls)
    except AttributeError:
        return "(none)"
    return found if isinstance(found, str) else type(found).__name__


def _field(value: Any, name: str) -> Any:
    return _fields_of(value).get(name)


@functools.cache
def _slots(cls: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, member)
        for base in reversed(type.__dict__["__mro__"].__get__(cls))
        for name, member in type.__dict__["__dict__"].__get__(base).items()
        if type(member) is types.MemberDescriptorType and not name.startswith("__")
    )


@functools.cache
def _has_dict(cls: type) -> bool:
    """Whether instances have a ``__dict__`` of the ordinary kind, which can be read without running code."""
    for base in type.__dict__["__mro__"].__get__(cls):
        member = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if member is not None:
            return type(member) is types.GetSetDescriptorType
    return False


@functools.cache
def _has_fields(cls: type) -> bool:
    # Built-in classes keep C state in member descriptors, such as a thread's or a frame's.
    return _has_dict(cls) or bool(_slots(cls))


def _fields_of(value: Any) -> dict[str, Any]:
    """Attributes an object itself holds, from slots and ``__dict__``."""
    cls = type(value)
    fields: dict[str, Any] = {}
    for name, member in _slots(cls):
        try:
            fields[name] = member.__get__(value, cls)
        except AttributeError:
            continue
    if _has_dict(cls):
        held = object.__getattribute__(value, "__dict__")
        if isinstance(held, dict):
            fields |= {str(name): item for name, item in list(dict.items(held))}
    return fields


@functools.cache
def _is_printable(cls: type) -> bool:
    module = _static(cls, "__module__")
    return (
        issubclass(cls, _PRINTABLE)
        or module in _PRINTABLE_MODULES
        or (module, type.__dict__["__qualname__"].__get__(cls)) in _PRINTABLE_BY_NAME
    )


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _referent(reference: weakref.ref[Any]) -> Any:
    return weakref.ref.__call__(reference)


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple {[_constant(item) for item in value]}"
    return f"{type(value).__name__} {value!r}"


def _shortened(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 1000:
        return f"int of {value.bit_length()} bits {digest([hex(value)])}"
    return _without_addresses(repr(value), _LONGEST)


def _without_addresses(text: str, longest: int) -> str:
    text = _ADDRESS.sub("0x...", text)
    return text if len(text) <= longest else f"{text[: longest - 20]}... {digest([text])}"


def _distinct(pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Give entries of one label a number each."""
    seen: collections.Counter[str] = collections.Counter()
    for label, item in pairs:
        seen[label] += 1
        yield (label if seen[label] == 1 else f"{label} ({seen[label]})"), item
