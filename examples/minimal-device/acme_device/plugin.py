"""The four hooks that bring a device into SGLang."""

import os

from hookspecs import AttnBackend, DeviceDetection, DeviceRuntime, PluginInfo, hookimpl
from kunhook import activator

plugin_info = PluginInfo(summary="The ACME accelerator.", device="acme", sglang=">=0.5.17,<0.6")

activate = activator("acme")


@hookimpl
def detect_device():
    node = os.environ.get("ACME_DEVICE_NODE", "/dev/acme0")
    present = os.path.exists(node)
    return DeviceDetection(device="acme", present=present, reason=f"{node} {'exists' if present else 'does not exist'}")


@hookimpl
def get_device_runtime():
    return DeviceRuntime(
        device_name="acme", device_type="cpu", dispatch_key="acme", driver="acme_device.driver:AcmeDriver"
    )


@hookimpl
def get_attn_backend_cls():
    return {"acme": AttnBackend(cls="acme_device.attention:AcmeAttnBackend", summary="SGLang's torch attention")}


@hookimpl
def get_default_attn_backend():
    return "acme"
