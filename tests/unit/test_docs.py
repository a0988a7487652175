"""The documentation says what is true: generated pages are fresh, links resolve, commands are run."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hookspecs import document

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/*.md")])

# Commands that start servers or build environments, and the test that runs them.
RUN_ELSEWHERE = {
    "make demo": "tests/serving/test_demo.py",
    "make test": ".ci/run",
    "make bench": "tests/benchmarks/test_planning.py",
    "make venv": ".ci/run",
    "make lint": ".ci/run",
    "make format": "tests/unit/test_docs.py::test_make_targets_exist",
    "make docs": "tests/unit/test_docs.py::test_hook_reference_is_fresh",
    "kunhook serve": "tests/serving/test_demo.py",
    "kunhook demo": "tests/serving/test_demo.py",
    "python -m sglang.launch_server": "tests/serving/test_entry_points.py",
    "sglang serve": "tests/serving/test_entry_points.py",
    "kunhook diff": "tests/unit/test_diff.py",
    "kunhook audit": "tests/contract/test_audit.py",
    "pip install": "tests/serving/test_minimal_device.py",
}


def _commands() -> list[tuple[str, str]]:
    """Every command after a ``$`` in a console block, with its page."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL):
            for line in block.splitlines():
                if line.startswith("$ "):
                    found.append((page.relative_to(ROOT).as_posix(), line[2:].partition("  #")[0].strip()))
    return found


def _without_variables(command: str) -> str:
    return re.sub(r"^(\w+=\S+ )+", "", command)


def _elsewhere(command: str) -> str | None:
    plain = _without_variables(command)
    return next((where for start, where in RUN_ELSEWHERE.items() if plain.startswith(start)), None)


QUICK = [(page, command) for page, command in _commands() if _elsewhere(command) is None]


@pytest.mark.parametrize(("page", "command"), QUICK, ids=[f"{page}: {command}" for page, command in QUICK])
def test_quick_commands_run(page, command, tmp_path):
    words = shlex.split(command)
    assert words[0] == "kunhook", f"{page}: {command!r} is run by no test; see RUN_ELSEWHERE"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KUNHOOK", "SGLANG"))}
    done = subprocess.run(
        [sys.executable, "-c", "from kunhook.cli import main; main()", *words[1:]],
        env=environment | {"KUNLUN_DEVICE": "sim", "XDG_CONFIG_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_commands_run_elsewhere_name_a_test_that_exists():
    for _, command in _commands():
        where = _elsewhere(command)
        if where is not None:
            assert (ROOT / where.partition("::")[0]).is_file(), (command, where)


def test_hook_reference_is_fresh():
    assert (ROOT / "docs" / "hooks.md").read_text() == document.render(), "run: make docs"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for _, command in _commands():
        if command.startswith("make "):
            target = command.split()[1]
            assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.MULTILINE), command


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_resolve_and_python_parses(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        if "->" in block and "def " not in block:
            continue  # a bare signature
        ast.parse(block)


def test_profiles_in_the_documentation_are_valid(tmp_path, monkeypatch):
    """Every profile block that names only this distribution's plugins loads."""
    from kunhook import discovery, profile

    plugins = [candidate.name for candidate in discovery.candidates()]
    seen = 0
    for page in PAGES:
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL):
            if "[profile." not in block:
                continue
            seen += 1
            file = tmp_path / "kunhook.toml"
            file.write_text(block)
            for name in re.findall(r"\[profile\.([\w-]+)\]", block):
                profile.load(plugins=[*plugins, "my-plugin"], name=name, environ={"KUNHOOK_CONFIG": str(file)})
    assert seen
