"""Speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping

from hookspecs.markers import Mode, hookspec
from hookspecs.records import DeviceDetection, DraftPhase, Ref, SpecSupport


@hookspec(mode=Mode.MERGE, since=1, none="SGLang refuses the algorithm on the device.")
def supports_algorithm(detection: DeviceDetection) -> Mapping[str, SpecSupport] | None:
    """Say which speculative algorithms the device can run.

    Asked while the plan is composed; read in the launcher when SGLang checks its arguments.

    Args:
        detection: the detection that won.

    Returns:
        SGLang's name of the algorithm, such as ``"EAGLE"``, to a record.

    Errors:
        Two plugins with one algorithm are a conflict on it.

    Example::

        @hookimpl
        def supports_algorithm():
            return {"EAGLE": SpecSupport(supported=True, draft_attn_backends=("acme",))}
    """


@hookspec(mode=Mode.MERGE, since=1, none="SGLang's own worker for the algorithm.")
def get_spec_worker_cls(detection: DeviceDetection) -> Mapping[str, Ref] | None:
    """Replace the worker that drives a speculative algorithm.

    Asked while the plan is composed; constructed in the workers.

    Args:
        detection: the detection that won.

    Returns:
        Algorithm name to a class with the built-in worker's constructor and interface.

    Errors:
        Two plugins with one algorithm are a conflict on it.

    Example::

        @hookimpl
        def get_spec_worker_cls():
            return {"EAGLE": "acme_backend.speculative:AcmeEagleWorker"}
    """


@hookspec(
    mode=Mode.ONE,
    since=1,
    key=("phase", ("draft_decode", "draft_extend")),
    none="The draft model runs eagerly in that phase.",
)
def get_draft_graph_runner_cls(phase: DraftPhase, detection: DeviceDetection) -> Ref | None:
    """Choose the class that captures steps of the draft model.

    Asked while the plan is composed, once per phase; constructed in the workers with the draft
    worker. Not read unless the device declares ``graph_capture``.

    Args:
        phase: which step of the draft model.
        detection: the detection that won.

    Returns:
        A class constructed like SGLang's draft graph runner of that phase.

    Errors:
        None of its own.

    Example::

        @hookimpl
        def get_draft_graph_runner_cls(phase):
            return "acme_backend.graph:DraftRunner" if phase == "draft_decode" else None
    """


@hookspec(mode=Mode.ONE, since=1, none="SGLang's Triton kernel computes the locations.")
def get_cache_locs_fn(detection: DeviceDetection) -> Ref | None:
    """Provide the function that computes KV locations of drafted tokens.

    Asked while the plan is composed; called by SGLang's speculative workers.

    Args:
        detection: the detection that won.

    Returns:
        A function with the signature of SGLang's ``assign_extend_cache_locs``.

    Errors:
        None of its own.

    Example::

        @hookimpl
        def get_cache_locs_fn():
            return "acme_backend.speculative:extend_cache_locs"
    """
