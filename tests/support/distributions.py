"""Throw-away distributions: folders with modules and metadata, to be put on ``PYTHONPATH``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def distribution(
    folder: Path,
    name: str,
    *,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    version: str = "1.0",
) -> Path:
    """Write a distribution into ``folder`` and return the folder.

    Args:
        folder: made when it does not exist; may hold other distributions already.
        name: name of the distribution.
        entry_points: group to entry point name to value.
        modules: module name to source.
        version: version of the distribution.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entry_points.items():
        lines.append(f"[{group}]")
        lines.extend(f"{point} = {value}" for point, value in points.items())
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


BARE_PLATFORM = '''
"""SGLang on the CPU through the least platform class it accepts; kunhook has no part in it."""

import psutil
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform


def activate():
    return "bare_platform:BarePlatform"


class BarePlatform(SRTPlatform):
    _enum = PlatformEnum.OOT
    device_name = "bare"
    device_type = "cpu"

    def get_device(self, device_id=0):
        return "cpu"

    def get_device_total_memory(self, device_id=0):
        return psutil.virtual_memory().total

    def get_current_memory_usage(self, device=None):
        return float(psutil.virtual_memory().used)

    def get_default_attention_backend(self):
        return "torch_native"

    def get_compile_backend(self, mode=None):
        return "eager"

    def get_device_uuid(self, device_id=0):
        return "bare-0"
'''


def bare_platform(folder: Path) -> Path:
    """SGLang without us, on a machine whose in-tree CPU engine lacks its kernel package."""
    return distribution(
        folder,
        "bare-platform",
        entry_points={"sglang.srt.platforms": {"bare": "bare_platform:activate"}},
        modules={"bare_platform": BARE_PLATFORM},
    )
