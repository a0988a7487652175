"""Numbers a plugin reports about itself."""

from __future__ import annotations

from collections.abc import Sequence

from hookspecs.markers import Asked, Mode, hookspec
from hookspecs.records import Metric


@hookspec(mode=Mode.EACH, since=1, asked=Asked.REPORT, none="The manifest has no metrics of the plugin.")
def collect_metrics() -> Sequence[Metric] | None:
    """Report numbers about the plugin in this process.

    Called whenever the process writes its manifest; shown by ``kunhook list --live``.

    Returns:
        Any number of metrics. Names are unique within the plugin.

    Errors:
        An exception is logged once and the plugin's metrics are left out; serving goes on.

    Example::

        @hookimpl
        def collect_metrics():
            return [Metric(name="pool_bytes", value=float(pool.used), unit="bytes")]
    """
