"""Edit a profile file: switch plugins on and off, keep every comment, lose nothing.

The file is locked while it is read, changed and replaced in one step, so that two editors at once
both count. A symbolic link stays one, and the file keeps its mode.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from kunhook.errors import KunhookError, UsageError

_LOCK_SUFFIX = ".lock"


def disable(file: Path, profile: str, plugin: str) -> str:
    """Disable a plugin in a profile of ``file``; returns what was done, as a sentence.

    Raises:
        UsageError: the file is not valid TOML.
        KunhookError: it cannot be written; the file is as it was.
    """
    with _editing(file) as document:
        plugins = _plugins_table(document, profile)
        _drop(plugins, "enable", plugin)
        if not _append(plugins, "disable", plugin):
            return f"{plugin} is already disabled in profile {profile!r} of {file}"
    return f"{plugin} is disabled in profile {profile!r} of {file}"


def enable(file: Path, profile: str, plugin: str) -> str:
    """Enable a plugin in a profile of ``file``; returns what was done, as a sentence.

    Where the profile lists its plugins (``plugins.enable``), the plugin is added to the list.

    Raises:
        UsageError: the file is not valid TOML.
        KunhookError: it cannot be written; the file is as it was.
    """
    with _editing(file) as document:
        plugins = _plugins_table(document, profile)
        changed = _drop(plugins, "disable", plugin)
        if "enable" in plugins:
            changed |= _append(plugins, "enable", plugin)
        if not changed:
            return f"{plugin} is not disabled in profile {profile!r} of {file}"
    return f"{plugin} is enabled in profile {profile!r} of {file}"


def _plugins_table(document: Any, profile: str) -> Any:
    profiles = document.setdefault("profile", tomlkit.table(is_super_table=True))
    body = profiles.setdefault(profile, tomlkit.table())
    if "plugins" not in body:
        # Dotted keys, as the documentation writes them.
        body.append(tomlkit.key(["plugins", "disable"]), tomlkit.array())
    return body["plugins"]


def _append(plugins: Any, name: str, plugin: str) -> bool:
    if name not in plugins:
        plugins[name] = tomlkit.array()
    if plugin in plugins[name]:
        return False
    plugins[name].append(plugin)
    return True


def _drop(plugins: Any, name: str, plugin: str) -> bool:
    if plugin not in plugins.get(name, ()):
        return False
    plugins[name].remove(plugin)
    return True


@contextlib.contextmanager
def _editing(file: Path) -> Iterator[Any]:
    target = file.resolve()
    if not target.parent.is_dir():
        raise KunhookError(f"{target.parent}: there is no such folder. Create it first.")
    with _locked(target):
        text, mode = _read(target)
        try:
            document = tomlkit.parse(text)
        except tomlkit.exceptions.TOMLKitError as error:
            raise UsageError(f"{file}: not valid TOML: {error}") from error
        yield document
        changed = tomlkit.dumps(document)
        if changed != text:
            _replace(target, changed, mode)


def _read(target: Path) -> tuple[str, int]:
    try:
        text, mode = target.read_text(encoding="utf-8"), stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return "", 0o644
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{target}: cannot be read: {error}") from error
    # The superuser could write it all the same; a file somebody made read-only stays as it is.
    if not mode & stat.S_IWUSR:
        raise KunhookError(f"{target} is read-only (mode {mode:04o}). Make it writable to edit it.")
    return text, mode


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    lock = target.with_name(f".{target.name}{_LOCK_SUFFIX}")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise KunhookError(f"{target.parent}: cannot write here: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, text: str, mode: int) -> None:
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, mode)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise KunhookError(f"{target}: cannot be written: {error}. Nothing was changed.") from error
