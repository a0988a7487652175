"""Importing us changes nothing and loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "sglang", "triton", "transformers", "numpy")
PROBE = """
import builtins, importlib, json, logging, os, signal, sys
def state():
    root = logging.getLogger()
    return {
        "root logger": [root.level, repr(root.handlers), logging.raiseExceptions, logging.root.manager.disable],
        "handlers": sorted(n for n, l in logging.root.manager.loggerDict.items() if getattr(l, "handlers", None)),
        "builtins": {n: id(v) for n, v in vars(builtins).items() if n != "_"},
        "meta_path": [id(finder) for finder in sys.meta_path],
        "path_hooks": [id(hook) for hook in sys.path_hooks],
        "sys.path": list(sys.path),
        "environment": dict(os.environ),
        "hooks": [id(sys.excepthook), id(sys.displayhook), id(threading.excepthook), id(sys.modules)],
        "signals": [repr(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    }
import threading
before = state()
for name in sys.argv[1].split(","):
    importlib.import_module(name)
after = state()
print(json.dumps([[k for k in before if before[k] != after[k]], sorted({m.partition(".")[0] for m in sys.modules})]))
"""

MODULES = (
    "hookspecs",
    "kunhook",
    "kunhook.plan",
    "kunhook.log",
    "kunhook.manifest",
    "kunhook.seams.connect",
    "kunlun_backend.device.platform",
    "kunlun_backend.device.plugin",
    "kunlun_backend.xccl.plugin",
)


@pytest.mark.parametrize("module", ["hookspecs", ",".join(MODULES)], ids=["contract", "everything"])
def test_import_changes_nothing(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, module], capture_output=True, text=True, check=True)
    changed, loaded = json.loads(done.stdout)
    assert changed == []
    assert set(HEAVY) & set(loaded) == set()
    assert (done.stderr, "hookspecs" in loaded) == ("", True)
    if module == "hookspecs":
        assert {"kunhook", "kunlun_backend", "structlog", "psutil"} & set(loaded) == set()
