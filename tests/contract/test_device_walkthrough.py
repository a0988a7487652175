"""``docs/writing-a-device.md`` quotes the example as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "minimal-device"
PAGE = (ROOT / "docs" / "writing-a-device.md").read_text()
QUOTED = ["pyproject.toml", "acme_device/plugin.py", "acme_device/driver.py", "acme_device/attention.py"]


def test_the_blocks_are_the_files() -> None:
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert blocks == [(EXAMPLE / name).read_text() for name in QUOTED]


@pytest.mark.parametrize("name", QUOTED)
def test_the_page_names_every_file(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_a_device_takes_four_hooks_and_less_than_a_hundred_lines() -> None:
    sources = [file.read_text() for file in EXAMPLE.rglob("*.py") if "build" not in file.parts]
    assert sum(source.count("\n") for source in sources) < 100
    assert sum(source.count("@hookimpl") for source in sources) == 4
