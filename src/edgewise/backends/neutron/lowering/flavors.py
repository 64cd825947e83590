"""The names of NXP's converters: one package, and before 2026 one for each MCUXpresso SDK."""

from __future__ import annotations

import pkgutil

REFERENCE = "reference"
"""A flavor that is no converter: the program stays TFLite and runs on the host."""
SDK = "eiq_neutron_sdk"
FLAVOR_PREFIX = "neutron_converter_"
PUBLISHED = ("SDK_25_03", "SDK_25_06", "SDK_25_09", "SDK_25_12", "SDK_26_03")
"""Flavors in NXP's package index, one for a quarter's SDK. Others are known once installed."""


def check_flavor(flavor: str | None) -> None:
    """ValueError if there is no such converter: none published, none on this machine."""
    if flavor is None or flavor in (REFERENCE, SDK):
        return
    installed = sorted(_flavor_of(package) for package in installed_flavors())
    if isinstance(flavor, str) and _flavor_of(flavor) in (*PUBLISHED, *installed):
        return
    raise ValueError(
        f"[Neutron] neutron_converter_flavor must name a converter of NXP's; got {flavor!r}; try "
        f"None for the newest that is installed, {SDK!r}, {', '.join(map(repr, PUBLISHED))}, or "
        f"{REFERENCE!r} for a program that runs on this machine"
    )


def package_of(flavor: str | None) -> str | None:
    """The package of a flavor that was asked for by name; None if none was, or no converter."""
    if flavor is None or flavor == REFERENCE:
        return None
    is_package = flavor == SDK or flavor.startswith(FLAVOR_PREFIX)
    return flavor if is_package else FLAVOR_PREFIX + flavor


def installed_flavors() -> set[str]:
    """The packages of flavors that can be imported."""
    return {m.name for m in pkgutil.iter_modules() if m.name.startswith(FLAVOR_PREFIX)}


def _flavor_of(package: str) -> str:
    return package.removeprefix(FLAVOR_PREFIX)


__all__ = [
    "FLAVOR_PREFIX",
    "PUBLISHED",
    "REFERENCE",
    "SDK",
    "check_flavor",
    "installed_flavors",
    "package_of",
]
