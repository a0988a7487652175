"""What SGLang asks of a device; see ``hookspecs.device.DeviceDriver``."""

import psutil


class AcmeDriver:
    def device_count(self):
        return 1

    def device_label(self, device_id):
        return "ACME 1"

    def device_uuid(self, device_id):
        return f"acme-{device_id}"

    def total_memory(self, device_id):
        return psutil.virtual_memory().total

    def used_memory(self, device_id):
        memory = psutil.virtual_memory()
        return memory.total - memory.available

    def current_device(self):
        return 0

    def set_device(self, device_id):
        if device_id:
            raise ValueError(f"device {device_id}: there is one ACME device, number 0.")

    def synchronize(self):
        """Nothing is ever outstanding on the CPU."""

    def empty_cache(self):
        """torch caches no CPU memory."""
