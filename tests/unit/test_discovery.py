"""Finding plugins in installed metadata, with nothing imported and nothing twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hookspecs import ENTRY_POINT_GROUP
from kunhook import discovery
from kunhook.discovery import Candidate, announcements, candidates, twice
from tests.support.distributions import distribution

pytestmark = pytest.mark.usefixtures("isolated")

Install = Callable[..., Path]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Installs a distribution with plugins into a folder; only such folders are on ``sys.path``."""
    monkeypatch.setattr(sys, "path", [])

    def install(
        name: str, folder: str = "site", version: str = "1.0", group: str = ENTRY_POINT_GROUP, **points: str
    ) -> Path:
        place = tmp_path / folder
        distribution(place, name, entry_points={group: points}, modules={}, version=version)
        if str(place) not in sys.path:
            sys.path.append(str(place))
        return place

    return install


def test_what_is_found(install: Install) -> None:
    install("acme-plugins", version="2.1", kernels="acme.kernels", comm="acme.comm:plugin")
    install("other", device="other.device")
    assert candidates() == (
        Candidate(name="comm", distribution="acme-plugins", version="2.1", value="acme.comm:plugin"),
        Candidate(name="device", distribution="other", version="1.0", value="other.device"),
        Candidate(name="kernels", distribution="acme-plugins", version="2.1", value="acme.kernels"),
    )
    assert "acme" not in sys.modules


def test_nothing_is_installed(install: Install) -> None:
    assert candidates() == ()


def test_other_groups_are_announcements_only(install: Install) -> None:
    folder = install("acme", group=discovery.PLATFORM_GROUP, acme="acme:activate")
    install("general", group=discovery.GENERAL_GROUP, general="general:load")
    install("unrelated", group="console_scripts", run="unrelated:main")
    assert candidates() == ()
    assert [(point.group, point.name, point.distribution) for point in announcements()] == [
        (discovery.PLATFORM_GROUP, "acme", "acme"),
        (discovery.GENERAL_GROUP, "general", "general"),
    ]
    assert announcements()[0].location == f"{folder}"


def test_the_same_twice_is_one(install: Install) -> None:
    """An editable install announces everything from two folders."""
    for folder in ("site", "checkout"):
        install("acme", folder, kernels="acme.kernels")
    entry_points = sys.path[0] / Path("acme-1.0.dist-info/entry_points.txt")
    entry_points.write_text(entry_points.read_text() * 2)
    assert [candidate.name for candidate in candidates()] == ["kernels"]


def test_the_first_of_two_versions_of_one_distribution(install: Install) -> None:
    install("acme", "user", version="2.0", kernels="acme.kernels")
    install("acme", "system", version="1.0", kernels="acme.old_kernels")
    assert [(candidate.version, candidate.value) for candidate in candidates()] == [("2.0", "acme.kernels")]


def test_two_distributions_with_one_name(install: Install) -> None:
    install("acme", kernels="acme.kernels", comm="acme.comm")
    install("rival", version="3.0", kernels="rival.kernels")
    assert twice(candidates()) == {
        "kernels": "the name is announced 2 times: acme 1.0 (acme.kernels) and rival 3.0 (rival.kernels). "
        "Uninstall one."
    }


def test_one_distribution_with_two_values(install: Install) -> None:
    folder = install("acme", kernels="acme.kernels")
    file = folder / "acme-1.0.dist-info" / "entry_points.txt"
    file.write_text(f"{file.read_text()}kernels = acme.other\n")
    assert "Reinstall the distribution" in twice(candidates())["kernels"]


def test_a_folder_without_metadata(install: Install) -> None:
    """What a broken uninstall leaves behind."""
    for name in ("acme", "rival"):
        (install(name, kernels="acme.kernels") / f"{name}-1.0.dist-info" / "METADATA").unlink()
    assert candidates() == (Candidate(name="kernels", distribution="unknown", version="unknown", value="acme.kernels"),)


def test_metadata_is_scanned_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("acme", kernels="acme.kernels")
    assert len(candidates()) == 1
    monkeypatch.setattr(discovery.metadata, "entry_points", lambda: pytest.fail("scanned again"))
    assert len(candidates()) == 1


def test_a_plugin_file_is_known_by_its_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    one = discovery.from_file("mine.py", str(file))
    assert (one.distribution, one.value, one.file) == ("(file)", str(file), True)
    assert discovery.from_file("mine.py", str(file)) == one
    file.write_text("x = 2\n")
    assert discovery.from_file("mine.py", str(file)).version != one.version
