"""Load a plugin and read its implementations, refusing what could only half work."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pluggy

from hookspecs import HOOKS, PROJECT, SPEC_VERSION, ImplMarks, PluginInfo, impl_marks
from hookspecs.markers import has_impl_marks
from kunhook.discovery import Candidate
from kunhook.errors import KunhookError, nearest

_UNSUPPORTED_OPTIONS = ("wrapper", "hookwrapper", "tryfirst", "trylast", "specname")


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's answer to one hook: the function, not yet asked."""

    hook: str
    plugin: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    marks: ImplMarks

    def ask(self, **available: Any) -> Any:
        """Call the function with the arguments it takes."""
        return self.function(**{name: available[name] for name in self.arguments})


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that was loaded and accepted."""

    candidate: Candidate
    info: PluginInfo
    implementations: tuple[Implementation, ...]


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows every hook specification."""
    manager = pluggy.PluginManager(PROJECT)
    # Only the specifications: pluggy looks at every name of what it is given.
    specifications = ModuleType("specifications")
    vars(specifications).update({name: spec.function for name, spec in HOOKS.items()})
    manager.add_hookspecs(specifications)
    return manager


def load(candidate: Candidate) -> Any:
    """Import the object an entry point names, or run a plugin file.

    Whatever that raises comes through. A plugin file becomes a module of a private name, the same in
    every process that has the same text.
    """
    if candidate.file:
        name = f"kunhook_file_{candidate.version}_{Path(candidate.value).stem}"
        spec = importlib.util.spec_from_file_location(name, candidate.value)
        if spec is None or spec.loader is None:
            raise KunhookError(f"{candidate.value} is not a Python file; its name has to end in .py.")
        module = importlib.util.module_from_spec(spec)
        # As an import would do it: dataclasses and pickle look their module up by name.
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    name_of_module, _, attribute = candidate.value.partition(":")
    target: Any = importlib.import_module(name_of_module.strip())
    for name in filter(None, attribute.strip().split(".")):
        target = getattr(target, name)
    return target


def register(manager: pluggy.PluginManager, candidate: Candidate, plugin: Any) -> Registration:
    """Check a loaded plugin and register it with pluggy.

    Every check runs before pluggy sees the plugin, so a refused plugin leaves nothing behind.

    Raises:
        KunhookError: an implementation with a name no spec has, an unknown argument, a default
            value, ``*args``, ``async``, or an option of pluggy that has no meaning here. The text
            names file and line.
    """
    info = getattr(plugin, "plugin_info", None) or PluginInfo()
    if not isinstance(info, PluginInfo):
        raise KunhookError(
            f"plugin {candidate.name!r} ({candidate.value}): plugin_info is a {type(info).__name__}, "
            f"not a hookspecs.PluginInfo."
        )
    implementations = []
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is None:
            if has_impl_marks(getattr(plugin, name, None)):
                raise KunhookError(
                    f"plugin {candidate.name!r} ({candidate.value}), hook {name!r}: an implementation is a plain "
                    f"function, not a {type(getattr(plugin, name)).__name__}."
                )
            continue
        function = getattr(plugin, name)
        arguments = _checked(candidate.name, name, function, options, info)
        implementations.append(
            Implementation(
                hook=name,
                plugin=candidate.name,
                function=function,
                arguments=arguments,
                marks=impl_marks(function),
            )
        )
    manager.register(plugin, candidate.name)
    return Registration(candidate=candidate, info=info, implementations=tuple(implementations))


def _checked(plugin: str, name: str, function: Any, options: Any, info: PluginInfo) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)

    def refuse(why: str) -> KunhookError:
        return KunhookError(f"{where}: plugin {plugin!r}, hook {name!r}: {why}")

    spec = HOOKS.get(name)
    if spec is None:
        if info.spec_version > SPEC_VERSION:
            raise refuse(f"needs contract version >= {info.spec_version}, this is {SPEC_VERSION}. Upgrade kunhook.")
        raise refuse(f"no specification has this name. {nearest(name, HOOKS)}")
    for option in _UNSUPPORTED_OPTIONS:
        if options.get(option):
            raise refuse(f"{option} has no meaning here; use hookimpl(before=..., after=..., replaces=...).")
    if impl_marks(function).replaces and not spec.has_winner:
        raise refuse("replaces has no meaning here: every implementation is called.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise refuse("an implementation is a plain function, not an async one.")
    if inspect.isgeneratorfunction(function):
        raise refuse("an implementation is a plain function, not a generator.")
    arguments = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise refuse(f"{stars}{parameter.name} would never be filled. The hook is {spec.signature}.")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise refuse(f"argument {parameter.name!r} is positional-only; arguments are passed by name.")
        if parameter.name not in spec.arguments:
            raise refuse(f"unknown argument {parameter.name!r}. The hook is {spec.signature}.")
        if parameter.default is not parameter.empty:
            raise refuse(f"argument {parameter.name!r} has a default, which would never be replaced. Remove it.")
        arguments.append(parameter.name)
    return tuple(arguments)
