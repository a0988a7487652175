"""Describe an object so that two processes can compare what they hold.

Two shapes. A *text* is one line: what the object is, with a digest of what is inside it. A *node*
opens what is inside, so that a difference can be named: ``{"is": text, "has": {label: node}}``, or
``{"is": text, "items": [text]}`` for sequences and sets; a node with nothing inside is its text.

Order inside a container does not count, except among numbers: many lists are made from sets of
functions, whose order follows from their addresses and is another in each process.

Neither runs code of the object: attributes are read from ``__dict__`` and from slots, never through
``getattr``, so nothing lazy is loaded by looking.
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import hashlib
import logging
import pathlib
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

NODE_DEPTH = 2
"""Levels that are opened below an attribute. An object inside a container is not opened."""
TEXT_DEPTH = 3
"""Levels the digest of a text looks into. Below that an object is its head, without a digest."""
MAX_OPEN = 20_000
"""What has more entries is data: it gets a digest, not a node for each entry."""

_LONGEST = 100
_ADDRESS_TEXT = re.compile(r"0x[0-9a-f]{6,}|(?<!\d)\d{14,15}(?!\d)")
# Numbers that look like what id() returns. They differ in each process and are not compared.
_ADDRESSES = range(1 << 44, 1 << 48)
_NUMBERS = frozenset({int, float, bool, type(None)})
_EMPTY_CELL: Any = type("EmptyCell", (), {})()

_SEQUENCES = (list, tuple, collections.deque)
_SETS = (set, frozenset)
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})
_WRAPPERS = (staticmethod, classmethod, functools._lru_cache_wrapper, property, types.MappingProxyType)
_BUILTIN_CALLABLES = frozenset(
    {
        types.BuiltinFunctionType,
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.ClassMethodDescriptorType,
        types.MethodWrapperType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
    }
)
_CALLABLES = frozenset({types.FunctionType, types.MethodType, *_WRAPPERS})
# Types whose repr is cheap and complete, and runs no code of SGLang.
_PRINTABLE = (re.Pattern, pathlib.PurePath, range, slice, types.GenericAlias, types.UnionType)
_PRINTABLE_MODULES = frozenset({"typing", "typing_extensions"})
_NOT_PRINTABLE_NAMES = frozenset({"typing._AnnotatedAlias"})
_PRINTABLE_NAMES = frozenset({"torch.dtype", "torch.device", "torch.layout", "torch.memory_format"})
# Types whose state is recorded elsewhere: a logger belongs to the process, not to who holds it.
_OPAQUE = (logging.Logger, logging.Handler)

_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__

Parts = list[tuple[str, Any]]


def digest(parts: Iterable[str]) -> str:
    """Ten hexadecimal digits over an ordered sequence of texts."""
    total = hashlib.blake2b(digest_size=5)
    for part in parts:
        total.update(part.encode("utf-8", "surrogatepass"))
        total.update(b"\0")
    return total.hexdigest()


def name_of(cls: type) -> str:
    """Module and qualified name of a class, read without running its metaclass."""
    module = module_of(cls)
    name: str = type.__dict__["__qualname__"].__get__(cls)
    return name if module == "builtins" else f"{module}.{name}"


def module_of(cls: type) -> str:
    """Name of the module a class says it comes from."""
    try:
        module = type.__dict__["__module__"].__get__(cls)
    except AttributeError:
        return "(none)"
    return module if isinstance(module, str) else "(computed)"


class Fingerprinter:
    """Describes the objects of one process.

    Args:
        class_name: gives a class its name; different classes have to get different names.
        known: objects by id that have a name, such as the globals of a module or a registry. Where
            they are met they are named, not opened.
    """

    def __init__(self, class_name: Callable[[type], str] = name_of, known: Mapping[int, str] | None = None) -> None:
        self._class_name = class_name
        self._known = known or {}
        self._texts: dict[tuple[int, int], str] = {}
        self._nodes: dict[tuple[int, int], Any] = {}
        self._codes: dict[int, str] = {}
        # Objects are remembered by id, so they have to outlive the memory.
        self._kept: list[Any] = []

    def text(self, value: Any, depth: int = TEXT_DEPTH) -> str:
        """One line, equal in two processes when the objects are."""
        if type(value) in _PLAIN:
            return _plain(value)
        key = (id(value), depth)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = self._text(value, depth)
            self._kept.append(value)
        return text

    def node(self, value: Any, depth: int = NODE_DEPTH) -> Any:
        """A node, opened ``depth`` levels down."""
        if type(value) in _PLAIN:
            return _plain(value)
        if depth <= 0:
            return self.text(value)
        if name := self._known.get(id(value)):
            return name
        key = (id(value), depth)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = self.opened(value, depth)
            self._kept.append(value)
        return node

    def opened(self, value: Any, depth: int = NODE_DEPTH) -> Any:
        """A node of a known object, for the place that gives it its name."""
        if depth < NODE_DEPTH and _is_instance(type(value)):
            return self.text(value)
        head, parts = self._open(value, labels=True)
        if not parts:
            return head
        if len(parts) > MAX_OPEN:
            return self.text(value)
        if not parts[0][0]:
            return {"is": head, "items": self._texts_of(parts, TEXT_DEPTH)}
        below = depth - (type(value) not in _WRAPPERS)
        return {"is": head, "has": {label: self.node(item, below) for label, item in _distinct(parts)}}

    def _text(self, value: Any, depth: int) -> str:
        if name := self._known.get(id(value)):
            return name
        head, parts = self._open(value, labels=depth > 0)
        if not parts:
            return head
        if depth <= 0:
            return f"{head} of {len(parts)}"
        below = depth - (type(value) not in _WRAPPERS)
        return f"{head} of {len(parts)} {digest(self._texts_of(parts, below))}"

    def _texts_of(self, parts: Parts, depth: int) -> list[str]:
        texts = [f"{label}={self.text(item, depth)}" if label else self.text(item, depth) for label, item in parts]
        return texts if all(not label and type(item) in _NUMBERS for label, item in parts) else sorted(texts)

    # -- what an object is, and what is inside

    def _open(self, value: Any, *, labels: bool) -> tuple[str, Parts]:
        """The head of an object and its labelled parts."""
        cls = type(value)
        if issubclass(cls, type):
            return f"class {self._class_name(value)}", []
        if issubclass(cls, types.ModuleType):
            return f"module {_fields(value).get('__name__')}", []
        if cls is types.FunctionType:
            return self._function(value)
        if cls in _BUILTIN_CALLABLES:
            return self._builtin(value)
        if cls in _WRAPPERS or cls is types.MethodType:
            return _wrapper(value)
        if cls is types.CodeType:
            return f"code {value.co_name} {self._code(value)}", []
        if cls is types.CellType:
            return "cell", [("(content)", _content(value))]
        if issubclass(cls, enum.Enum):
            fields = _fields(value)
            return f"{self._class_name(cls)}.{fields.get('_name_')} = {self.text(fields.get('_value_'), 0)}", []
        if issubclass(cls, weakref.ref):
            return f"weak reference to {self.text(weakref.ref.__call__(value), 0)}", []
        if issubclass(cls, _OPAQUE):
            return f"object {self._class_name(cls)} {_fields(value).get('name')}", []
        if _is_printable(cls):
            return _shortened(repr(value)), []
        return self._container(value, cls, labels)

    def _container(self, value: Any, cls: type, labels: bool) -> tuple[str, Parts]:
        parts: Parts = []
        if issubclass(cls, dict):
            pairs = list(dict.items(value))
            if _is_by_address([key for key, _ in pairs]):
                return f"{self._class_name(cls)} keyed by address", []
            parts = [(self._label(key) if labels else "", item) for key, item in pairs]
        elif issubclass(cls, (*_SETS, *_SEQUENCES)):
            items = _items(value, cls)
            if issubclass(cls, _SETS) and _is_by_address(items):
                return f"{self._class_name(cls)} of addresses", []
            parts = [("", item) for item in items]
        else:
            return f"object {self._class_name(cls)}", [(f".{name}", item) for name, item in _fields(value).items()]
        head = self._class_name(cls)
        if fields := _fields(value):
            parts = [(label or f"[{index}]", item) for index, (label, item) in enumerate(parts)]
            parts += [(f".{name}", item) for name, item in fields.items()]
        return head, parts

    def _function(self, function: types.FunctionType) -> tuple[str, Parts]:
        head = f"function {function.__module__}.{function.__qualname__} code {self._code(function.__code__)}"
        home = function.__globals__.get("__name__")
        if home != function.__module__:
            head += f" from {home}"
        parts: Parts = []
        if function.__defaults__:
            parts.append(("(defaults)", function.__defaults__))
        if function.__kwdefaults__:
            parts.append(("(keyword defaults)", function.__kwdefaults__))
        names = function.__code__.co_freevars
        parts += [
            (f"(closure) {name}", _content(cell)) for name, cell in zip(names, function.__closure__ or (), strict=True)
        ]
        parts += [(f".{name}", item) for name, item in vars(function).items()]
        return head, parts

    def _builtin(self, value: Any) -> tuple[str, Parts]:
        # Attributes of built-in callables are computed in C.
        name = getattr(value, "__qualname__", None) or value.__name__
        owner = getattr(value, "__objclass__", None)
        if owner is not None:
            return f"{type(value).__name__} {name} of {self._class_name(owner)}", []
        bound = getattr(value, "__self__", None)
        if bound is not None and not isinstance(bound, (type, types.ModuleType)):
            return f"{type(value).__name__} {name}", [("(self)", bound)]
        home = getattr(value, "__module__", None) if bound is None else self.text(bound, 0)
        return f"{type(value).__name__} {name} of {home}", []

    def _code(self, code: types.CodeType) -> str:
        known = self._codes.get(id(code))
        if known is None:
            constants = [
                self._code(item) if isinstance(item, types.CodeType) else _constant(item) for item in code.co_consts
            ]
            names = (*code.co_names, *code.co_varnames, *code.co_freevars, code.co_filename)
            known = self._codes[id(code)] = digest((code.co_code.hex(), *names, *constants))
            self._kept.append(code)
        return known

    def _label(self, key: Any) -> str:
        return (_shortened(key) or "''") if type(key) is str else self.text(key, 1)


def _wrapper(value: Any) -> tuple[str, Parts]:
    cls = type(value)
    if cls is property:
        parts = [("(get)", value.fget), ("(set)", value.fset), ("(delete)", value.fdel)]
        return "property", [(label, part) for label, part in parts if part is not None]
    if cls is types.MethodType:
        return "method", [("(function)", value.__func__), ("(self)", value.__self__)]
    if cls is types.MappingProxyType:
        # The proxy would ask the mapping behind it, which may compute what it holds.
        return "mappingproxy", [("(mapping)", held) for held in gc.get_referents(value)]
    if cls is functools._lru_cache_wrapper:
        # What it remembers is a cache; what it computes is not.
        return "cached", [(f".{name}", item) for name, item in _fields(value).items()]
    return cls.__name__, [("(function)", value.__func__)]


# -- reading without running anything


def _once_per_class(function: Callable[[type], Any]) -> Callable[[type], Any]:
    """Remember by identity: a metaclass may define hash and equality."""
    found: dict[int, tuple[type, Any]] = {}

    @functools.wraps(function)
    def remembered(cls: type) -> Any:
        if id(cls) not in found:
            found[id(cls)] = (cls, function(cls))
        return found[id(cls)][1]

    return remembered


@_once_per_class
def _slots(cls: type) -> Any:
    return tuple(
        (name, member)
        for base in reversed(_class_mro(cls))
        for name, member in _class_dict(base).items()
        if type(member) is types.MemberDescriptorType and not name.startswith("__")
    )


@_once_per_class
def _has_dict(cls: type) -> Any:
    """Whether instances have a ``__dict__`` of the ordinary kind."""
    for base in _class_mro(cls):
        member = _class_dict(base).get("__dict__")
        if member is not None:
            return type(member) in (types.GetSetDescriptorType, types.MemberDescriptorType)
    return False


@_once_per_class
def _is_printable(cls: type) -> Any:
    if name_of(cls) in _NOT_PRINTABLE_NAMES:
        return False
    return issubclass(cls, _PRINTABLE) or module_of(cls) in _PRINTABLE_MODULES or name_of(cls) in _PRINTABLE_NAMES


@_once_per_class
def _is_instance(cls: type) -> Any:
    """Whether a class is somebody's own: neither a container nor a kind of function."""
    return not issubclass(cls, (dict, *_SEQUENCES, *_SETS)) and cls not in _CALLABLES


def _fields(value: Any) -> dict[str, Any]:
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
            fields.update((str(name), item) for name, item in list(dict.items(held)))
    return fields


def _is_by_address(keys: list[Any]) -> bool:
    """Whether a registry is keyed by ``id()``: what is in it, and how much, is another in each process."""
    return bool(keys) and all(type(key) is int and key in _ADDRESSES for key in keys)


def _items(value: Any, cls: type) -> list[Any]:
    """Items as the built-in type holds them, whatever a subclass does when it is iterated."""
    base: Any = next(base for base in (*_SETS, *_SEQUENCES) if issubclass(cls, base))
    return list(base.__iter__(value))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY_CELL


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple {[_constant(item) for item in value]}"
    return f"{type(value).__name__} {value!r}"


def _plain(value: Any) -> str:
    if type(value) is int:
        if value in _ADDRESSES:
            return "(address)"
        if value.bit_length() > 1000:
            return f"int of {value.bit_length()} bits {digest([hex(value)])}"
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    if len(text) > 7:
        text = _ADDRESS_TEXT.sub("0x...", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 14]}... {digest([text])}"


def _distinct(parts: Parts) -> Iterator[tuple[str, Any]]:
    """Number the labels that occur more than once."""
    seen: dict[str, int] = {}
    for label, item in parts:
        count = seen[label] = seen.get(label, 0) + 1
        yield (label if count == 1 else f"{label} ({count})"), item
