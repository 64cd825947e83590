"""What a user asks of the Neutron backend, and how it is written to a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from edgewise.backends.neutron.lowering.flavors import check_flavor
from edgewise.backends.neutron.lowering.positions import (
    BUILD,
    GENERATE,
    in_the_order_of_any_release,
)
from edgewise.backends.neutron.targets import TARGETS
from edgewise.partition.spec import CompileSpec


@dataclass(frozen=True)
class CustomDelegationOptions:
    """What may be delegated although it cannot be seen beforehand to pay or to work.

    allow_no_op_partitions: partitions that only move or rename data. NXP's converter makes no
    NeutronGraph of some of them, which then fails the lowering.
    allow_dynamic_batch: operators whose first dimension, and no other, is symbolic, with an upper
    bound. The NPU's program is made for the bound; the program fills rows up before and cuts them
    off behind, so that every call takes the largest batch's time.
    allow_padded_channels: convolutions, concatenations and products whose numbers of channels a
    converter of before 2026 may have to pad. Where it does not, the lowering fails.
    force_delegate_cat: the same, of concatenations only (ExecuTorch's name).
    """

    allow_no_op_partitions: bool = False
    allow_dynamic_batch: bool = False
    allow_padded_channels: bool = False
    force_delegate_cat: bool = False

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if not isinstance(value, bool):
                raise TypeError(
                    f"[CustomDelegationOptions] {option.name} must be True or False; got {value!r}"
                )

    @staticmethod
    def of(given: object) -> CustomDelegationOptions:
        """None for the default; ExecuTorch's class of this name is taken, too."""
        if given is None or isinstance(given, CustomDelegationOptions):
            return given or CustomDelegationOptions()
        names = [option.name for option in fields(CustomDelegationOptions)]
        found = {name: getattr(given, name) for name in names if hasattr(given, name)}
        if not found or isinstance(given, type):
            raise TypeError(
                f"[NeutronPartitioner] custom_delegation_options must be CustomDelegationOptions; "
                f"got {type(given).__name__}; try CustomDelegationOptions(...)"
            )
        return CustomDelegationOptions(**found)


@dataclass(frozen=True)
class NeutronOptions:
    """The options of `generate_neutron_compile_spec`, by name.

    ValueError for a converter that nobody knows.
    """

    config: str
    neutron_converter_flavor: str | None = None
    extra_flags: tuple[str, ...] = ()
    operators_not_to_delegate: tuple[str, ...] = ()
    intermediates_dir: str | None = None
    use_neutron_for_format_conversion: bool = True
    fetch_constants_to_sram: bool = False
    dump_kernel_selection_code: bool = False
    use_profiling: bool = False

    def __post_init__(self) -> None:
        check_flavor(self.neutron_converter_flavor)

    def compile_specs(self) -> list[CompileSpec]:
        """As in files of ExecuTorch, where one of them is read by its position; ours follow."""
        values: dict[str, object] = {
            "output_format": "tflite",
            "compile_flags": " ".join(self.extra_flags),
            "target": self.config,
            "intermediates_dir": self.intermediates_dir,
            "operators_not_to_delegate": ",".join(self.operators_not_to_delegate),
            "use_neutron_for_format_conversion": self.use_neutron_for_format_conversion,
            "fetch_constants_to_sram": self.fetch_constants_to_sram,
            "dump_kernel_selection_code": self.dump_kernel_selection_code,
            "use_profiling": self.use_profiling,
        }
        if self.neutron_converter_flavor is not None:
            values["neutron_converter_flavor"] = self.neutron_converter_flavor
        return [CompileSpec(key, str(value).encode()) for key, value in values.items()]

    @staticmethod
    def read(specs: Sequence[CompileSpec]) -> NeutronOptions:
        """The options that a list stands for. ValueError if it is not one of ours or the peer's."""
        known = [s for s in specs if hasattr(s, "key") and hasattr(s, "value")]
        values = {spec.key: bytes(spec.value).decode() for spec in known}
        if values.get("output_format") != "tflite" or "target" not in values:
            raise ValueError(
                f"[NeutronPartitioner] compile_spec must come from generate_neutron_compile_spec; "
                f"got {sorted(values) or specs!r}; try generate_neutron_compile_spec('imxrt700')"
            )
        directory = values.get("intermediates_dir", "None")
        return NeutronOptions(
            config=values["target"],
            neutron_converter_flavor=values.get("neutron_converter_flavor"),
            extra_flags=tuple(values.get("compile_flags", "").split()),
            operators_not_to_delegate=_names(values.get("operators_not_to_delegate", "")),
            intermediates_dir=None if directory == "None" else directory,
            use_neutron_for_format_conversion=_flag(
                values, "use_neutron_for_format_conversion", True
            ),
            fetch_constants_to_sram=_flag(values, "fetch_constants_to_sram", False),
            dump_kernel_selection_code=_flag(values, "dump_kernel_selection_code", False),
            use_profiling=_flag(values, "use_profiling", False),
        )


def _names(joined: str) -> tuple[str, ...]:
    return tuple(name for name in joined.split(",") if name)


def _flag(values: dict[str, str], key: str, default: bool) -> bool:
    return values.get(key, str(default)) == "True"


class NeutronCompileSpecBuilder:
    """`NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700").build()`"""

    def __init__(self) -> None:
        self._options: NeutronOptions | None = None

    @in_the_order_of_any_release(BUILD)
    def neutron_compile_spec(
        self,
        config: str,
        *,
        neutron_converter_flavor: str | None = None,
        extra_flags: str | Sequence[str] | None = None,
        operators_not_to_delegate: Sequence[str] | None = None,
        intermediates_dir: str | None = None,
        use_neutron_for_format_conversion: bool = True,
        fetch_constants_to_sram: bool = False,
        dump_kernel_selection_code: bool = False,
        use_profiling: bool = False,
    ) -> NeutronCompileSpecBuilder:
        """Sets all options at once; see `generate_neutron_compile_spec`."""
        if self._options is not None:
            raise ValueError(
                "[NeutronCompileSpecBuilder] neutron_compile_spec must be called once; "
                "got a second call; try a new builder"
            )
        if not isinstance(config, str) or not config:
            raise ValueError(
                f"[Neutron] config must name a chip with a Neutron NPU; got {config!r}; "
                f"try one of {', '.join(TARGETS)}"
            )
        if isinstance(operators_not_to_delegate, str):
            raise TypeError(
                f"[Neutron] operators_not_to_delegate must be a list of names; "
                f"got {operators_not_to_delegate!r}; try [{operators_not_to_delegate!r}]"
            )
        flags = extra_flags.split() if isinstance(extra_flags, str) else extra_flags or ()
        # A list with commas between is how the program keeps them.
        names = [str(name).replace("::", "_") for name in operators_not_to_delegate or ()]
        if any("," in name or not name for name in names):
            raise ValueError(
                f"[Neutron] operators_not_to_delegate must be names without commas; got {names}"
            )
        self._options = NeutronOptions(
            config=config,
            neutron_converter_flavor=neutron_converter_flavor,
            extra_flags=tuple(flags),
            operators_not_to_delegate=tuple(names),
            intermediates_dir=None if intermediates_dir is None else str(intermediates_dir),
            use_neutron_for_format_conversion=bool(use_neutron_for_format_conversion),
            fetch_constants_to_sram=bool(fetch_constants_to_sram),
            dump_kernel_selection_code=bool(dump_kernel_selection_code),
            use_profiling=bool(use_profiling),
        )
        return self

    def build(self) -> list[CompileSpec]:
        """The list for `NeutronPartitioner`. ValueError if nothing was set."""
        if self._options is None:
            raise ValueError(
                "[NeutronCompileSpecBuilder] options must be set before build; got none; "
                "try .neutron_compile_spec('imxrt700').build()"
            )
        return self._options.compile_specs()


@in_the_order_of_any_release(GENERATE)
def generate_neutron_compile_spec(
    config: str,
    *,
    system_config: str | None = None,
    extra_flags: str | Sequence[str] | None = None,
    intermediates_dir: str | None = None,
    operators_not_to_delegate: Sequence[str] | None = None,
    use_neutron_for_format_conversion: bool = True,
    fetch_constants_to_sram: bool = False,
    dump_kernel_selection_code: bool = False,
    use_profiling: bool = False,
    neutron_converter_flavor: str | None = None,
) -> list[CompileSpec]:
    """The compile specification for `NeutronPartitioner`.

    Options are given by name; by position they may stand in the order of any release of
    ExecuTorch, whose orders differ: a flavor behind `config`, or none. TypeError if there is no
    such option or order.

    config: the chip: "imxrt700", "imx95", ... (see `targets.TARGETS`).
    system_config: accepted for scripts that pass it; nothing depends on it.
    extra_flags: options of NXP's converter, "name=value" each, set on its compilation options.
    intermediates_dir: an existing directory for the TFLite files before and after the converter.
    operators_not_to_delegate: operators ("aten::add", "aten.add.Tensor") and names of nodes that
    stay off the NPU; each must match exactly, what matches nothing is reported.
    use_neutron_for_format_conversion: inputs and outputs keep PyTorch's order of dimensions and
    the NPU transposes; else the runtime does.
    fetch_constants_to_sram: weights are fetched while running, for models larger than the SRAM.
    dump_kernel_selection_code: the converter writes the list of kernels that the program needs.
    use_profiling: the converter adds what profiling needs.
    neutron_converter_flavor: which converter, one that NXP published or that is installed:
    "SDK_25_06" for the module `neutron_converter_SDK_25_06`, None for the installed
    `eiq_neutron_sdk` (or any flavor), or "reference": none; the program runs on the host in
    LiteRT's reference kernels. ValueError for other names.
    """
    del system_config
    builder = NeutronCompileSpecBuilder().neutron_compile_spec(
        config,
        neutron_converter_flavor=neutron_converter_flavor,
        extra_flags=extra_flags,
        operators_not_to_delegate=operators_not_to_delegate,
        intermediates_dir=intermediates_dir,
        use_neutron_for_format_conversion=use_neutron_for_format_conversion,
        fetch_constants_to_sram=fetch_constants_to_sram,
        dump_kernel_selection_code=dump_kernel_selection_code,
        use_profiling=use_profiling,
    )
    specs: list[CompileSpec] = builder.build()
    return specs
