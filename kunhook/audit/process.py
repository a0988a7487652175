"""State of a process that belongs to everybody: hooks of the interpreter, logging, warnings, signals."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .fingerprint import Fingerprinter

_SYS_HOOKS = ("excepthook", "displayhook", "unraisablehook", "breakpointhook")
_TORCH_STATE = (
    "get_default_dtype",
    "get_num_threads",
    "get_num_interop_threads",
    "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision",
    "is_grad_enabled",
)
"""What torch keeps in C, where no attribute shows it."""


def state(fingerprinter: Fingerprinter, environ: Mapping[str, str], packages: tuple[str, ...]) -> dict[str, Any]:
    """Everything global, by section.

    Args:
        fingerprinter: describes objects.
        environ: the environment the process was started with.
        packages: packages whose modules are described elsewhere.
    """
    text = fingerprinter.text
    return {
        "sys": {
            "meta_path": _listed(map(text, sys.meta_path)),
            "path_hooks": _listed(map(text, sys.path_hooks)),
            "path": _listed(sys.path),
            "(type of modules)": text(type(sys.modules)),
            "(trace)": text(sys.gettrace()),
            "(profile)": text(sys.getprofile()),
            **{name: text(getattr(sys, name)) for name in _SYS_HOOKS},
        },
        "sys.modules": {
            name: _origin(fingerprinter, module)
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] not in packages
        },
        "threading": {
            "excepthook": text(threading.excepthook),
            "(threads)": _listed(sorted(thread.name for thread in threading.enumerate())),
        },
        "multiprocessing": {"(start method)": str(multiprocessing.get_start_method(allow_none=True))},
        "warnings": {
            # SGLang adds some while it walks a set, so their order is another in each process.
            "filters": _listed(sorted(_filter(fingerprinter, entry) for entry in warnings.filters)),
            "showwarning": text(warnings.showwarning),
        },
        "logging": _logging(fingerprinter),
        "signals": {number.name: text(signal.getsignal(number)) for number in signal.Signals},
        "environ": _environ(environ),
        "torch": _torch(),
    }


def _listed(items: Iterable[str]) -> dict[str, Any]:
    """A list whose order counts."""
    return {"is": "list", "items": list(items)}


def _origin(fingerprinter: Fingerprinter, module: Any) -> str:
    held = object.__getattribute__(module, "__dict__") if hasattr(type(module), "__dict__") else {}
    spec = held.get("__spec__")
    file = held.get("__file__") or getattr(spec, "origin", None) or "(no file)"
    return f"{fingerprinter.text(type(module))} {held.get('__name__')} from {file}"


def _filter(fingerprinter: Fingerprinter, entry: Any) -> str:
    action, message, category, module, line = entry
    parts = [action, fingerprinter.text(category)]
    parts += [
        f"{label} {pattern if isinstance(pattern, str) else pattern.pattern!r}"
        for label, pattern in (("message", message), ("module", module))
        if pattern is not None
    ]
    return " ".join([*parts, f"line {line}"] if line else parts)


def _logging(fingerprinter: Fingerprinter) -> dict[str, Any]:
    manager = logging.root.manager
    loggers = {name: logger for name, logger in list(manager.loggerDict.items()) if isinstance(logger, logging.Logger)}
    return {
        "(logger class)": fingerprinter.text(logging.getLoggerClass()),
        "(record factory)": fingerprinter.text(logging.getLogRecordFactory()),
        "(disabled up to)": str(manager.disable),
        "(raise exceptions)": str(logging.raiseExceptions),
        **{
            name: {"is": fingerprinter.text(type(logger)), "items": list(_logger(fingerprinter, logger))}
            for name, logger in {"root": logging.root, **loggers}.items()
        },
    }


def _logger(fingerprinter: Fingerprinter, logger: logging.Logger) -> Iterator[str]:
    """What was configured on a logger; nothing for one that was only created."""
    if logger.level:
        yield f"level {logging.getLevelName(logger.level)}"
    if not logger.propagate:
        yield "does not propagate"
    if logger.disabled:
        yield "disabled"
    for handler in logger.handlers:
        stream = getattr(getattr(handler, "stream", None), "name", None)
        parts = [f"handler {fingerprinter.text(type(handler))}", f"level {logging.getLevelName(handler.level)}"]
        parts.append(f"formatter {fingerprinter.text(handler.formatter)}")
        if stream:
            parts.append(f"to {stream}")
        parts += [f"filter {fingerprinter.text(item)}" for item in handler.filters]
        yield ", ".join(parts)
    for item in logger.filters:
        yield f"filter {fingerprinter.text(item)}"


def _environ(before: Mapping[str, str]) -> dict[str, str]:
    """Variables that are not as they were when the process started."""
    names = sorted({*before, *os.environ})
    return {name: os.environ.get(name, "(removed)") for name in names if before.get(name) != os.environ.get(name)}


def _torch() -> dict[str, str]:
    torch = sys.modules.get("torch")
    return {f"{name}()": str(getattr(torch, name)()) for name in _TORCH_STATE if hasattr(torch, name)}
