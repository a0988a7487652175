"""Driver of the card. The vendor runtime makes it look like CUDA to torch, so torch.cuda is the API.

Written against the vendor's documented behaviour; not run on a card yet.
"""

from __future__ import annotations

import torch


class XpuDriver:
    """A ``hookspecs.device.DeviceDriver`` for cards behind ``torch_xmlir``."""

    def device_count(self) -> int:
        return torch.cuda.device_count()

    def device_label(self, device_id: int) -> str:
        return str(torch.cuda.get_device_name(self._valid(device_id)))

    def device_uuid(self, device_id: int) -> str:
        properties = torch.cuda.get_device_properties(self._valid(device_id))
        # Some releases of the vendor runtime report no UUID; the index is stable on one host.
        return str(getattr(properties, "uuid", None) or f"kunlun-{device_id}")

    def total_memory(self, device_id: int) -> int:
        return int(torch.cuda.get_device_properties(self._valid(device_id)).total_memory)

    def used_memory(self, device_id: int) -> int:
        free, total = torch.cuda.mem_get_info(self._valid(device_id))
        return int(total - free)

    def current_device(self) -> int:
        return torch.cuda.current_device()

    def set_device(self, device_id: int) -> None:
        torch.cuda.set_device(self._valid(device_id))

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def _valid(self, device_id: int) -> int:
        count = torch.cuda.device_count()
        if not 0 <= device_id < count:
            raise ValueError(f"device {device_id}: this process sees {count} Kunlun device(s), numbered from 0.")
        return device_id
