"""The Ethos-U processors that programs can be compiled for, as Vela knows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """What the targets of one NPU generation have in common."""

    name: str
    """As Vela's compiled core spells it."""
    address_bits: int
    system_config: str
    memory_mode: str


_U55 = Family("EthosU55", 32, "Ethos_U55_High_End_Embedded", "Shared_Sram")
_U65 = Family("EthosU65", 40, "Ethos_U65_High_End", "Dedicated_Sram_384KB")
_U85 = Family("EthosU85", 40, "Ethos_U85_SYS_DRAM_Mid", "Sram_Only")

PROCESSORS: dict[str, tuple[Family, int, int]] = {
    **{f"ethos-u55-{macs}": (_U55, macs, 1) for macs in (32, 64, 128, 256)},
    "ethos-u65-256": (_U65, 256, 1),
    "ethos-u65-512": (_U65, 256, 2),
    **{f"ethos-u85-{macs}": (_U85, macs, 1) for macs in (128, 256, 512, 1024, 2048)},
}
"""Target: family, multiply-accumulate units of a core, cores."""


@dataclass(frozen=True)
class Target:
    """A processor: `ethos-u55-128` has 128 multipliers."""

    name: str
    family: str
    """U55, U65 or U85."""
    system_config: str
    """The default section of Vela's configuration that describes clock and memories."""
    memory_mode: str
    """The default section that says what lies in which memory."""

    @property
    def tosa_spec(self) -> str:
        """The TOSA profile and extensions that programs for it keep to."""
        extension = "cf" if self.family == "U85" else "u55"
        return f"TOSA-1.0+INT+int16+int4+{extension}"


TARGETS: dict[str, Target] = {
    name: Target(name, f.name.removeprefix("Ethos"), f.system_config, f.memory_mode)
    for name, (f, _, _) in PROCESSORS.items()
}


def target_named(name: str) -> Target:
    """In any case. ValueError if there is no such target."""
    if not isinstance(name, str) or name.lower() not in TARGETS:
        raise ValueError(
            f"[EthosUCompileSpec] target must be one of {', '.join(TARGETS)}; got {name!r}"
        )
    return TARGETS[name.lower()]
