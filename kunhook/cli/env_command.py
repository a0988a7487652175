"""``kunhook env``."""

from __future__ import annotations

import os
import platform
import sys

import click

from kunhook import versions
from kunhook.cli import options
from kunhook.discovery import announcements

_DISTRIBUTIONS = (
    "kunhook",
    "sglang",
    "torch",
    "triton",
    "transformers",
    "torch_xmlir",
    "kunlun_ops",
    "xspeedgate_ops",
    "pluggy",
    "msgspec",
    "structlog",
)
_PREFIXES = ("KUNHOOK_", "KUNLUN_", "SGLANG_", "XPU_", "XMLIR_", "BKCL_", "CUDA_VISIBLE", "OMP_", "MKL_")


@click.command("env")
@options.profile_options
@options.json_option
def command(profile: str | None, overrides: tuple[str, ...], as_json: bool) -> int:
    """Environment report to paste into an issue."""
    import psutil

    plan = options.plan_of(profile, overrides)
    memory = psutil.virtual_memory()
    report = {
        "system": {
            "python": f"{sys.version.split()[0]} ({sys.executable})",
            "platform": platform.platform(),
            "processor": f"{_processor()}, {os.cpu_count()} cores",
            "memory": f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB available",
        },
        "distributions": {name: versions.installed(name) or "not installed" for name in _DISTRIBUTIONS},
        "device": {
            f"{detection.device} {stage.name}": f"{_mark(stage.ok)} {stage.detail}"
            for detection in plan.detections
            for stage in detection.stages
        },
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)},
        "plan": {
            "digest": plan.digest,
            "profile": plan.profile.name or "(none)",
            "device": plan.device.reason if plan.device else plan.absent_reason,
            "problems": "; ".join(plan.problems) or "none",
        },
        "plugins": {
            f"{point.group}: {point.name}": f"{point.distribution} {point.version} ({point.value})"
            for point in announcements()
        },
        "hooks": {
            f"{row.hook}{f'[{row.key}]' if row.key else ''} ({row.plugin})": f"{row.state}: {row.why}"
            for row in plan.rows
        },
    }
    if as_json:
        options.print_json(report)
        return 0
    for section, facts in report.items():
        click.echo(f"[{section}]")
        for name, text in facts.items():
            click.echo(f"{name}: {text}")
        click.echo()
    return 0


def _mark(ok: bool | None) -> str:
    return {True: "ok", False: "failed", None: "not tried"}[ok]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"
