"""State of a process that belongs to everybody: hooks of the interpreter, logging, warnings, signals."""

from __future__ import annotations

import builtins
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any

from .fingerprint import Fingerprinter

_SYS_HOOKS = ("excepthook", "displayhook", "unraisablehook", "breakpointhook")


def state(fingerprinter: Fingerprinter, environ: Mapping[str, str]) -> dict[str, Any]:
    """Everything global, by section.

    Args:
        fingerprinter: describes objects.
        environ: the environment the process was started with.
    """
    node, text = fingerprinter.node, fingerprinter.text
    return {
        "sys": {
            "meta_path": node(sys.meta_path, 1),
            "path_hooks": node(sys.path_hooks, 1),
            "path": node(sys.path, 1),
            "type of modules": text(type(sys.modules)),
            "trace": text(sys.gettrace()),
            "profile": text(sys.getprofile()),
            **{name: text(getattr(sys, name)) for name in _SYS_HOOKS},
        },
        "builtins": {"__import__": text(builtins.__import__)},
        "threading": {"excepthook": text(threading.excepthook)},
        "warnings": {"filters": node(warnings.filters, 1), "showwarning": text(warnings.showwarning)},
        "logging": _logging(fingerprinter),
        "signals": _signals(fingerprinter),
        "environ": _environ(environ),
    }


def _logging(fingerprinter: Fingerprinter) -> dict[str, Any]:
    manager = logging.root.manager
    loggers = {name: logger for name, logger in list(manager.loggerDict.items()) if isinstance(logger, logging.Logger)}
    return {
        "(logger class)": fingerprinter.text(logging.getLoggerClass()),
        "(record factory)": fingerprinter.text(logging.getLogRecordFactory()),
        "(disabled below)": str(manager.disable),
        "root": _logger(fingerprinter, logging.root),
        **{name: _logger(fingerprinter, logger) for name, logger in loggers.items()},
    }


def _logger(fingerprinter: Fingerprinter, logger: logging.Logger) -> Any:
    described = {
        "level": logging.getLevelName(logger.level),
        "handlers": {"is": "handlers", "items": [_handler(fingerprinter, handler) for handler in logger.handlers]},
        "filters": {"is": "filters", "items": [fingerprinter.text(item) for item in logger.filters]},
        "propagate": str(logger.propagate),
        "disabled": str(logger.disabled),
    }
    return {"is": f"logger {fingerprinter.text(type(logger))}", "has": described}


def _handler(fingerprinter: Fingerprinter, handler: logging.Handler) -> str:
    stream = getattr(handler, "stream", None)
    parts = [
        fingerprinter.text(type(handler)),
        f"level {logging.getLevelName(handler.level)}",
        f"formatter {fingerprinter.text(handler.formatter)}",
        f"to {getattr(stream, 'name', None)}",
        *(f"filter {fingerprinter.text(item)}" for item in handler.filters),
    ]
    return ", ".join(parts)


def _signals(fingerprinter: Fingerprinter) -> dict[str, str]:
    return {
        number.name: fingerprinter.text(signal.getsignal(number))
        for number in sorted(signal.valid_signals())
        if isinstance(number, signal.Signals)
    }


def _environ(before: Mapping[str, str]) -> dict[str, str]:
    """Variables that are not as they were when the process started."""
    names = sorted({*before, *os.environ})
    return {name: os.environ.get(name, "(removed)") for name in names if before.get(name) != os.environ.get(name)}
