"""For which processor, with which configuration of Vela."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.targets import Target, target_named
from edgewise.partition.spec import CompileSpec

_REORDER = "ouput_reorder_workaround"
"""Spelt as in ExecuTorch's files."""
_OWN = ("--accelerator-config", "--config", "--output-format", "--system-config", "--memory-mode")


class EthosUCompileSpec:
    """target: `ethos-u55-{32,64,128,256}`, `ethos-u65-{256,512}`,
    `ethos-u85-{128,256,512,1024,2048}`. system_config, memory_mode: sections of `config_ini`;
    None for the target's default. extra_flags: of Vela's command line. config_ini: a path, or
    one of the files that come with Vela; None for its own. external_block_placements: of
    ExecuTorch's, refused.

    Raises ValueError for an unknown target, EdgewiseError for what Vela does not know.
    """

    def __init__(
        self,
        target: str,
        system_config: str | None = None,
        memory_mode: str | None = None,
        extra_flags: Sequence[str] | None = None,
        config_ini: str | None = vela.DEFAULT_INI,
        external_block_placements: object = None,
    ) -> None:
        if external_block_placements is not None:
            raise ValueError(
                "[EthosUCompileSpec] the processor's commands and weights stay in the .pte file; "
                f"got external_block_placements={external_block_placements!r}; try without"
            )
        self._target = target_named(target)
        if isinstance(extra_flags, str):
            raise TypeError(
                f"[EthosUCompileSpec] extra_flags must be a list of flags; got {extra_flags!r}"
            )
        self.system_config = system_config or self._target.system_config
        self.memory_mode = memory_mode or self._target.memory_mode
        self.extra_flags = list(extra_flags or [])
        self.config_ini = vela.DEFAULT_INI if config_ini is None else str(config_ini)
        self.path_for_intermediates: str | None = None
        self.output_order_workaround = False
        vela.check(self.system_config, self.memory_mode, self.extra_flags, self.config_ini)
        other = _family_of(self.system_config)
        if other not in ("", self._target.family):
            raise ValueError(
                f"[EthosUCompileSpec] system_config must describe an {self._target.family}; "
                f"got {self.system_config!r}; try {self._target.system_config!r}"
            )

    @property
    def target(self) -> str:
        return self._target.name

    @property
    def processor(self) -> Target:
        return self._target

    @property
    def tosa_spec(self) -> str:
        """The TOSA profile and its extensions."""
        return self._target.tosa_spec

    @property
    def compiler_flags(self) -> list[str]:
        """As Vela's command line takes them."""
        return [
            *self.extra_flags,
            f"--accelerator-config={self.target}",
            f"--config={self.config_ini}",
            "--output-format=raw",
            f"--system-config={self.system_config}",
            f"--memory-mode={self.memory_mode}",
        ]

    def dump_intermediate_artifacts_to(self, output_path: str | Path | None) -> EthosUCompileSpec:
        """Has TOSA graphs, Vela's figures and the partitioner's report written to a folder."""
        self.path_for_intermediates = None if output_path is None else str(output_path)
        return self

    def set_output_order_workaround(self, output_order_workaround: bool) -> EthosUCompileSpec:
        """Outputs are in the program's order with it and without; the file says which."""
        self.output_order_workaround = bool(output_order_workaround)
        return self

    def get_output_order_workaround(self) -> bool:
        return self.output_order_workaround

    def to_list(self) -> list[CompileSpec]:
        """As they are written to the program."""
        specs = [
            CompileSpec("tosa_spec", self.tosa_spec.encode()),
            CompileSpec("compile_flags", " ".join(self.compiler_flags).encode()),
            CompileSpec("output_format", b"vela"),
            CompileSpec("preserve_io_quantization", b"False"),
            CompileSpec("target", self.target.encode()),
        ]
        if self.output_order_workaround:
            specs.append(CompileSpec(_REORDER, b"true"))
        if self.path_for_intermediates is not None:
            specs.append(CompileSpec("debug_artifact_path", self.path_for_intermediates.encode()))
        return specs

    @staticmethod
    def from_list(specs: Sequence[CompileSpec]) -> EthosUCompileSpec:
        """What `to_list` wrote. ValueError if it lacks the target."""
        found = {spec.key: bytes(spec.value).decode() for spec in specs}
        flags = found.get("compile_flags", "").split()
        own = dict(f.split("=", 1) for f in flags if f.startswith(_OWN) and "=" in f)
        spec = EthosUCompileSpec(
            own.get("--accelerator-config", found.get("target", "")),
            own.get("--system-config"),
            own.get("--memory-mode"),
            [f for f in flags if not f.startswith(_OWN)],
            own.get("--config", vela.DEFAULT_INI),
        )
        spec.set_output_order_workaround(found.get(_REORDER, "").lower() in ("1", "true", "yes"))
        return spec.dump_intermediate_artifacts_to(found.get("debug_artifact_path"))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, EthosUCompileSpec) and self.to_list() == other.to_list()

    def __repr__(self) -> str:
        return f"EthosUCompileSpec({' '.join(self.compiler_flags)})"

    __hash__ = None  # type: ignore[assignment]


def _family_of(system_config: str) -> str:
    """U55, U65 or U85 if the name of the section says so, as those that come with Vela do."""
    parts = system_config.split("_")
    return parts[1] if parts[0] == "Ethos" and len(parts) > 1 else ""
