"""Device: is it here, what is it, and what does it need from the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from hookspecs.markers import Asked, Mode, hookspec
from hookspecs.records import DeviceDetection, DeviceRuntime, EnvDefault


@runtime_checkable
class DeviceDriver(Protocol):
    """What SGLang asks of a device. One instance per process, created without arguments."""

    def device_count(self) -> int:
        """Number of devices this process can see."""

    def device_label(self, device_id: int) -> str:
        """Name for people, for example ``"Kunlun P800"``."""

    def device_uuid(self, device_id: int) -> str:
        """Identifier that stays the same while the machine runs."""

    def total_memory(self, device_id: int) -> int:
        """Memory of the device in bytes."""

    def used_memory(self, device_id: int) -> int:
        """Bytes in use on the device by all processes, not only by this one."""

    def current_device(self) -> int:
        """Index of the device this process works on."""

    def set_device(self, device_id: int) -> None:
        """Make ``device_id`` the current device. Raises ValueError when there is no such device."""

    def synchronize(self) -> None:
        """Return when all work queued on the current device is done."""

    def empty_cache(self) -> None:
        """Give cached, unused device memory back."""


@hookspec(mode=Mode.EACH, since=1, none="The device counts as absent and the stack stays inactive.")
def detect_device(full: bool) -> DeviceDetection | None:
    """Decide whether the plugin's device can be used on this machine.

    Asked while the plan is composed, in every process and by ``kunhook list``. Distinguish the
    stages: software installed, software loads, device visible; report the first that fails.

    Args:
        full: True while SGLang starts: torch is loaded, and the runtime may be loaded to prove that
            it works. False for listings: look, but import nothing heavy.

    Returns:
        A ``DeviceDetection``. Absent is an answer, not an error. ``broken=True`` stops startup.

    Errors:
        An exception marks the plugin as failed and stops startup.

    Example::

        @hookimpl
        def detect_device():
            cards = len(glob.glob("/dev/acme*"))
            return DeviceDetection(
                device="acme", present=cards > 0, variant="pci",
                reason=f"{cards} card(s) under /dev/acme*",
            )
    """


@hookspec(mode=Mode.ONE, since=1, none="There is no platform to hand to SGLang: startup stops.", must_run=True)
def get_device_runtime(detection: DeviceDetection) -> DeviceRuntime | None:
    """Name the device to SGLang and hand over the code that drives it.

    Asked while the plan is composed, in every process, after the device was found.

    Args:
        detection: the detection that won.

    Returns:
        A ``DeviceRuntime``: identity, capabilities and a ``DeviceDriver`` class. A runtime that
        presents itself through CUDA's API sets ``device_type="cuda"`` and keeps its own
        ``device_name``.

    Errors:
        A driver without one of the protocol's methods stops startup and names the method.

    Example::

        @hookimpl
        def get_device_runtime(detection):
            return DeviceRuntime(
                device_name="acme", device_type="cpu", dispatch_key="acme",
                driver="acme_backend.driver:AcmeDriver",
            )
    """


@hookspec(mode=Mode.MERGE, since=1, none="The environment stays as the operator set it.")
def get_process_env(detection: DeviceDetection) -> Mapping[str, EnvDefault] | None:
    """Offer environment variables that SGLang or the vendor's runtime needs on this device.

    Asked while the plan is composed; set in every process before SGLang reads them.

    Args:
        detection: the detection that won.

    Returns:
        Variable name to default and reason. A variable the operator has set keeps its value.

    Errors:
        Two plugins with one variable are a conflict on that variable.

    Example::

        @hookimpl
        def get_process_env():
            return {
                "SGLANG_ROPE_CACHE_FP32": EnvDefault(
                    value="1", reason="cos/sin tables in bf16 lose accuracy at long positions"),
            }
    """


@hookspec(
    mode=Mode.MERGE, since=1, asked=Asked.LAUNCH, none="The children inherit the launcher's environment unchanged."
)
def get_launch_env(server_args: Any) -> Mapping[str, EnvDefault] | None:
    """Offer environment variables whose value depends on the server arguments.

    Asked once, in the launcher, when SGLang resolves its arguments; inherited by the processes it
    starts afterwards.

    Args:
        server_args: SGLang's server arguments, to be read only.

    Returns:
        Variable name to default and reason. A variable the operator has set keeps its value.

    Errors:
        An exception stops startup, naming the plugin.

    Example::

        @hookimpl
        def get_launch_env(server_args):
            ranks = server_args.tp_size * server_args.pp_size
            return {"ACME_RANKS": EnvDefault(value=str(ranks), reason="sizes the link table")}
    """


@hookspec(mode=Mode.EACH, since=1, asked=Asked.WORKER, none="Nothing is initialised.", must_run=True)
def init_backend() -> None:
    """Initialise the vendor's runtime in a process that will load a model.

    Called once per worker, when SGLang imports its model runner: before process groups, weights and
    pools exist. Raise to stop the worker.

    Returns:
        Nothing.

    Errors:
        An exception ends the worker with a message that names the plugin.

    Example::

        @hookimpl
        def init_backend():
            import acme_runtime
            acme_runtime.open_context()
    """


@hookspec(mode=Mode.EACH, since=1, asked=Asked.WORKER, none="The model is used as loaded.", must_run=True)
def post_load_model(model: Any) -> None:
    """Look at, or rearrange, a model right after its weights are loaded.

    Called once per loaded model in each worker, target and draft alike. The model may be changed in
    place: relocate parameters, pack weights, refuse a layer the device cannot serve.

    Args:
        model: the ``torch.nn.Module`` SGLang has just loaded.

    Returns:
        Nothing.

    Errors:
        An exception ends the worker with a message that names the plugin.

    Example::

        @hookimpl
        def post_load_model(model):
            for name, parameter in model.named_parameters():
                if not parameter.is_contiguous():
                    raise ValueError(f"{name}: the device needs contiguous weights")
    """
