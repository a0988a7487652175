"""Events of this package: structlog on top of the host's logging.

Events go through a standard logger, so they appear once, in the host's own format. Nothing global
is configured: neither structlog's defaults nor the root logger nor any handler.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


def get_logger(name: str = "kunhook") -> Any:
    """A structlog logger bound to the standard logger ``name``."""
    import structlog

    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )


def _render(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """``event key=value …``: the host's formatter adds time and level."""
    text = str(event.pop("event"))
    return " ".join([text, *(f"{key}={value}" for key, value in event.items())])
