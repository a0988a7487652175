"""What SGLang calls to activate the Kunlun platform."""

from __future__ import annotations

from kunhook.activation import activator
from kunlun_backend.device.detection import DEVICE

activate = activator(DEVICE)
