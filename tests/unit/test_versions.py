"""Version ranges, judged without importing anything."""

from __future__ import annotations

from importlib import metadata

import pytest

from kunhook import versions
from kunhook.errors import KunhookError
from kunhook.versions import installed, unmet, unmet_requirement

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("0.5.23", ">=0.5.17,<0.6"),
        ("0.5.23", ""),
        (None, ""),
        ("0.5.23+kunlun.p800", "==0.5.23"),
        ("0.5.23+kunlun", "<=0.5.23"),
        ("0.5.23.post1", ">=0.5.23"),
        # A checkout or a candidate is judged by the number it will have.
        ("0.5.24.dev3+gabc", ">=0.5.24"),
        ("0.5.23rc1", ">=0.5.23,<0.6"),
        ("0.5.23.dev0", ">=0.5.17,<0.5.24"),
        ("0.5.24rc1", "==0.5.24rc1"),
        ("1!0.1", ">=1!0"),
    ],
)
def test_met(found: str | None, wanted: str) -> None:
    assert unmet("sglang", found, wanted) is None


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("0.5.16", ">=0.5.17,<0.6"),
        ("0.6.0.dev1", "<0.6"),
        ("0.5.24.dev3", "<0.5.24"),
        ("0.5.23.post1", "<=0.5.23"),
        ("0.5.9", ">=0.5.17"),
    ],
)
def test_unmet_names_both(found: str, wanted: str) -> None:
    assert unmet("sglang", found, wanted) == f"sglang {found} is installed, wanted sglang{wanted}"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "sglang is not installed, wanted sglang>=1"),
        ("main", "sglang has version 'main', which cannot be compared, wanted sglang>=1"),
    ],
)
def test_unmet_without_a_usable_version(found: str | None, text: str) -> None:
    assert unmet("sglang", found, ">=1") == text


def test_a_range_that_is_none() -> None:
    with pytest.raises(KunhookError, match=r"sglang: 'newest' is not a version range"):
        unmet("sglang", "0.5.23", "newest")


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("acme-runtime>=1", None),
        ("acme-runtime>=3", "acme-runtime 2.0 is installed, wanted acme-runtime>=3"),
        ("acme-blas>=1", "acme-blas is not installed, wanted acme-blas>=1"),
        ("acme-blas; python_version < '3'", None),
    ],
)
def test_requirements(requirement: str, reason: str | None) -> None:
    assert unmet_requirement(requirement) == reason


def test_a_requirement_that_is_none() -> None:
    with pytest.raises(KunhookError, match=r"'acme runtime' is not a requirement"):
        unmet_requirement("acme runtime")


def test_installed_reads_metadata_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def version(name: str) -> str:
        asked.append(name)
        if name == "acme":
            return "1.0"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions.metadata, "version", version)
    installed.cache_clear()
    assert [installed("acme"), installed("acme"), installed("absent")] == ["1.0", "1.0", None]
    assert asked == ["acme", "absent"]
    installed.cache_clear()
