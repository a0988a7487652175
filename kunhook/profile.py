"""Deployment profiles: what was configured, by whom, and which word is the last.

Four layers, lowest first: built-in defaults, the profile with what it extends, ``KUNHOOK_SET`` in
the environment, ``--set`` on the command line. Every value keeps its source.
"""

from __future__ import annotations

import fnmatch
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hookspecs import HOOKS
from hookspecs.kernels import OPERATORS
from kunhook import _toml, versions
from kunhook.errors import KunhookError, UsageError, nearest

CONFIG_ENV = "KUNHOOK_CONFIG"
PROFILE_ENV = "KUNHOOK_PROFILE"
SET_ENV = "KUNHOOK_SET"
DEFAULT_PROFILE = "default"

NOBODY = "none"
"""Value of ``use`` that switches a hook, one key of it, or an operator off."""

_SECTIONS = ("extends", "hooks", "ops", "plugins", "when")
_WHEN = ("device", "env", "host", "sglang")


class Source(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Where a value comes from. ``rank`` orders the layers; the highest wins."""

    rank: int
    place: str

    def __str__(self) -> str:
        return self.place


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One effective value and its source."""

    key: str
    value: Any
    source: Source


class PluginFile(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin in a file of the deployment's own, listed under ``plugins.files``."""

    name: str
    path: str
    source: Source


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """``use`` of a whole hook, of one key of a hook, or of an operator."""

    value: str
    source: Source
    whole: bool = False


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configuration.

    Attributes:
        name: profile picked, or None when only defaults and overrides apply.
        file: file it came from.
        chain: profiles from the outermost parent to ``name``.
        settings: every effective value, by key.
        written: every value of every layer, lowest first, also those a later layer replaced.
        files: plugin files, in the order they were listed.
        unmet: conditions under ``when`` that do not hold here; a plan with one cannot start.
    """

    name: str | None
    file: str | None
    chain: tuple[str, ...]
    settings: Mapping[str, Setting]
    written: tuple[Setting, ...] = ()
    files: tuple[PluginFile, ...] = ()
    unmet: tuple[str, ...] = ()

    def plugin_rule(self, plugin: str) -> tuple[bool, str]:
        """Whether ``plugin`` may be loaded, and the rule that says so."""
        enable = self.settings.get("plugins.enable")
        disable = self.settings.get(f"plugins.disable.{plugin}")
        if disable is not None:
            return False, f"plugins.disable at {disable.source}"
        if enable is None:
            return True, "plugins are enabled unless a profile says otherwise"
        if plugin in enable.value:
            return True, f"plugins.enable at {enable.source}"
        if file := next((file for file in self.files if file.name == plugin), None):
            return True, f"plugins.files at {file.source}"
        return False, f"not listed in plugins.enable at {enable.source}"

    def hook_choice(self, hook: str, key: str | None) -> Choice | None:
        """Plugin chosen for a hook, or for one key of it.

        The higher layer wins; within one layer the key's own choice does. An operator's choice
        (``ops.<operator>.use``) is the key's own choice of ``get_op_impls``.
        """
        names = [f"hooks.{hook}.use", f"hooks.{hook}.keys.{key}.use"]
        if hook == "get_op_impls":
            names.append(f"ops.{key}.use")
        found = [setting for name in names if (setting := self.settings.get(name)) is not None]
        if not found:
            return None
        strongest = max(reversed(found), key=lambda setting: setting.source.rank)
        return Choice(value=strongest.value, source=strongest.source, whole=strongest.key == names[0])

    def hook_params(self, hook: str, key: str | None) -> dict[str, Setting]:
        """Fields of the answer's record set for a hook; those of the key are stronger."""
        return self._fields(f"hooks.{hook}.params.") | self._fields(f"hooks.{hook}.keys.{key}.params.")

    def unmet_device(self, device: str, variant: str) -> str | None:
        """Why the profile does not apply to a device; None when it does."""
        setting = self.settings.get("when.device")
        names = [device, variant, f"{device}/{variant}"]
        if setting is None or any(fnmatch.fnmatch(name, setting.value) for name in names):
            return None
        return _not_applicable(setting, f"the device is {names[-1]}")

    def _fields(self, prefix: str) -> dict[str, Setting]:
        return {key[len(prefix) :]: s for key, s in self.settings.items() if key.startswith(prefix)}


def config_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file: ``$KUNHOOK_CONFIG``, ``./kunhook.toml``, then the user's.

    Raises:
        UsageError: ``$KUNHOOK_CONFIG`` names a file that does not exist.
    """
    if named := environ.get(CONFIG_ENV):
        path = Path(named)
        if not path.is_file():
            raise UsageError(f"{CONFIG_ENV}={named}: there is no such file. Correct or unset it.")
        return path
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    for path in (Path("kunhook.toml"), Path(home) / "kunhook" / "kunhook.toml"):
        if path.is_file():
            return path
    return None


def load(
    *,
    plugins: Iterable[str],
    name: str | None = None,
    overrides: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Profile:
    """Read every layer and return the effective configuration.

    Args:
        plugins: names of the installed plugins; any other name is an error.
        name: profile to use; default ``$KUNHOOK_PROFILE``, then ``default`` when the file has one.
        overrides: ``key=value`` texts from the command line.
        environ: the environment to read.

    Raises:
        UsageError: unreadable file, unknown profile, plugin, hook, operator or key, a value of the
            wrong type, or an ``extends`` loop. The text names the source and the nearest matches.
    """
    path = config_file(environ)
    document, lines = _toml.read(path) if path else ({}, {})
    profiles = _profiles(document, lines, path)
    picked_by = "--profile" if name else f"{PROFILE_ENV}="
    wanted = name or environ.get(PROFILE_ENV)
    if wanted and wanted not in profiles:
        where = f"{path} has no such profile" if path else "there is no configuration file"
        raise UsageError(f"{picked_by}{' ' if name else ''}{wanted}: {where}. {nearest(wanted, profiles)}")
    picked = wanted or (DEFAULT_PROFILE if DEFAULT_PROFILE in profiles else None)

    layers: list[tuple[Source, tuple[str, ...], Any]] = []
    chain = _chain(picked, profiles, lines, path) if picked else ()
    for rank, profile in enumerate(chain, start=1):
        for key, value in _flatten(profiles[profile]):
            line = _toml.line_of(lines, ("profile", profile, *key))
            place = f"{path}:{line} [profile.{profile}]" if line else f"{path} [profile.{profile}]"
            layers.append((Source(rank=rank, place=place), key, value))
    for rank, place, texts in (
        (1000, SET_ENV, _split(environ.get(SET_ENV, ""))),
        (1001, "--set", list(overrides)),
    ):
        for text in texts:
            layers.extend((Source(rank=rank, place=place), key, value) for key, value in _assignments(text, place))

    files = tuple(_plugin_files(layers, path))
    check = _Checker(frozenset([*plugins, *(file.name for file in files)]))
    settings: dict[str, Setting] = {}
    for source, key, value in layers:
        check(source, key, value)
        _apply(settings, source, key, value)
    return Profile(
        name=picked,
        file=str(path) if path else None,
        chain=chain,
        settings=dict(sorted(settings.items())),
        written=tuple(Setting(key=".".join(key), value=value, source=source) for source, key, value in layers),
        files=files,
        unmet=tuple(_unmet_conditions(settings, environ)),
    )


def _profiles(document: dict[str, Any], lines: dict[tuple[str, ...], int], path: Path | None) -> dict[str, Any]:
    for key in document:
        if key != "profile":
            line = _toml.line_of(lines, (key,))
            raise UsageError(f"{path}:{line}: unknown key {key!r}. Only [profile.<name>] tables are read.")
    profiles = document.get("profile", {})
    if not isinstance(profiles, dict):
        raise UsageError(f"{path}: 'profile' must be a table of profiles.")
    for name, body in profiles.items():
        if not isinstance(body, dict):
            line = _toml.line_of(lines, ("profile", name))
            raise UsageError(f"{path}:{line}: profile {name!r} must be a table, not {body!r}.")
    return profiles


def _chain(
    name: str, profiles: dict[str, Any], lines: dict[tuple[str, ...], int], path: Path | None
) -> tuple[str, ...]:
    chain: list[str] = []
    current: str | None = name
    while current is not None:
        if current in chain:
            loop = " -> ".join([*chain, current])
            raise UsageError(f"{path}: 'extends' goes round in a circle: {loop}. Remove one of them.")
        if current not in profiles:
            line = _toml.line_of(lines, ("profile", chain[-1], "extends"))
            way = " -> ".join([*chain, current])
            raise UsageError(
                f"{path}:{line}: profile {current!r} is extended but not defined ({way}). {nearest(current, profiles)}"
            )
        chain.append(current)
        parent = profiles[current].get("extends")
        if parent is not None and not isinstance(parent, str):
            line = _toml.line_of(lines, ("profile", current, "extends"))
            raise UsageError(f"{path}:{line}: 'extends' takes one profile name, not {parent!r}.")
        current = parent
    return tuple(reversed(chain))


def _plugin_files(layers: Iterable[tuple[Source, tuple[str, ...], Any]], config: Path | None) -> Iterable[PluginFile]:
    """Plugin files of all layers; a relative path is relative to the file that names it."""
    seen: dict[str, PluginFile] = {}
    for source, key, value in layers:
        if key != ("plugins", "files"):
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"{source}: plugins.files takes a list of paths, not {value!r}.")
        base = Path.cwd() if source.rank >= 1000 or config is None else config.resolve().parent
        for item in value:
            file = (base / Path(item).expanduser()).resolve()
            if not file.is_file():
                raise UsageError(f"{source}: plugin file {item!r}: there is no file {file}.")
            other = seen.setdefault(file.name, PluginFile(name=file.name, path=str(file), source=source))
            if other.path != str(file):
                raise UsageError(
                    f"{source}: two plugin files are called {file.name}: {other.path} and {file}. Rename one."
                )
    return seen.values()


def _flatten(table: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        yield from _leaves((*prefix, key), value)


def _leaves(key: tuple[str, ...], value: Any) -> Iterable[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        yield from _flatten(value, key)
    else:
        yield key, value


def _split(text: str) -> list[str]:
    """Assignments in ``KUNHOOK_SET``: one per line, or separated by semicolons outside quotes."""
    parts, current, quote = [], "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in ";\n":
            parts.append(current)
            current = ""
            continue
        current += character
    return [part.strip() for part in [*parts, current] if part.strip()]


def _assignments(text: str, place: str) -> Iterable[tuple[tuple[str, ...], Any]]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{place}: {text!r} is not of the form key=value, e.g. ops.rms_norm.use=reference.")
    return _leaves(tuple(part.strip() for part in key.split(".")), _toml.value(value.strip()))


class _Checker:
    """Refuses what no layer may contain."""

    def __init__(self, plugins: frozenset[str]) -> None:
        self._plugins = plugins

    def __call__(self, source: Source, key: tuple[str, ...], value: Any) -> None:
        section = key[0]
        if section == "extends":
            if source.rank >= 1000:
                raise UsageError(f"{source}: 'extends' belongs into a profile, not here.")
        elif section == "plugins":
            self._plugins_key(source, key, value)
        elif section == "hooks":
            self._hooks_key(source, key, value)
        elif section == "ops":
            self._ops_key(source, key, value)
        elif section == "when":
            self._when_key(source, key, value)
        else:
            raise UsageError(f"{source}: unknown key {'.'.join(key)!r}. {nearest(section, _SECTIONS)}")

    def _plugins_key(self, source: Source, key: tuple[str, ...], value: Any) -> None:
        _known(source, "key", ".".join(key), ["plugins.enable", "plugins.disable", "plugins.files"])
        if key[1] == "files":
            return
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"{source}: {'.'.join(key)} takes a list of plugin names, not {value!r}.")
        for plugin in value:
            _known(source, "plugin", plugin, self._plugins)

    def _hooks_key(self, source: Source, key: tuple[str, ...], value: Any) -> None:
        if len(key) < 2:
            raise UsageError(f"{source}: hooks takes hooks.<hook>.use and hooks.<hook>.params.")
        hook = _known(source, "hook", key[1], HOOKS)
        spec, rest = HOOKS[hook], key[2:]
        if rest[:1] == ("keys",) and len(rest) >= 2:
            if spec.marks.keys:
                _known(source, f"key of {hook}", rest[1], spec.marks.keys)
            elif spec.marks.mode != "merge" or not spec.has_winner:
                raise UsageError(f"{source}: {hook} has no keys. Write hooks.{hook}.use.")
            rest = rest[2:]
        if rest == ("use",):
            _known(source, "plugin", _string(source, key, value), [*self._plugins, NOBODY])
        elif rest[:1] == ("params",):
            self._params(source, hook, rest[1:], value)
        else:
            _known(source, "key", ".".join(key), [f"hooks.{hook}.{name}" for name in ("use", "params", "keys")])
            raise UsageError(f"{source}: {'.'.join(key)} is incomplete.")

    def _params(self, source: Source, hook: str, rest: tuple[str, ...], value: Any) -> None:
        record = HOOKS[hook].marks.params
        if record is None:
            having = [name for name, spec in HOOKS.items() if spec.marks.params]
            raise UsageError(f"{source}: {hook} takes no params. Hooks that do: {', '.join(having)}.")
        if not rest:
            raise UsageError(f"{source}: hooks.{hook}.params takes a table of fields, not {value!r}.")
        fields = {field.name: field for field in msgspec.structs.fields(record)}
        name = _known(source, f"parameter of {hook}", ".".join(rest), fields)
        try:
            msgspec.convert(value, fields[name].type)
        except msgspec.ValidationError as error:
            raise UsageError(f"{source}: hooks.{hook}.params.{name} = {value!r}: {error}") from error

    def _when_key(self, source: Source, key: tuple[str, ...], value: Any) -> None:
        if key[1:2] == ("env",):
            if len(key) != 3:
                raise UsageError(f'{source}: when.env takes variables, as in when.env.NAME = "value".')
        else:
            _known(source, "condition", ".".join(key), [f"when.{name}" for name in _WHEN])
        text = _string(source, key, value)
        if key[1] == "sglang":
            try:
                versions.unmet(versions.SGLANG, "0", text)
            except KunhookError as error:
                raise UsageError(f"{source}: {'.'.join(key)}: {error}") from error

    def _ops_key(self, source: Source, key: tuple[str, ...], value: Any) -> None:
        if len(key) < 2:
            raise UsageError(f"{source}: ops takes ops.<operator>.use.")
        op = _known(source, "operator", key[1], OPERATORS)
        _known(source, "key", ".".join(key), [f"ops.{op}.use"])
        _string(source, key, value)


def _known(source: Source, kind: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    if name not in names:
        raise UsageError(f"{source}: unknown {kind} {name!r}. {nearest(name, names)}")
    return name


def _string(source: Source, key: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{source}: {'.'.join(key)} takes a string, not {value!r}.")
    return value


def _apply(settings: dict[str, Setting], source: Source, key: tuple[str, ...], value: Any) -> None:
    if key[0] == "extends":
        return
    name = ".".join(key)
    if name == "plugins.disable":
        # Disabling adds up along the layers; only a later 'enable' takes it back.
        for plugin in value:
            settings[f"{name}.{plugin}"] = Setting(key=f"{name}.{plugin}", value=True, source=source)
        return
    if name == "plugins.enable":
        for plugin in value:
            disabled = settings.get(f"plugins.disable.{plugin}")
            if disabled is not None and disabled.source.rank < source.rank:
                del settings[f"plugins.disable.{plugin}"]
    if name == "plugins.files":
        earlier = settings[name].value if name in settings else []
        value = [*earlier, *(item for item in value if item not in earlier)]
    settings[name] = Setting(key=name, value=value, source=source)


def _unmet_conditions(settings: dict[str, Setting], environ: Mapping[str, str]) -> Iterable[str]:
    """A profile written for another machine or version must not start here by accident."""
    for key, setting in settings.items():
        if not key.startswith("when."):
            continue
        name = key.split(".")[1]
        reason: str | None = None
        if name == "sglang":
            reason = versions.unmet(versions.SGLANG, versions.installed(versions.SGLANG), setting.value)
        elif name == "host" and not fnmatch.fnmatch(platform.node(), setting.value):
            reason = f"this host is {platform.node()!r}"
        elif name == "env":
            variable = key.split(".", 2)[2]
            found = environ.get(variable)
            if found != setting.value:
                reason = f"{variable} is {found!r}"
        if reason:
            yield _not_applicable(setting, reason)


def _not_applicable(setting: Setting, reason: str) -> str:
    return (
        f"{setting.source}: the profile applies when {setting.key.removeprefix('when.')} is {setting.value!r}, "
        f"but {reason}. Pick another profile or change the condition."
    )
