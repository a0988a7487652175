"""Switching plugins on and off in a profile file: nothing is lost, nothing is half written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib

import pytest

from kunhook import profile_edit
from kunhook.errors import KunhookError, UsageError

WRITTEN = """\
# deployment of the east hall
[profile.base]          # everybody starts here
plugins.enable = [
  "kunlun-device",      # the card
  "kunlun-kernels",
]

[profile.prod]
extends = "base"
ops.rms_norm.use = "reference"  # until the wheel is fixed
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kunhook.toml"
    path.write_text(WRITTEN)
    return path


def _plugins(file, profile):
    return tomllib.loads(file.read_text())["profile"][profile].get("plugins", {})


def test_disable_and_enable_go_round(file):
    profile_edit.disable(file, "prod", "kunlun-xccl")
    assert _plugins(file, "prod")["disable"] == ["kunlun-xccl"]
    profile_edit.enable(file, "prod", "kunlun-xccl")
    assert _plugins(file, "prod")["disable"] == []


def test_lists_follow_and_comments_stay(file):
    profile_edit.disable(file, "base", "kunlun-kernels")
    profile_edit.enable(file, "base", "kunlun-xccl")
    assert _plugins(file, "base") == {"enable": ["kunlun-device", "kunlun-xccl"], "disable": ["kunlun-kernels"]}
    text = file.read_text()
    for comment in ("# deployment of the east hall", "# everybody starts here", "# the card", "# until the wheel"):
        assert comment in text


def test_a_table_written_out_is_edited_too(file):
    file.write_text('[profile.base.plugins]\ndisable = ["a"] # why\n')
    profile_edit.disable(file, "base", "b")
    assert _plugins(file, "base") == {"disable": ["a", "b"]}
    assert "# why" in file.read_text()


def test_doing_it_twice_says_so(file):
    profile_edit.disable(file, "prod", "kunlun-xccl")
    before = file.read_text()
    assert "already disabled" in profile_edit.disable(file, "prod", "kunlun-xccl")
    assert file.read_text() == before


def test_a_missing_file_and_profile_are_made(tmp_path):
    file = tmp_path / "kunhook.toml"
    profile_edit.disable(file, "default", "kunlun-xccl")
    assert _plugins(file, "default") == {"disable": ["kunlun-xccl"]}


def test_mode_and_symbolic_link_survive(file, tmp_path):
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    profile_edit.disable(link, "prod", "kunlun-xccl")
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert _plugins(file, "prod")["disable"] == ["kunlun-xccl"]


def test_a_read_only_file_is_left_alone(file):
    file.chmod(0o444)
    with pytest.raises(KunhookError, match="read-only"):
        profile_edit.disable(file, "prod", "kunlun-xccl")
    assert file.read_text() == WRITTEN


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(KunhookError, match="no such folder"):
        profile_edit.disable(tmp_path / "nowhere" / "kunhook.toml", "prod", "kunlun-xccl")


def test_broken_toml_is_left_alone(file):
    file.write_text("[profile.base\n")
    with pytest.raises(UsageError, match="not valid TOML"):
        profile_edit.enable(file, "base", "kunlun-xccl")
    assert file.read_text() == "[profile.base\n"


def test_an_interrupted_write_changes_nothing(file, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KunhookError, match="disk full"):
        profile_edit.disable(file, "prod", "kunlun-xccl")
    assert file.read_text() == WRITTEN
    assert [path.name for path in file.parent.iterdir() if path.name.endswith(".toml")] == ["kunhook.toml"]


def test_two_editors_at_once_both_count(file):
    script = "import sys; from pathlib import Path; from kunhook.profile_edit import disable\n"
    script += "for n in range(20): disable(Path(sys.argv[1]), 'prod', f'{sys.argv[2]}-{n}')"
    editors = [subprocess.Popen([sys.executable, "-c", script, str(file), name]) for name in ("a", "b")]
    assert [editor.wait(60) for editor in editors] == [0, 0]
    assert set(_plugins(file, "prod")["disable"]) == {f"{name}-{n}" for name in "ab" for n in range(20)}
