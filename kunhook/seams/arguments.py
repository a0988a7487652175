"""Server arguments: put defaults where the user chose nothing, refuse what cannot run.

SGLang hands a platform a recorder whose writes win over everything, flags the user typed included.
So what the user chose is found out here, and left alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping
from importlib import util
from typing import Any, NoReturn

import msgspec

from hookspecs import ArgDefault, ArgProblem, EnvDefault
from kunhook import answers, refs
from kunhook.bound import Bound
from kunhook.errors import KunhookError, nearest


def apply(bound: Bound, server_args: Any) -> dict[str, Any]:
    """Apply launch environment and defaults, then run the checks.

    Returns:
        The fields that got a default of ours.

    Raises:
        KunhookError: an unknown field, a failing hook, or problems the checks found.
    """
    defaults = bound.plan.named("get_server_arg_defaults")
    known = _field_defaults()
    for name in defaults:
        if name not in known:
            raise KunhookError(
                f"{bound.source('get_server_arg_defaults', name)}: ServerArgs has no field {name!r}. "
                f"{nearest(name, known)}"
            )
    chosen = chosen_by_user(server_args)
    applied = {}
    for name, default in (_own_defaults(bound) | defaults).items():
        if name in known and name not in chosen:
            setattr(server_args, name, default.value)
            applied[name] = default.value
    for name, value in applied.items():
        if getattr(server_args, name) != value:
            raise KunhookError(f"SGLang did not take the default {name}={value!r}.")
    _set_launch_env(bound, server_args)
    _check(bound, server_args)
    return applied


def _own_defaults(bound: Bound) -> dict[str, ArgDefault]:
    """Defaults that follow from other hooks.

    On a device whose tensors live on the CPU, SGLang fills in its own CPU backend before it would
    ask the platform for the default one.
    """
    backend = bound.plan.value("get_default_attn_backend")
    if backend is None:
        return {}
    bound.used["get_default_attn_backend"] += 1
    return {"attention_backend": ArgDefault(value=backend, reason="get_default_attn_backend")}


def chosen_by_user(server_args: Any) -> frozenset[str]:
    """Fields the user set: typed on the command line or in ``--config``, or passed to ``Engine``.

    A value passed to ``Engine`` that equals SGLang's default cannot be told from no value.
    """
    defaults = _field_defaults()
    raw: Mapping[str, Any] = getattr(server_args, "_raw_input", None) or _before_0_5_19(server_args, defaults)
    differing = {name for name, value in raw.items() if name in defaults and value != defaults[name]}
    typed = {name for name, value in _typed().items() if name in raw and raw[name] == value}
    return frozenset(differing | typed)


def _before_0_5_19(server_args: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Older versions keep no copy of what the user gave: the record itself, less what SGLang filled in."""
    raw = {name: getattr(server_args, name) for name in defaults}
    return {name: value for name, value in raw.items() if _FILLED_IN.get(name) != value}


_FILLED_IN = {"attention_backend": "intel_amx"}
"""Fields SGLang fills in on a CPU before it asks the platform."""

_CONFIG_PARSERS = ("sglang.srt.utils.server_args_config_parser", "sglang.srt.server_args_config_parser")
"""Where the reader of ``--config`` lives, newest place first."""


def _field_defaults() -> dict[str, Any]:
    """Every field of ``ServerArgs`` and its default; fields without one map to a unique object."""
    from sglang.srt.server_args import ServerArgs

    fields: Any = dataclasses.fields if dataclasses.is_dataclass(ServerArgs) else msgspec.structs.fields
    return {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in fields(ServerArgs)
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


_NOT_TYPED = object()


def _typed() -> dict[str, Any]:
    """Fields on the command line of this process with their values, as SGLang parses them."""
    from sglang.srt.server_args import ServerArgs

    parser = _Parser(add_help=False)
    ServerArgs.add_cli_args(parser)
    argv = [argument for argument in sys.argv[1:] if argument != "serve"]
    # argparse fills in a default only where the namespace has no attribute yet.
    namespace = argparse.Namespace(**dict.fromkeys(_field_defaults(), _NOT_TYPED))
    try:
        if "--config" in argv:
            place = next(name for name in _CONFIG_PARSERS if util.find_spec(name) is not None)
            merger = refs.resolve(f"{place}:ConfigArgumentMerger", wanted_by="--config")
            argv = merger(parser).merge_config_with_args(argv)
        parser.parse_known_args(argv, namespace)
    except ValueError:
        # The command line of a script that uses Engine, not SGLang's own.
        return {}
    return {name: value for name, value in vars(namespace).items() if value is not _NOT_TYPED}


def _set_launch_env(bound: Bound, server_args: Any) -> None:
    hook = "get_launch_env"
    owners: dict[str, str] = {}
    wanted: dict[str, EnvDefault] = {}
    for implementation in bound.plan.calls.get(hook, ()):
        for variable, default in (answers.ask(implementation, server_args=server_args) or {}).items():
            other = owners.setdefault(variable, implementation.plugin)
            differ = other != implementation.plugin and wanted[variable].value != default.value
            if differ and variable not in os.environ:
                raise KunhookError(
                    f"conflict: plugins {other!r} and {implementation.plugin!r} set {variable} to "
                    f"{wanted[variable].value!r} and {default.value!r}. Set {variable} yourself, or disable one."
                )
            wanted[variable] = default
    for variable, default in wanted.items():
        os.environ.setdefault(variable, default.value)


def _check(bound: Bound, server_args: Any) -> None:
    hook = "check_server_args"
    problems: list[tuple[str, ArgProblem]] = []
    for implementation in bound.plan.calls.get(hook, ()):
        found = answers.ask(implementation, server_args=server_args) or ()
        problems.extend((implementation.plugin, problem) for problem in found)
    if problems:
        lines = "\n".join(
            f"  --{p.field.replace('_', '-')} {p.value}: {p.message}. Use {p.remedy}. (plugin {plugin})"
            for plugin, p in problems
        )
        raise KunhookError(f"the server arguments cannot be used on this device:\n{lines}")
