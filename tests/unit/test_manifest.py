"""Manifests: private, never in the way of a server, and only of processes that live."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from kunhook import manifest
from kunhook.manifest import LiveHook, Manifest

HOOK = LiveHook(
    hook="get_comm_backend",
    key="",
    plugin="kunlun-xccl",
    distribution="kunhook",
    version="0.1.0",
    state="active",
    why="only implementation",
    seam="platform",
)


@pytest.fixture(autouse=True)
def folder(isolated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder manifests go to; it does not exist yet."""
    path = tmp_path / "manifests"
    monkeypatch.setenv(manifest.DIRECTORY_VARIABLE, str(path))
    monkeypatch.setattr(manifest, "_warned", False)
    previous = os.umask(0o022)
    yield path
    os.umask(previous)


def of(process: psutil.Process, launcher: int | None = None, **fields: object) -> Manifest:
    values = {
        "pid": process.pid,
        "started": process.create_time(),
        "launcher": launcher or process.pid,
        "digest": "0123456789abcdef",
        "device": "acme",
        "profile": None,
        "hooks": (HOOK,),
    }
    return Manifest(**values | fields)


def mine(**fields: object) -> Manifest:
    return of(psutil.Process(), **fields)


@pytest.fixture
def child() -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_user_can_read(folder: Path) -> None:
    manifest.write(mine())
    file = folder / f"{os.getpid()}.json"
    assert (mode(folder), mode(file)) == (0o700, 0o600)
    assert list(folder.iterdir()) == [file]


def test_what_is_written_is_read(folder: Path) -> None:
    manifest.write(mine(metrics={"acme.pool_bytes": 1.0}))
    manifest.write(mine(digest="feedfeedfeedfeed"))
    (process,) = manifest.read()
    assert process == manifest.Process(role="launcher", manifest=mine(digest="feedfeedfeedfeed"))
    data = manifest.to_builtins(process)
    assert (data["role"], data["pid"], data["hooks"]) == ("launcher", os.getpid(), (msgspec.to_builtins(HOOK),))
    assert data.keys() == {"role", *Manifest.__struct_fields__} - {"schema"}


def test_launchers_come_first(child: psutil.Process) -> None:
    own = os.getpid()
    manifest.write(of(child, launcher=own))
    manifest.write(mine())
    assert [(p.role, p.manifest.pid) for p in manifest.read()] == [("launcher", own), ("child", child.pid)]


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"KUNHOOK_RUNTIME_DIR": "/a", "XDG_RUNTIME_DIR": "/b"}, "/a"),
        ({"KUNHOOK_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": "/b"}, "/b/kunhook"),
        ({"KUNHOOK_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": ""}, f"/c/kunhook-{os.getuid()}"),
    ],
)
def test_where(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: str) -> None:
    monkeypatch.setattr(manifest.tempfile, "gettempdir", lambda: "/c")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(manifest.directory()) == place


def open_to_others(folder: Path) -> None:
    folder.mkdir(mode=0o755)


def of_another_user(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.getuid = lambda: os.stat(folder).st_uid + 1


def no_folder(folder: Path) -> None:
    folder.write_text("")


def below_a_file(folder: Path) -> None:
    folder.parent.joinpath("file").write_text("")
    os.environ[manifest.DIRECTORY_VARIABLE] = str(folder.parent / "file" / "below")


@pytest.mark.parametrize("prepare", [open_to_others, of_another_user, no_folder, below_a_file])
def test_an_unusable_folder_warns_once_and_goes_on(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, prepare: object
) -> None:
    monkeypatch.setattr(os, "getuid", os.getuid)
    prepare(folder)
    manifest.write(mine())
    manifest.write(mine())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "manifest not written" in record.getMessage()
    assert manifest.DIRECTORY_VARIABLE in record.getMessage()
    assert manifest.read() == []


def test_a_link_in_place_of_the_temporary_file(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(mode=0o700)
    victim = folder.parent / "victim"
    victim.write_text("precious")
    (folder / f".{os.getpid()}.tmp").symlink_to(victim)
    manifest.write(mine())
    assert victim.read_text() == "precious"
    assert len(caplog.records) == 1


GARBAGE = {
    "empty": b"",
    "text": b"not json",
    "bytes": b"\xff\xfe\x00",
    "list": b"[]",
    "half": b'{"pid": 1',
    "fields": b"{}",
    "types": b'{"pid": "one", "started": 0}',
    "schema": msgspec.json.encode(msgspec.to_builtins(Manifest(schema=99, pid=1, started=0, launcher=1, digest="",
                                                              device="", profile=None, hooks=()))),
}  # fmt: skip


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_ignored_and_left(folder: Path, text: bytes) -> None:
    manifest.write(mine())
    garbage = folder / "1.json"
    garbage.write_bytes(text)
    (folder / "notes.txt").write_text("")
    assert [process.manifest.pid for process in manifest.read()] == [os.getpid()]
    assert garbage.exists()


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"started": 1.0}, {"pid": -1}, {"pid": 2**40}], ids=str)
def test_a_stale_file_is_removed(folder: Path, change: dict[str, float]) -> None:
    """A pid that is gone, one that was reused since, or none at all."""
    manifest.write(mine())
    (file,) = folder.iterdir()
    stale = folder / "7.json"
    stale.write_bytes(msgspec.json.encode(msgspec.structs.replace(mine(), **change)))
    assert [process.manifest.pid for process in manifest.read()] == [os.getpid()]
    assert list(folder.iterdir()) == [file]


def test_a_process_that_ended_is_gone(folder: Path, child: psutil.Process) -> None:
    manifest.write(of(child))
    assert len(manifest.read()) == 1
    child.kill()
    deadline = time.monotonic() + 10
    while child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert manifest.read() == []
    assert list(folder.iterdir()) == []


def test_nothing_was_ever_written() -> None:
    assert manifest.read() == []


def test_a_process_removes_its_own_at_exit(folder: Path) -> None:
    code = (
        "import os, time; from kunhook import manifest\n"
        "manifest.write(manifest.Manifest(pid=os.getpid(), started=time.time(), launcher=1, digest='', device='',"
        " profile=None, hooks=()))\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait(); print(os.listdir(manifest.directory()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(".json']"), "a forked child must not remove the file of its parent"
    assert list(folder.iterdir()) == []
