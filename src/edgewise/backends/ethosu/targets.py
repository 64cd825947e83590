"""The Ethos-U processors that programs can be compiled for, as Vela knows them."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.backends.ethosu.lowering import vela


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
    for name, (f, _, _) in vela.TARGETS.items()
}


def target_named(name: str) -> Target:
    """In any case. ValueError if there is no such target."""
    if not isinstance(name, str) or name.lower() not in TARGETS:
        raise ValueError(
            f"[EthosUCompileSpec] target must be one of {', '.join(TARGETS)}; got {name!r}"
        )
    return TARGETS[name.lower()]
