"""Versions of distributions, read from metadata. Nothing is imported to find out."""

from __future__ import annotations

import functools
from importlib import metadata

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from kunhook.errors import KunhookError

SGLANG = "sglang"


@functools.cache
def installed(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def unmet(name: str, found: str | None, wanted: str) -> str | None:
    """Why ``found`` does not satisfy the specifier ``wanted``; None when it does.

    Development, local and pre-release versions are compared like releases: a vendor's
    ``0.5.23+kunlun`` or a checkout's ``0.5.24.dev3`` is judged by its number.

    Raises:
        KunhookError: ``wanted`` is no PEP 440 specifier.
    """
    if not wanted:
        return None
    if found is None:
        return f"{name} is not installed, wanted {name}{wanted}"
    try:
        specifier = SpecifierSet(wanted, prereleases=True)
    except InvalidSpecifier as error:
        raise KunhookError(f"{name}: {wanted!r} is not a version range: {error}") from error
    try:
        version = Version(found)
    except InvalidVersion:
        return f"{name} has version {found!r}, which cannot be compared, wanted {name}{wanted}"
    if version in specifier or _release(version) in specifier:
        return None
    return f"{name} {found} is installed, wanted {name}{wanted}"


def _release(version: Version) -> Version:
    """The release a development, pre-release or local version belongs to."""
    post = "" if version.post is None else f".post{version.post}"
    return Version(f"{version.epoch}!{'.'.join(map(str, version.release))}{post}")


def unmet_requirement(text: str) -> str | None:
    """Why a PEP 508 requirement is not met by what is installed; None when it is.

    Raises:
        KunhookError: ``text`` is no requirement.
    """
    # Loaded on demand: most plans have no requirement, and listings should be quick.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise KunhookError(f"{text!r} is not a requirement: {error}") from error
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    found = installed(requirement.name)
    if found is None:
        return f"{requirement.name} is not installed, wanted {requirement}"
    return unmet(requirement.name, found, str(requirement.specifier))
