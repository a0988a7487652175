"""Communication between ranks."""

from __future__ import annotations

from hookspecs.markers import Mode, hookspec
from hookspecs.records import CommGroup, CommInitSizing, DeviceDetection, Ref


@hookspec(mode=Mode.ONE, since=1, none="SGLang's own choice for the device type: nccl on cuda, gloo on cpu.")
def get_comm_backend(detection: DeviceDetection) -> str | None:
    """Name the ``torch.distributed`` backend of the device groups.

    Asked while the plan is composed; read in every rank when the process group is created.

    Args:
        detection: the detection that won.

    Returns:
        A backend name registered with torch, such as ``"nccl"``, ``"gloo"`` or a vendor's own.

    Errors:
        A name torch does not know stops the rank.

    Example::

        @hookimpl
        def get_comm_backend():
            return "gloo"
    """


@hookspec(
    mode=Mode.ONE,
    since=1,
    key=("group", ("world", "tp", "attention_tp", "attn_cp", "moe_ep", "moe_tp", "moe_dp", "pp")),
    params=CommInitSizing,
    none="SGLang's hard-coded sizes.",
)
def get_comm_init_sizing(group: CommGroup, detection: DeviceDetection) -> CommInitSizing | None:
    """Choose the sizes used while a communication group is created.

    Asked while the plan is composed, once per group; read in every rank before the group exists.
    Vendors with large per-communicator buffers save most of their start-up memory here.

    Args:
        group: SGLang's name of the process group.
        detection: the detection that won.

    Returns:
        A record with sizes in bytes, elements and seconds; a field left None keeps SGLang's value.

    Errors:
        A negative size stops startup and names group and field.

    Example::

        @hookimpl
        def get_comm_init_sizing(group):
            if group == "tp":
                return CommInitSizing(buffer_bytes=64 << 20, queue_chunks=4)
    """


@hookspec(mode=Mode.ONE, since=1, none="Collectives run through torch.distributed alone.")
def get_communicator_cls(detection: DeviceDetection) -> Ref | None:
    """Choose a class for device-to-device collectives beside ``torch.distributed``.

    Asked while the plan is composed. SGLang exposes the class on the platform but does not construct
    it yet, in any version up to 0.5.23; the runtime library of the device may.

    Args:
        detection: the detection that won.

    Returns:
        A class constructed with a process group and a torch device.

    Errors:
        None of its own; the class raises when it is constructed.

    Example::

        @hookimpl
        def get_communicator_cls():
            return "acme_backend.comm:AcmeCommunicator"
    """


@hookspec(mode=Mode.ONE, since=1, none="The CPU, which is what SGLang gives an unknown device.")
def get_group_device(detection: DeviceDetection) -> str | None:
    """Choose the torch device a process group binds to on each rank.

    Asked while the plan is composed; read in every rank when a group is created.

    Args:
        detection: the detection that won.

    Returns:
        A torch device string in which ``{local_rank}`` stands for the rank on its machine, such as
        ``"cuda:{local_rank}"`` or ``"cpu"``.

    Errors:
        A string torch cannot parse stops the rank.

    Example::

        @hookimpl
        def get_group_device():
            return "cuda:{local_rank}"
    """
