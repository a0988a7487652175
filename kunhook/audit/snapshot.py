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
from collections.abc import Container, Iterable, Iterator
from types import ModuleType
from typing import Any

from . import process
from .fingerprint import Fingerprinter, digest, module_of, name_of

_SHARED = (dict, list, set)

_type_dict = type.__dict__["__dict__"].__get__
_type_bases = type.__dict__["__bases__"].__get__


def main(request_path: str) -> None:
    """Do what the request file says: import, connect, record."""
    environ = dict(os.environ)
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    importlib.import_module("sglang")
    from sglang.srt.plugins import load_plugins

    load_plugins()
    missing = [name for name in request["modules"] if not _imported(name)]
    unloadable = [name for name in request["also"] if name not in sys.modules and not _tried(name)]
    # Little of what follows is garbage; looking for it would take as long as the work.
    gc.disable()
    result = record(tuple(request["packages"]), environ) | {"missing": missing, "unloadable": unloadable}
    with open(request["out"], "w", encoding="utf-8") as file:
        # As one text: json.dump to a file takes three times as long.
        file.write(json.dumps(result))


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
    # Classes that nobody holds any more would be there by chance.
    gc.collect()
    names = _Names(_all_classes(), packages)
    loaded = sorted(_modules(packages).items())
    named = _globals()
    homes = _homes(loaded, named)
    fingerprinter = Fingerprinter(names.name, homes | named)
    modules = {name: _module(fingerprinter, name, module, homes) for name, module in loaded}
    classes = {names.name(cls): _class(fingerprinter, cls) for cls in names.audited}
    return {
        "order": list(sys.modules),
        "modules": modules,
        "classes": classes,
        "process": process.state(fingerprinter, environ, packages),
    }


def _modules(packages: tuple[str, ...]) -> dict[str, Any]:
    """Modules of ``packages`` by name: those in ``sys.modules``, and those only held by another.

    Namespaces of operators, such as ``torch.ops.aten``, are modules that were never imported.
    """
    found = {name: module for name, module in list(sys.modules.items()) if _inside(name, packages)}
    seen = {id(module) for module in list(sys.modules.values())}
    waiting = list(found.values())
    while waiting:
        for value in list(_attributes(waiting.pop()).values()):
            if issubclass(type(value), ModuleType) and id(value) not in seen:
                seen.add(id(value))
                name = str(_attributes(value).get("__name__"))
                if _inside(name, packages) and name not in found:
                    found[name] = value
                    waiting.append(value)
    return found


def _homes(loaded: Iterable[tuple[str, Any]], named: Container[int]) -> dict[int, str]:
    """Containers that modules hold, by id: where each is described, and how it is called elsewhere.

    The same list may be in three modules, in an annotation and bound to a function. What is added to
    it is one difference; the other places show that it is still the same list.
    """
    homes: dict[int, str] = {}
    for name, module in loaded:
        for attribute, value in sorted(_attributes(module).items()):
            if issubclass(type(value), _SHARED) and id(value) not in named and not attribute.startswith("__"):
                homes.setdefault(id(value), f"the {type(value).__name__} {name}.{attribute}")
    return homes


def _globals() -> dict[int, str]:
    """Dictionaries that belong to a module, by id."""
    named = {id(sys.modules): "sys.modules"}
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), ModuleType):
            named[id(_attributes(module))] = f"globals of {name}"
    return named


def _inside(name: str, packages: tuple[str, ...]) -> bool:
    return name.partition(".")[0] in packages


def _all_classes() -> list[type]:
    """Every class of the process."""
    found: dict[int, type] = {id(object): object}
    waiting: list[type] = [object]
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())
        for cls in below:
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
                group.sort(key=lambda each: digest(_content(plain, each)))
                self._numbered.update({id(each): f"{name} ({number})" for number, each in enumerate(group[1:], 2)})

    def name(self, cls: type) -> str:
        """The name of a class, unique among the audited ones."""
        return self._numbered.get(id(cls)) or name_of(cls)


def _content(fingerprinter: Fingerprinter, cls: type) -> Iterator[str]:
    for name, value in sorted(_type_dict(cls).items()):
        yield f"{name}={fingerprinter.text(value)}"


def _attributes(module: Any) -> dict[str, Any]:
    """What a module holds; nothing for something else that sits in ``sys.modules``."""
    if not issubclass(type(module), ModuleType):
        return {}
    held: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return held


def _module(fingerprinter: Fingerprinter, name: str, module: Any, homes: dict[int, str]) -> Any:
    """Attributes of a module by name; a text for anything else that sits in ``sys.modules``."""
    if not issubclass(type(module), ModuleType):
        return fingerprinter.text(module)
    described = {"(type)": fingerprinter.text(type(module))}
    for attribute, value in list(_attributes(module).items()):
        if attribute == "__builtins__":
            continue
        at_home = homes.get(id(value), "").endswith(f" {name}.{attribute}")
        described[str(attribute)] = fingerprinter.opened(value) if at_home else fingerprinter.node(value)
    return described


def _class(fingerprinter: Fingerprinter, cls: type) -> dict[str, Any]:
    described = {
        "(type)": fingerprinter.text(type(cls)),
        "(bases)": " ".join(fingerprinter.text(base) for base in _type_bases(cls)),
    }
    for name, value in list(_type_dict(cls).items()):
        described[str(name)] = fingerprinter.node(value)
    return described
