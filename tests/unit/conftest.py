"""Fixtures of the unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from kunhook import bound, discovery, versions
from tests.support.workbench import Workbench

_PREFIXES = ("KUNHOOK_", "KUNLUN_", "SGLANG_", "XPU_")


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterable[None]:
    """Empty working directory and user folders, none of our variables, no plan, a known SGLang."""
    for name in _ours():
        monkeypatch.delenv(name)
    for variable, folder in (
        ("HOME", "home"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_RUNTIME_DIR", "run"),
        ("XDG_CACHE_HOME", "cache"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / folder))
        (tmp_path / folder).mkdir(mode=0o700)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(bound, "_bound", None)
    monkeypatch.setattr(versions, "installed", {"sglang": "0.5.23", "acme-runtime": "2.0"}.get)
    forget_announcements = discovery.announcements.cache_clear
    forget_announcements()
    yield
    forget_announcements()
    for name in _ours():
        del os.environ[name]


def _ours() -> list[str]:
    return [name for name in os.environ if name.startswith(_PREFIXES)]


@pytest.fixture
def bench(isolated: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Workbench:
    """Makes plugins and plans for one test."""
    return Workbench(monkeypatch, tmp_path)
