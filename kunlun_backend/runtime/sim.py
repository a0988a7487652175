"""Driver of the software Kunlun: one device, whose memory is the host's."""

from __future__ import annotations

import uuid
from pathlib import Path

import psutil

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


class SimDriver:
    """A ``hookspecs.device.DeviceDriver`` for the CPU.

    Calls are synchronous: torch has finished on the CPU when a call returns.
    """

    def device_count(self) -> int:
        return 1

    def device_label(self, device_id: int) -> str:
        _only_device(device_id)
        return "software Kunlun (CPU)"

    def device_uuid(self, device_id: int) -> str:
        _only_device(device_id)
        return f"sim-{uuid.getnode():012x}"

    def total_memory(self, device_id: int) -> int:
        """Memory of the host, or of the control group when that is smaller, in bytes."""
        # Ranks of one server are devices 0..N-1 to SGLang, and share the one memory there is.
        total = psutil.virtual_memory().total
        limit = _read_bytes(_CGROUP_LIMIT)
        return min(total, limit) if limit is not None else total

    def used_memory(self, device_id: int) -> int:
        """Bytes that no process can get any more, whoever uses them."""
        memory = psutil.virtual_memory()
        used = memory.total - memory.available
        limit, in_group = _read_bytes(_CGROUP_LIMIT), _read_bytes(_CGROUP_USED)
        if limit is not None and in_group is not None and limit < memory.total:
            return max(in_group, limit - memory.available)
        return used

    def current_device(self) -> int:
        return 0

    def set_device(self, device_id: int) -> None:
        """Every rank computes on the same CPU; its cores are bound by SGLang."""

    def synchronize(self) -> None:
        """Nothing is ever outstanding."""

    def empty_cache(self) -> None:
        """torch caches no CPU memory."""


def _only_device(device_id: int) -> None:
    if device_id < 0:
        raise ValueError(f"device {device_id}: the software Kunlun has no negative device numbers.")


def _read_bytes(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
