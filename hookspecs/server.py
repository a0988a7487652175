"""Server arguments: defaults the device prefers, and combinations it cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hookspecs.markers import Asked, Mode, hookspec
from hookspecs.records import ArgDefault, ArgProblem, DeviceDetection


@hookspec(mode=Mode.MERGE, since=1, none="SGLang's own defaults are used.")
def get_server_arg_defaults(detection: DeviceDetection) -> Mapping[str, ArgDefault] | None:
    """Offer defaults for SGLang's server arguments.

    Asked while the plan is composed; applied once, in the launcher, when SGLang resolves its
    arguments.

    Args:
        detection: the detection that won.

    Returns:
        Field name of ``ServerArgs`` to default and reason. What the user chose wins: a flag on the
        command line or a key of the ``--config`` file, even when its value equals SGLang's own
        default, and any argument of ``Engine`` that differs from SGLang's default.

    Errors:
        A name that is no field of ``ServerArgs`` stops startup and names the nearest fields.

    Example::

        @hookimpl
        def get_server_arg_defaults():
            return {
                "sampling_backend": ArgDefault(value="pytorch", reason="the only sampler on acme"),
            }
    """


@hookspec(mode=Mode.EACH, since=1, asked=Asked.LAUNCH, none="The arguments are accepted.", must_run=True)
def check_server_args(server_args: Any) -> Sequence[ArgProblem] | None:
    """Refuse arguments the device cannot run, before anything is loaded.

    Asked once, in the launcher, after the defaults were applied.

    Args:
        server_args: SGLang's server arguments, to be read only.

    Returns:
        Every problem found. All problems of all plugins are printed together.

    Errors:
        Any problem, or an exception, stops startup.

    Example::

        @hookimpl
        def check_server_args(server_args):
            if (server_args.max_running_requests or 0) > 512:
                return [ArgProblem(
                    field="max_running_requests", value=str(server_args.max_running_requests),
                    message="acme decodes at most 512 requests at once",
                    remedy="--max-running-requests 512")]
    """
