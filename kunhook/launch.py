"""Start SGLang's own server with the plan of a profile. SGLang parses its flags itself."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from kunhook import activation, processes, profile, versions
from kunhook.errors import KunhookError
from kunhook.plan import Plan
from kunhook.seams.catalogue import SUPPORTED


def refuse_unstartable(plan: Plan) -> str:
    """Return the device a plan is for.

    Raises:
        KunhookError: SGLang is missing or unfit, the device is absent, or the plan has problems.
    """
    if reason := versions.unmet(versions.SGLANG, plan.sglang, SUPPORTED):
        raise KunhookError(f"the server cannot start: {reason}. Install it with: pip install 'sglang{SUPPORTED}'")
    if plan.problems:
        raise KunhookError("the server cannot start:\n" + "\n".join(f"  {text}" for text in plan.problems))
    if plan.device is None:
        raise KunhookError(f"the server cannot start: {plan.absent_reason}")
    return plan.device.device


def command_line(flags: Sequence[str]) -> list[str]:
    """``sglang serve`` with ``flags``, in this interpreter's environment."""
    script = Path(sysconfig.get_path("scripts")) / "sglang"
    program = [str(script)] if script.is_file() else ["-c", "from sglang.cli.main import main; main()"]
    return [sys.executable, *program, "serve", *flags]


def environment(
    plan: Plan, device: str, overrides: Sequence[str], base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Environment in which every process of the server composes this very plan.

    Raises:
        KunhookError: the environment selects another platform.
    """
    selected = base.get(activation.PLATFORM_VARIABLE)
    if selected and selected != device:
        raise KunhookError(
            f"{activation.PLATFORM_VARIABLE}={selected}, but the plan is for device {device!r}. "
            f"Unset the variable, or choose plugins of {selected!r}."
        )
    result = dict(base)
    # A server is a new family of processes, whoever starts it.
    result.pop(processes.LAUNCHER_VARIABLE, None)
    result[activation.PLATFORM_VARIABLE] = device
    if plan.profile.name:
        result[profile.PROFILE_ENV] = plan.profile.name
    if plan.profile.file:
        result[profile.CONFIG_ENV] = str(Path(plan.profile.file).resolve())
    if overrides:
        result[activation.OVERRIDES_VARIABLE] = json.dumps(list(overrides))
    return result
