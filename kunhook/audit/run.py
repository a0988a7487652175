"""Run the audit: interpreters without us and with us, compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kunhook import activation, discovery, launch, manifest
from kunhook.audit import loaded
from kunhook.audit.compare import Difference, Noise, differences
from kunhook.audit.explain import Report, explain
from kunhook.errors import KunhookError
from kunhook.plan import Plan

PACKAGES = ("sglang", "torch", "triton", "transformers", "builtins")
"""Packages of which every module and class is compared."""

MODULES = (
    "sglang",
    "sglang.srt.server_args",
    "sglang.srt.managers.scheduler",
    # Importing it calls init_backend() of the platform: from here on the stack is connected.
    "sglang.srt.model_executor.model_runner",
    "sglang.srt.layers.attention.attention_registry",
    "sglang.srt.layers.layernorm",
    "sglang.srt.layers.activation",
    "sglang.srt.layers.rotary_embedding",
    "sglang.srt.layers.quantization",
    "sglang.srt.mem_cache.storage.backend_factory",
    "sglang.kernels.fused_op",
    "transformers",
    "triton",
    "torch",
)
"""Modules every interpreter imports, in this order; those a version of SGLang lacks are left out."""

_OUR_VARIABLES = ("KUNHOOK_", "KUNLUN_")
_NOBODY = "kunhook-audit-without-plugins"
_CONNECTED = "kunhook.seams.connect"
_LAST_LINES = 20

# Loads this package under another name, so that nothing called kunhook is in the process.
_START = """
import importlib.util, sys
folder, request = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "_audit", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["_audit"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from _audit import snapshot
snapshot.main(request)
"""

Snapshot = dict[str, Any]


class Reference(msgspec.Struct, frozen=True):
    """What SGLang is without us, and what of it differs from one run to the next."""

    snapshot: Snapshot
    noise: Noise


class Interpreter:
    """A child process that takes a snapshot."""

    def __init__(self, label: str, environment: Mapping[str, str], folder: Path, also: Iterable[str] = ()) -> None:
        self.label = label
        self._out = folder / f"{label}.json"
        self._errors = folder / f"{label}.log"
        request = folder / f"{label}.request"
        request.write_text(
            json.dumps({"modules": MODULES, "also": list(also), "packages": PACKAGES, "out": str(self._out)})
        )
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(Path(__file__).parent), str(request)],
                env={
                    **environment,
                    # Sets of texts are walked in one order in all of them.
                    "PYTHONHASHSEED": "0",
                    # On a machine with a card, SGLang without us would be SGLang on that card.
                    "CUDA_VISIBLE_DEVICES": "",
                    "HIP_VISIBLE_DEVICES": "",
                    # Not a process for `kunhook list --live`.
                    manifest.DIRECTORY_VARIABLE: str(folder / "run"),
                },
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def result(self) -> Snapshot:
        """Wait for the snapshot.

        Raises:
            KunhookError: the interpreter died; the text ends with its last lines.
        """
        if code := self._process.wait():
            lines = self._errors.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise KunhookError(f"the interpreter {self.label} ended with status {code}:\n" + "\n".join(lines))
        snapshot: Snapshot = msgspec.json.decode(self._out.read_bytes())
        self._out.unlink()
        return snapshot


def audit(plan: Plan, overrides: Sequence[str] = ()) -> tuple[Report, int]:
    """Compare SGLang with and without the plan.

    Returns:
        The report, and how many things differ between two runs without us and were left out.

    Raises:
        KunhookError: the plan cannot be started, an interpreter died, or the stack is where it is not
            to be.
    """
    device = launch.refuse_unstartable(plan)
    with tempfile.TemporaryDirectory(prefix="kunhook-audit-") as work:
        folder = Path(work)
        ours = with_us(plan, device, folder, overrides)
        reference = without_us(device, folder, also=audited(ours))
    return explain(found(reference, ours), plan, reference.snapshot["process"]["sys.modules"]), len(reference.noise)


def with_us(plan: Plan, device: str, folder: Path, overrides: Sequence[str] = (), label: str = "with us") -> Snapshot:
    """A snapshot of a process in which the plan is connected as in a worker."""
    with Interpreter(label, launch.environment(plan, device, overrides), folder) as child:
        snapshot = child.result()
    if _CONNECTED not in snapshot["order"]:
        raise KunhookError(
            f"the interpreter {label} ran without the stack: {_CONNECTED} is not loaded, so there is nothing to "
            f"audit. Run `kunhook doctor`."
        )
    return snapshot


def without_us(device: str, folder: Path, also: Sequence[str]) -> Reference:
    """Two snapshots of processes that never hear of us; what differs between them is noise.

    Args:
        device: name of the platform that is to stay away.
        folder: for requests and results.
        also: modules to import after the common ones, so that both sides have the same loaded.
    """
    environment = reference_environment(device)
    with (
        Interpreter("without us", environment, folder, also) as once,
        Interpreter("without us again", environment, folder, also) as again,
    ):
        first, second = once.result(), again.result()
    ours = loaded.own_packages()
    strangers = sorted({name for name in first["order"] if name.partition(".")[0] in ours})
    if strangers:
        raise KunhookError(
            f"the interpreter without us has {', '.join(strangers[:5])} loaded, so it is no reference. Something "
            f"imports it at start of Python, such as a .pth file or sitecustomize; remove that."
        )
    return Reference(first, Noise(first, second))


def audited(snapshot: Snapshot) -> list[str]:
    """Modules of the compared packages that a process had loaded, in its order."""
    return [name for name in snapshot["order"] if name.partition(".")[0] in PACKAGES]


def found(reference: Reference, ours: Snapshot) -> Iterator[Difference]:
    """What differs with us, without the noise."""
    return (d for d in differences(reference.snapshot, ours) if d not in reference.noise)


def reference_environment(device: str) -> dict[str, str]:
    """The same environment, in which SGLang looks at none of our entry points.

    The filter of SGLang goes by the name of an entry point and covers both groups, whatever kind of
    installation announces it. Other people's plugins load on both sides, as they would in a server
    on our platform. SGLANG_USE_CPU_ENGINE is not set: SGLang's own CPU engine has another kernel
    library, without which its scheduler cannot be imported.
    """
    points = discovery.announcements()
    ours = loaded.own_distributions()
    # With a platform selected, SGLang leaves out general plugins of distributions with another platform.
    rivals = {point.distribution for point in points if point.group == discovery.PLATFORM_GROUP} | ours
    allowed = os.environ.get(activation.FILTER_VARIABLE)
    others = {
        point.name
        for point in points
        if point.group == discovery.GENERAL_GROUP
        and point.distribution not in rivals
        and (not allowed or point.name in {name.strip() for name in allowed.split(",")})
    } - {device, activation.GENERAL_PLUGIN}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OUR_VARIABLES)}
    environment.pop(activation.PLATFORM_VARIABLE, None)
    environment[activation.FILTER_VARIABLE] = ",".join(sorted(others)) or _NOBODY
    return environment
