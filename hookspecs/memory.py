"""Memory: KV pools, page allocator, host buffers."""

from __future__ import annotations

from hookspecs.markers import Mode, hookspec
from hookspecs.records import DeviceDetection, KVPoolKind, Ref


@hookspec(
    mode=Mode.ONE,
    since=1,
    key=("kind", ("mha", "mla", "dsa")),
    none="SGLang's own pool, which works on any torch device.",
)
def get_kv_pool_cls(kind: KVPoolKind, detection: DeviceDetection) -> Ref | None:
    """Choose the class of the KV cache pool.

    Asked while the plan is composed, once per kind; SGLang constructs the class in the workers.

    Args:
        kind: ``"mha"`` for separate keys and values, ``"mla"`` for a latent cache, ``"dsa"`` for a
            latent cache with an index for sparse attention.
        detection: the detection that won.

    Returns:
        A subclass of SGLang's ``MHATokenToKVPool``, ``MLATokenToKVPool`` or ``DSATokenToKVPool``,
        constructed with exactly the keyword arguments the in-tree class gets.

    Errors:
        A class that is not such a subclass stops the worker before memory is allocated.

    Example::

        @hookimpl
        def get_kv_pool_cls(kind):
            return "acme_backend.pools:PagedPool" if kind == "mha" else None
    """


@hookspec(mode=Mode.ONE, since=1, none="SGLang's own allocator.")
def get_paged_allocator_cls(detection: DeviceDetection) -> Ref | None:
    """Choose the class that hands out pages of the KV cache.

    Asked while the plan is composed; SGLang constructs the class in the workers when the page size
    is larger than one token.

    Args:
        detection: the detection that won.

    Returns:
        A subclass of SGLang's ``PagedTokenToKVPoolAllocator``.

    Errors:
        A class that is not such a subclass stops the worker.

    Example::

        @hookimpl
        def get_paged_allocator_cls():
            return "acme_backend.pools:PageAllocator"
    """


@hookspec(mode=Mode.ONE, since=1, none="SGLang's own host allocation, which registers the buffer with CUDA.")
def get_host_allocator(detection: DeviceDetection) -> Ref | None:
    """Choose how host buffers of the hierarchical KV cache are allocated.

    Asked while the plan is composed. SGLang has no official seam for it, and this version connects
    none: an answer stops startup rather than being lost.

    Args:
        detection: the detection that won.

    Returns:
        A function with the arguments of the installed SGLang's ``alloc_with_host_register``.

    Errors:
        Any answer stops startup, naming the plugin.

    Example::

        @hookimpl
        def get_host_allocator():
            return "acme_backend.host:allocate_registered"
    """
