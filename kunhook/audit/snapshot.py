"""What one interpreter holds after importing SGLang, as plain data.

Runs in a process of its own, where this package goes by another name, so that even the name of ours
is absent from the process that is to be without us. Imports only the standard library itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from . import process
from .fingerprint import Fingerprinter, digest, module_of, name_of

FORMAT = 1

_type_dict = type.__dict__["__dict__"].__get__
_type_bases = type.__dict__["__bases__"].__get__


def main(request_path: str) -> None:
    """Do what the request file says: import, connect, record."""
    environ = dict(os.environ)
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    times = [time.monotonic()]
    importlib.import_module("sglang")
    from sglang.srt.plugins import load_plugins

    load_plugins()
    missing = [name for name in request["modules"] if not _imported(name)]
    unloadable = [name for name in request["also"] if name not in sys.modules and not _tried(name)]
    times.append(time.monotonic())
    result = record(tuple(request["packages"]), environ)
    times.append(time.monotonic())
    result |= {"missing": missing, "unloadable": unloadable, "seconds": [b - a for a, b in zip(times, times[1:])]}
    with open(request["out"], "w", encoding="utf-8") as file:
        json.dump(result, file)


def _imported(name: str) -> bool:
    """Import a module; False when this version of SGLang or this machine has no such module."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return False
    return True


def _tried(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:
        return False
    return True


def record(packages: tuple[str, ...], environ: dict[str, str]) -> dict[str, Any]:
    """Describe every module and class of ``packages`` and the state of the process."""
    # Collected first, so that objects nobody holds any more are not a matter of chance.
    gc.collect()
    # Nothing recorded below is garbage, and a collector that looks for some takes as long as the work.
    gc.disable()
    names = _Names(_all_classes(), packages)
    fingerprinter = Fingerprinter(names.name, _named())
    modules = {
        name: _module(fingerprinter, module) for name, module in list(sys.modules.items()) if _inside(name, packages)
    }
    classes = {names.name(cls): _class(fingerprinter, cls) for cls in names.audited}
    return {
        "format": FORMAT,
        "order": [name for name in sys.modules],
        "modules": modules,
        "classes": classes,
        "process": process.state(fingerprinter, environ, packages),
    }


def _named() -> dict[int, str]:
    """Dictionaries that belong to somebody, by id."""
    named = {id(sys.modules): "sys.modules"}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            named[id(object.__getattribute__(module, "__dict__"))] = f"globals of {name}"
    return named


def _inside(name: str, packages: tuple[str, ...]) -> bool:
    return name.partition(".")[0] in packages


def _all_classes() -> list[type]:
    """Every class of the process."""
    found: dict[int, type] = {id(object): object}
    waiting: list[type] = [object]
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if id(cls) not in found:
                found[id(cls)] = cls
                waiting.append(cls)
    return list(found.values())


class _Names:
    """Names for classes, numbered where several have one name."""

    def __init__(self, classes: Iterable[type], packages: tuple[str, ...]) -> None:
        groups: dict[str, list[type]] = {}
        for cls in classes:
            groups.setdefault(name_of(cls), []).append(cls)
        self.audited: list[type] = []
        self._numbered: dict[int, str] = {}
        plain = Fingerprinter()
        for name, group in groups.items():
            if not _inside(module_of(group[0]), packages):
                continue
            self.audited.extend(group)
            if len(group) > 1:
                # By content, because two processes need not meet them in one order.
                ordered = sorted(group, key=lambda cls: digest(_content(plain, cls)))
                self._numbered.update({id(cls): f"{name} ({number})" for number, cls in enumerate(ordered, start=1)})

    def name(self, cls: type) -> str:
        """The name of a class, unique among the audited ones."""
        return self._numbered.get(id(cls)) or name_of(cls)


def _content(fingerprinter: Fingerprinter, cls: type) -> Iterator[str]:
    for name, value in sorted(_type_dict(cls).items()):
        yield f"{name}={fingerprinter.text(value)}"


def _module(fingerprinter: Fingerprinter, module: Any) -> Any:
    """Attributes of a module by name; a text for anything else that sits in ``sys.modules``."""
    try:
        held = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return fingerprinter.text(module)
    described = {"(type)": fingerprinter.text(type(module))}
    for name, value in list(held.items()):
        if name != "__builtins__":
            described[str(name)] = fingerprinter.node(value)
    return described


def _class(fingerprinter: Fingerprinter, cls: type) -> dict[str, Any]:
    described = {
        "(type)": fingerprinter.text(type(cls)),
        "(bases)": " ".join(fingerprinter.text(base) for base in _type_bases(cls)),
    }
    for name, value in list(_type_dict(cls).items()):
        described[str(name)] = fingerprinter.node(value)
    return described
