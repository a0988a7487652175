"""Compose hardware plugins into one frozen plan and connect it to SGLang.

Importing this package imports neither torch nor SGLang, and changes nothing anywhere.
"""

from __future__ import annotations

from kunhook.activation import activator
from kunhook.errors import KunhookError, StartupError, UsageError

__version__ = "0.1.0"

__all__ = ["KunhookError", "StartupError", "UsageError", "__version__", "activator"]
