"""Plugins that exist for one test, and plans made of them."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hookspecs import DeviceDetection, DeviceRuntime, PluginInfo, hookimpl
from kunhook import profile
from kunhook.discovery import Candidate
from kunhook.plan import Plan, Row, compose
from kunhook.profile import Profile

DEVICE = "acme"


class Workbench:
    """Makes plugins out of functions and composes plans of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self.folder = folder

    def module(self, name: str, **content: Any) -> str:
        """Put a module into ``sys.modules`` for this test and return its name."""
        module = ModuleType(f"workbench_{name.replace('-', '_')}")
        vars(module).update(content)
        self._monkeypatch.setitem(sys.modules, module.__name__, module)
        return module.__name__

    def plugin(
        self,
        name: str,
        *,
        info: PluginInfo | None = None,
        distribution: str = "",
        version: str = "1.0",
        marks: dict[str, Any] | None = None,
        **hooks: Any,
    ) -> Candidate:
        """A plugin. A hook is a function, or the answer itself when it takes no argument.

        ``marks`` are options of ``hookimpl`` for every hook that is not marked yet.
        """
        content = {hook: _implementation(value, marks or {}) for hook, value in hooks.items()}
        if info is not None:
            content["plugin_info"] = info
        return Candidate(
            name=name,
            distribution=distribution or f"{name}-dist",
            version=version,
            value=self.module(name, **content),
        )

    def source(self, name: str, text: str) -> Candidate:
        """A plugin from source text in a file of its own, imported when the plan says so."""
        self._monkeypatch.syspath_prepend(self.folder)
        module = f"workbench_{name.replace('-', '_')}"
        (self.folder / f"{module}.py").write_text(text)
        self._monkeypatch.setitem(sys.modules, module, ModuleType(module))
        self._monkeypatch.delitem(sys.modules, module)
        return Candidate(name=name, distribution=f"{name}-dist", version="1.0", value=module)

    def device(
        self, name: str = "acme-device", *, device: str = DEVICE, present: bool = True, **hooks: Any
    ) -> Candidate:
        """A plugin that finds ``device`` and drives it."""
        hooks.setdefault("detect_device", detection(device, present=present))
        if present:
            hooks.setdefault("get_device_runtime", runtime(device))
        return self.plugin(name, info=PluginInfo(device=device), **hooks)

    def profile(
        self,
        plugins: Iterable[str] = (),
        config: str = "",
        *,
        name: str | None = None,
        sets: Iterable[str] = (),
        environ: dict[str, str] | None = None,
    ) -> Profile:
        """Load a profile; ``config`` becomes ``./kunhook.toml``."""
        if config:
            Path("kunhook.toml").write_text(config)
        return profile.load(
            plugins=plugins, name=name, overrides=sets, environ=os.environ if environ is None else environ
        )

    def compose(
        self,
        *plugins: Candidate,
        config: str = "",
        sets: Iterable[str] = (),
        device: str | None = None,
        alone: bool = False,
    ) -> Plan:
        """Compose a plan of ``plugins``, with a device that is present unless they are ``alone``."""
        found = plugins if alone else (self.device(), *plugins)
        names = [candidate.name for candidate in found]
        return compose(self.profile(names, config, sets=sets), device=device, found=tuple(found))


def _implementation(value: Any, marks: dict[str, Any]) -> Callable[..., Any]:
    if inspect.isfunction(value):
        return value if hasattr(value, "kunhook_impl") else hookimpl(value, **marks)

    def answer() -> Any:
        return value

    return hookimpl(answer, **marks)


def detection(device: str = DEVICE, *, present: bool = True, **fields: Any) -> DeviceDetection:
    """A detection with a reason that names the device."""
    fields.setdefault("reason", f"{device} is here" if present else f"no {device} found")
    return DeviceDetection(device=device, present=present, **fields)


def runtime(device: str = DEVICE) -> DeviceRuntime:
    """The identity of a device on the CPU."""
    return DeviceRuntime(device_name=device, device_type="cpu", dispatch_key=device, driver="workbench:Driver")


def rows_of(plan: Plan, hook: str, plugin: str | None = None) -> list[Row]:
    """Rows of one hook, of one plugin or of all."""
    return [row for row in plan.rows if row.hook == hook and plugin in (None, row.plugin)]


def row_of(plan: Plan, hook: str, plugin: str) -> Row:
    """The one row of a hook and a plugin."""
    (row,) = rows_of(plan, hook, plugin)
    return row
