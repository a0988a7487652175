"""A way into a running process for its own user: a socket beside the manifest.

One thread per process waits for requests of one JSON line and answers with one. The socket has mode
0600 in a folder of mode 0700, and the peer's user is checked again on every connection.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kunhook import manifest
from kunhook.errors import KunhookError, describe
from kunhook.log import get_logger

_TIMEOUT = 30.0
_LONGEST = 1 << 16
_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[dict[str, Any]], dict[str, Any]]

_listening_pid: int | None = None


def socket_path(pid: int) -> Path:
    """Where the process ``pid`` listens."""
    return manifest.directory() / f"{pid}.sock"


def listen(handler: Handler) -> None:
    """Start answering requests in this process; once, however often it is called.

    A folder that cannot be used costs the control channel, never the server: one warning says so.
    """
    global _listening_pid
    if _listening_pid == os.getpid():
        return
    _listening_pid = os.getpid()
    path = socket_path(os.getpid())
    try:
        manifest.prepare(path.parent)
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(path))
        os.chmod(path, 0o600)
        server.listen(4)
    except OSError as error:
        get_logger().warning("no control socket; 'kunhook trace' will not reach this process", error=str(error))
        return
    manifest.remove_at_exit(path)
    threading.Thread(target=_serve, args=(server, handler), name="kunhook-control", daemon=True).start()


def _serve(server: socket.socket, handler: Handler) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(_TIMEOUT)
            try:
                _answer(connection, handler)
            except OSError:
                continue


def _answer(connection: socket.socket, handler: Handler) -> None:
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.getuid():
        return
    try:
        request = json.loads(_line(connection))
        reply = {"ok": True, **handler(request)}
    except KunhookError as error:
        reply = {"ok": False, "error": str(error)}
    except Exception as error:
        reply = {"ok": False, "error": describe(error)}
    connection.sendall(json.dumps(reply).encode() + b"\n")


def _line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        piece = connection.recv(4096)
        received += piece
        if not piece or len(received) > _LONGEST:
            break
    return received


def request(pid: int, content: dict[str, Any]) -> dict[str, Any]:
    """Send a request to a process and return its answer.

    Raises:
        KunhookError: the process cannot be reached, or refuses.
    """
    path = socket_path(pid)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(str(path))
            connection.sendall(json.dumps(content).encode() + b"\n")
            reply: dict[str, Any] = json.loads(_line(connection))
    except (OSError, ValueError) as error:
        raise KunhookError(f"process {pid} cannot be reached at {path}: {error}") from error
    if not reply.get("ok"):
        raise KunhookError(f"process {pid}: {reply.get('error')}")
    return reply
