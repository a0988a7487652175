"""What a process really runs, written where ``kunhook list --live`` finds it.

One file per process in a folder that only its user can read. Writing never stops a server: when the
folder cannot be used, one warning says so. Files of processes that are gone are removed by readers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from kunhook import processes
from kunhook.log import get_logger

SCHEMA = 1
DIRECTORY_VARIABLE = "KUNHOOK_RUNTIME_DIR"


class LiveHook(msgspec.Struct, frozen=True, kw_only=True):
    """A hook in a running process. ``active`` only after it was read back from SGLang there.

    ``planned`` is True where the plan says active, whatever this process uses of it.
    """

    hook: str
    key: str
    plugin: str
    distribution: str
    version: str
    state: str
    why: str
    seam: str
    planned: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One process. ``started`` is in seconds since the epoch; ``ready`` after a model was loaded."""

    schema: int = SCHEMA
    pid: int
    started: float
    launcher: int
    digest: str
    device: str
    profile: str | None
    ready: bool = False
    hooks: tuple[LiveHook, ...]
    metrics: dict[str, float] = {}


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A live process: its manifest and what it does."""

    role: str
    manifest: Manifest


def directory() -> Path:
    """Folder of the manifests: ``$KUNHOOK_RUNTIME_DIR``, else one per user."""
    if named := os.environ.get(DIRECTORY_VARIABLE):
        return Path(named)
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "kunhook"
    return Path(tempfile.gettempdir()) / f"kunhook-{os.getuid()}"


_warned = False
_removed_at_exit: set[tuple[int, Path]] = set()


def write(manifest: Manifest) -> None:
    """Write the manifest of this process, replacing an earlier one in one step."""
    folder = directory()
    target = folder / f"{manifest.pid}.json"
    temporary = folder / f".{manifest.pid}.tmp"
    try:
        prepare(folder)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(manifest))
        os.replace(temporary, target)
    except OSError as error:
        _warn_once(folder, error)
        return
    remove_at_exit(target)


def remove_at_exit(file: Path) -> None:
    """Remove a file of this process when it ends; a forked child leaves it alone."""
    pid = os.getpid()
    if (pid, file) not in _removed_at_exit:
        _removed_at_exit.add((pid, file))
        atexit.register(_remove, file, pid)


def prepare(folder: Path) -> None:
    """Make the folder, or check it.

    Raises:
        OSError: it cannot be made, belongs to somebody else, or others may read it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} must belong to this user with mode 0700")


def _warn_once(folder: Path, error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        get_logger().warning(
            "manifest not written; 'kunhook list --live' will not show this process",
            folder=str(folder),
            error=str(error),
            remedy=f"make the folder writable for this user only, or set {DIRECTORY_VARIABLE}",
        )


def _remove(target: Path, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            target.unlink()


def read() -> list[Process]:
    """Every live process, launchers first. Stale and unreadable files are removed or skipped."""
    found = []
    try:
        files = sorted(directory().glob("*.json"))
    except OSError:
        return []
    for file in files:
        manifest = _read_one(file)
        if manifest is None:
            continue
        if processes.is_alive(manifest.pid, manifest.started):
            role = processes.role_of(manifest.pid, manifest.launcher)
            found.append(Process(role=role, manifest=manifest))
        else:
            for left in (file, file.with_suffix(".sock")):
                with contextlib.suppress(OSError):
                    left.unlink()
    return sorted(found, key=lambda p: (p.manifest.launcher, p.role != "launcher", p.role, p.manifest.pid))


def _read_one(file: Path) -> Manifest | None:
    """A manifest, or None for garbage and for another schema. Garbage is left for its owner."""
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if manifest.schema == SCHEMA else None


def to_builtins(process: Process) -> dict[str, Any]:
    """A process as plain data for ``--json``."""
    data: dict[str, Any] = msgspec.to_builtins(process.manifest)
    data.pop("schema")
    return {"role": process.role, **data}
