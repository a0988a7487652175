"""KV cache beyond the device: storage and transfer."""

from __future__ import annotations

from collections.abc import Mapping

from hookspecs.markers import Mode, hookspec
from hookspecs.records import DeviceDetection, KVTransfer, Ref


@hookspec(mode=Mode.MERGE, since=1, none="Only SGLang's own storage backends exist.")
def get_hicache_storage(detection: DeviceDetection) -> Mapping[str, Ref] | None:
    """Offer storage backends for the third level of the hierarchical KV cache.

    Asked while the plan is composed; registered by name and constructed in the workers when
    ``--hicache-storage-backend`` names it.

    Args:
        detection: the detection that won.

    Returns:
        Backend name to a reference ``"package.module:Class"`` of a subclass of SGLang's
        ``HiCacheStorage``. SGLang loads it by name, so it has to be a reference.

    Errors:
        A name of SGLang's own stops startup.

    Example::

        @hookimpl
        def get_hicache_storage():
            return {"acme_ssd": "acme_backend.storage:SsdStorage"}
    """


@hookspec(mode=Mode.MERGE, since=1, none="Only SGLang's own transfer engines exist.")
def get_kv_transfer(detection: DeviceDetection) -> Mapping[str, KVTransfer] | None:
    """Offer engines that move KV cache from prefill to decode servers.

    Asked while the plan is composed. SGLang has no registry of engines, and this version connects
    none: an answer stops startup rather than being lost.

    Args:
        detection: the detection that won.

    Returns:
        Engine name to the classes of SGLang's four roles.

    Errors:
        Any answer stops startup, naming the plugin.

    Example::

        @hookimpl
        def get_kv_transfer():
            return {"acme_rdma": KVTransfer(
                manager="acme_backend.pd:Manager", sender="acme_backend.pd:Sender",
                receiver="acme_backend.pd:Receiver", bootstrap_server="acme_backend.pd:Server")}
    """
