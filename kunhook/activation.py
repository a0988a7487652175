"""Entry points that SGLang calls: activate the platform, load what is not on the platform class.

Both run in every process that imports SGLang, the first in the middle of ``import sglang``. A
device that is absent leaves SGLang alone; anything that is wrong ends the process, because SGLang
would only log it and serve on another path.
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Callable, Iterator

from kunhook import bound, discovery, processes, profile
from kunhook.errors import KunhookError, StartupError
from kunhook.plan import Plan, compose

PLATFORM_VARIABLE = "SGLANG_PLATFORM"
FILTER_VARIABLE = "SGLANG_PLUGINS"
GENERAL_PLUGIN = "kunhook"
LOADER = "kunhook.activation:load"
"""What a distribution with a platform announces under ``sglang.srt.plugins``, next to its platform."""
OVERRIDES_VARIABLE = "KUNHOOK_OVERRIDES"
"""JSON list of ``--set`` texts, handed from ``kunhook serve`` to the processes it starts."""


def current_profile(name: str | None = None, overrides: tuple[str, ...] = ()) -> profile.Profile:
    """The effective configuration of this process."""
    inherited = json.loads(os.environ.get(OVERRIDES_VARIABLE, "[]"))
    plugins = [candidate.name for candidate in discovery.candidates()]
    return profile.load(plugins=plugins, name=name, overrides=(*inherited, *overrides))


def activator(device: str) -> Callable[[], str | None]:
    """Make the function a distribution announces under ``sglang.srt.platforms``.

    Args:
        device: name of the device, the same as in ``DeviceDetection.device`` and as the name of the
            entry point.

    Returns:
        A function without arguments that returns the platform class path, or None when the device
        is absent. It ends the process when the device is there but the plan cannot be started.
    """

    def activate() -> str | None:
        with _ending_the_process():
            return _activate(device)

    return activate


def _activate(device: str) -> str | None:
    running = bound.current()
    if running is None or _device_of(running) != device:
        plan = compose(current_profile(), device=device, full=True)
        if plan.device is None and not any(detection.broken for detection in plan.detections):
            if not plan.detections:
                # Whether the device is here is unknown, because the plugin that would say so is broken.
                _refuse(list(plan.problems))
            if os.environ.get(PLATFORM_VARIABLE) == device:
                raise KunhookError(f"{PLATFORM_VARIABLE}={device}, but the device cannot be used: {plan.absent_reason}")
            return None
        _refuse(startup_problems(plan, device))
        if running is not None:
            raise KunhookError(
                f"devices {_device_of(running)!r} and {device!r} are both present. "
                f"Choose one with {PLATFORM_VARIABLE}={_device_of(running)} or {PLATFORM_VARIABLE}={device}."
            )
        processes.compare_with_launcher(plan.digest)
        running = bound.bind(plan)
        _set_process_env(plan)
    from kunhook.seams import platform

    return platform.class_path(running)


def _device_of(running: bound.Bound) -> str:
    return running.plan.device.device if running.plan.device else ""


def startup_problems(plan: Plan, device: str) -> list[str]:
    """Everything that forbids a start with this plan on this machine."""
    problems = list(plan.problems)
    rivals = [
        point for point in discovery.announcements() if point.group == discovery.PLATFORM_GROUP and point.name == device
    ]
    if len(rivals) > 1:
        named = " and ".join(f"{point.distribution} {point.version} ({point.value})" for point in rivals)
        problems.append(
            f"platform {device!r} is registered by {named}. SGLang would silently take one. "
            f"Uninstall the one you do not want."
        )
    loaders = [point for point in discovery.announcements() if point.value == LOADER]
    skipped = _skipped_distributions()
    names = {point.name for point in loaders if point.distribution not in skipped} if loaders else {GENERAL_PLUGIN}
    listed = os.environ.get(FILTER_VARIABLE)
    if not names:
        problems.append(
            f"with {PLATFORM_VARIABLE}={device} SGLang skips general plugins of distributions that bring another "
            f"platform, so ours is not loaded. The distribution of {device!r} has to announce one itself: "
            f'{device} = "{LOADER}" in the group {discovery.GENERAL_GROUP}.'
        )
    elif listed and names.isdisjoint(name.strip() for name in listed.split(",")):
        named = " or ".join(repr(name) for name in sorted(names))
        problems.append(
            f"{FILTER_VARIABLE}={listed} keeps the general plugin {named} from loading while the "
            f"platform {device!r} is in use. Add {named} to the list, or unset the variable."
        )
    return problems


def _skipped_distributions() -> set[str]:
    """Distributions whose general plugins SGLang does not load, by its own rule."""
    selected = os.environ.get(PLATFORM_VARIABLE)
    platforms = [point for point in discovery.announcements() if point.group == discovery.PLATFORM_GROUP]
    return {point.distribution for point in platforms if selected and point.name != selected}


def _refuse(problems: list[str]) -> None:
    if len(problems) == 1:
        raise KunhookError(f"the server cannot start: {problems[0]}")
    if problems:
        numbered = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(problems, start=1))
        raise KunhookError(f"the server cannot start, {len(problems)} problems:\n{numbered}")


def _set_process_env(plan: Plan) -> None:
    for variable, default in plan.named("get_process_env").items():
        os.environ.setdefault(variable, default.value)


_loaded = False


def load() -> None:
    """Connect the seams that are not on the platform class. Announced under ``sglang.srt.plugins``.

    Does nothing when the stack is inactive in this process, and nothing the second time: every
    distribution with a platform announces it.
    """
    global _loaded
    if _loaded:
        return
    _loaded = True
    from kunhook.seams import connect

    with _ending_the_process():
        connect.on_load()


@contextlib.contextmanager
def _ending_the_process() -> Iterator[None]:
    """Whatever is wrong ends the process; SGLang would swallow an exception and serve on another device."""
    try:
        yield
    except KunhookError as error:
        raise StartupError(str(error)) from error
    except Exception as error:
        raise StartupError(f"unexpected error:\n{traceback.format_exc()}") from error
