"""Connect the plan to SGLang, at the moments SGLang gives us, and read every connection back.

Four moments: plugins are loaded (every process SGLang loads plugins in), server arguments are
resolved (launcher), a worker imports its model runner, a model has been loaded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from hookspecs import HOOKS, Asked
from kunhook import answers, control, discovery, manifest, processes
from kunhook import bound as bound_module
from kunhook.bound import Bound
from kunhook.errors import KunhookError, StartupError
from kunhook.log import get_logger
from kunhook.seams import arguments, debts, platform_reads, registries, signatures
from kunhook.seams.catalogue import TESTED, Kind, seam_for
from kunhook.seams.readback import Readbacks
from kunhook.trace import Tracer

_readbacks = Readbacks()
_tracer: Tracer | None = None
_ready = False
_worker_connected = False
_without_metrics: set[str] = set()


def on_load() -> None:
    """Plugins are loaded: names become choices of the command line, the platform is read back."""
    _refuse_rival_platform()
    bound = bound_module.current()
    if bound is None:
        return
    _refuse_unknown_sglang(bound)
    platform_reads.check(bound, _readbacks, worker=False)
    registries.add_choices(bound, _readbacks)
    _refuse_unconnected(bound)
    _report(bound)


def on_server_args(server_args: Any) -> None:
    """The launcher resolves its arguments."""
    bound = _bound()
    with _stopping():
        registries.add_choices(bound, _readbacks)
        applied = arguments.apply(bound, server_args)
        for name in bound.plan.named("get_server_arg_defaults"):
            if name in applied:
                _readbacks.took("get_server_arg_defaults", name, f"applied {applied[name]!r}")
            else:
                _readbacks.unused("get_server_arg_defaults", name, "the user chose a value")
        for hook in ("get_launch_env", "check_server_args"):
            _readbacks.called(hook, bound)
        _report(bound)


def on_worker() -> None:
    """A worker imports its model runner: everything that needs SGLang's layers is connected now."""
    global _worker_connected
    if _worker_connected:
        return
    _worker_connected = True
    bound = _bound()
    with _stopping():
        _refuse_unknown_sglang(bound)
        platform_reads.check(bound, _readbacks, worker=True)
        registries.register_attention(bound, _readbacks)
        registries.register_operators(bound, _readbacks)
        registries.register_storage(bound, _readbacks)
        registries.check_quantization(bound, _readbacks)
        debts.take_on(bound, _readbacks)
        _call("init_backend", bound)
        _report(bound)
    get_logger().info(
        "hooks active",
        device=bound.plan.device.device if bound.plan.device else "",
        digest=bound.plan.digest,
        active=_readbacks.count(),
    )


def on_model(model: Any) -> None:
    """A model has been loaded in this worker."""
    global _ready
    bound = _bound()
    bound.alive.model(model)
    with _stopping():
        _call("post_load_model", bound, model=model)
        _ready = True
        _report(bound)


def _call(hook: str, bound: Bound, **available: Any) -> None:
    for implementation in bound.plan.calls.get(hook, ()):
        answers.ask(implementation, **available)
    _readbacks.called(hook, bound)


def _bound() -> Bound:
    bound = bound_module.current()
    if bound is None:
        raise StartupError("SGLang calls the platform, but this process composed no plan.")
    return bound


class _stopping:  # noqa: N801 - reads as a statement
    """Turn our errors into the end of the process; SGLang would log them and go on."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, KunhookError):
            raise StartupError(str(error)) from error


def _refuse_rival_platform() -> None:
    """Another distribution may hold our platform name; SGLang then takes one of them silently."""
    from sglang.srt.platforms import current_platform

    if bound_module.current() is not None or not current_platform.is_out_of_tree():
        return
    selected = os.environ.get("SGLANG_PLATFORM")
    platforms = [point for point in discovery.announcements() if point.group == discovery.PLATFORM_GROUP]
    for name in sorted({point.name for point in platforms if point.distribution == "kunhook"}):
        rivals = [point for point in platforms if point.name == name]
        packages = {point.value.partition(":")[0].partition(".")[0] for point in rivals}
        taken = selected == name or (not selected and type(current_platform).__module__.partition(".")[0] in packages)
        if len(rivals) > 1 and taken:
            named = " and ".join(f"{point.distribution} {point.version} ({point.value})" for point in rivals)
            raise KunhookError(
                f"platform {name!r} is registered by {named}. SGLang silently took one of them. "
                f"Uninstall the one you do not want."
            )


def _refuse_unknown_sglang(bound: Bound) -> None:
    """Names and signatures the seams rely on, compared with what SGLang has loaded by now."""
    problems = signatures.check(bound.plan.sglang or "")
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise KunhookError(
            f"SGLang {bound.plan.sglang} is not what the seam catalogue expects:\n{lines}\n"
            f"Compare it with a tested version ({', '.join(TESTED)}): kunhook diff TESTED_WHEEL {bound.plan.sglang}"
        )


def _refuse_unconnected(bound: Bound) -> None:
    """Answers that no seam of this version takes must not be lost in silence."""
    for hook in bound.plan.answers:
        seam = seam_for(hook, bound.plan.sglang)
        if seam is None or seam.kind is Kind.NONE:
            key = next(iter(bound.plan.answers[hook]))
            where = f"SGLang {bound.plan.sglang} has no seam for it" if seam is None else "no seam is connected for it"
            raise KunhookError(
                f"{bound.source(hook, key)}: {where}. Switch the answer off with "
                f'hooks.{hook}.use = "none", or use a version that has the seam: kunhook show {hook}'
            )


def _report(bound: Bound) -> None:
    """Write the manifest of this process, and listen for requests about it."""
    control.listen(_handle)
    plan = bound.plan
    pid = os.getpid()
    manifest.write(
        manifest.Manifest(
            pid=pid,
            started=processes.start_time(pid) or time.time(),
            launcher=processes.launcher_pid(),
            digest=plan.digest,
            device=plan.device.device if plan.device else "",
            profile=plan.profile.name,
            ready=_ready,
            hooks=tuple(_live_hooks(bound)),
            metrics=_metrics(bound),
        )
    )


def _handle(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request that came through the control socket."""
    global _tracer
    bound = _bound()
    if _tracer is None:
        _tracer = Tracer(bound)
    command, action = request.get("command"), request.get("action")
    if command == "report":
        return {"used": dict(bound.used), "calls": _tracer.counts(), "metrics": _metrics(bound)}
    if command == "trace" and action in ("on", "off", "report"):
        if action == "on":
            _tracer.on(str(request.get("hook")), request.get("key"))
        elif action == "off":
            _tracer.off(str(request.get("hook")), request.get("key"))
        return _tracer.report()
    raise KunhookError(f"unknown request {request!r}")


def _live_hooks(bound: Bound) -> Iterable[manifest.LiveHook]:
    for row in bound.plan.rows:
        state, why = row.state.value, row.why
        if state == "active":
            state, why = _readbacks.state_of(row.hook, row.key.partition("@")[0], why)
        yield manifest.LiveHook(
            hook=row.hook,
            key=row.key,
            plugin=row.plugin,
            distribution=row.distribution,
            version=row.version,
            state=state,
            why=why,
            seam=row.seam,
            planned=row.state.value == "active",
        )


def _metrics(bound: Bound) -> dict[str, float]:
    values: dict[str, float] = {}
    for implementation in bound.plan.calls.get("collect_metrics", ()):
        plugin = implementation.plugin
        try:
            metrics = answers.ask(implementation) or ()
        except KunhookError as error:
            if plugin not in _without_metrics:
                _without_metrics.add(plugin)
                get_logger().warning("metrics left out", plugin=plugin, error=str(error))
            continue
        values |= {f"{plugin}.{metric.name}": metric.value for metric in metrics}
    if HOOKS["collect_metrics"].marks.asked is Asked.REPORT and "collect_metrics" in bound.plan.calls:
        _readbacks.called("collect_metrics", bound)
    return values
