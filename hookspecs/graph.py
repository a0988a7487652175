"""Graph capture and compilation."""

from __future__ import annotations

from hookspecs.markers import Mode, hookspec
from hookspecs.records import CapturePolicy, DeviceDetection, GraphPhase, Ref


@hookspec(mode=Mode.ONE, since=1, none="No graph is captured: SGLang would hand the device CUDA's runner.")
def get_graph_runner_cls(detection: DeviceDetection) -> Ref | None:
    """Choose the class that captures and replays decode steps.

    Asked while the plan is composed; SGLang constructs it in the workers after weights, pools and
    attention exist. Graphs are captured when the device declares ``graph_capture`` and somebody
    answers here.

    Args:
        detection: the detection that won.

    Returns:
        A subclass of SGLang's ``BaseCudaGraphRunner``, constructed with the model runner.
        SGLang's own ``DecodeCudaGraphRunner`` is a legitimate answer.

    Errors:
        A reference that cannot be loaded stops the worker.

    Example::

        @hookimpl
        def get_graph_runner_cls():
            return "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner"
    """


@hookspec(
    mode=Mode.ONE,
    since=1,
    key=("phase", ("decode", "prefill")),
    none="SGLang's full graph backend, which uses torch.cuda.CUDAGraph.",
)
def get_graph_backend_cls(phase: GraphPhase, detection: DeviceDetection) -> Ref | None:
    """Choose the class that records one shape and replays it.

    Asked while the plan is composed, once per phase; constructed in the workers by the graph
    runner. SGLang offers a seam for ``decode`` only.

    Args:
        phase: which kind of step.
        detection: the detection that won.

    Returns:
        A subclass of SGLang's ``BaseCudaGraphBackend``.

    Errors:
        An answer for a phase without a seam in the installed SGLang stops startup.

    Example::

        @hookimpl
        def get_graph_backend_cls(phase):
            return "acme_backend.graph:AcmeGraphBackend" if phase == "decode" else None
    """


@hookspec(mode=Mode.ONE, since=1, params=CapturePolicy, none="The graph plugin's own policy; without one, no capture.")
def get_capture_policy(detection: DeviceDetection) -> CapturePolicy | None:
    """Decide which decode steps are captured and what happens when one cannot be.

    Asked while the plan is composed; read in the workers by the graph runner.

    Args:
        detection: the detection that won.

    Returns:
        A record with mode, batch sizes and the answer to a failed capture.

    Errors:
        A batch size below 1 stops startup.

    Example::

        @hookimpl
        def get_capture_policy():
            return CapturePolicy(mode="full", batch_sizes=(1, 2, 4, 8), on_failure="stop")
    """


@hookspec(mode=Mode.ONE, since=1, none="`eager`: functions SGLang marks for compilation run as written.")
def get_compile_backend(detection: DeviceDetection) -> str | None:
    """Name the ``torch.compile`` backend.

    Asked while the plan is composed. SGLang reads it while its modules are imported, so it cannot
    depend on server arguments.

    Args:
        detection: the detection that won.

    Returns:
        A backend name torch knows, such as ``"inductor"`` or ``"eager"``.

    Errors:
        An unknown name fails at the first compilation, in torch.

    Example::

        @hookimpl
        def get_compile_backend():
            return "eager"
    """
