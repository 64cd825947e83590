"""Which nodes XNNPACK takes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.backend import XnnpackBackend
from edgewise.backends.xnnpack.lowering.non_static import PRODUCTS, RECURRENT, non_static_weights
from edgewise.backends.xnnpack.lowering.precision import (
    ConfigPrecisionType,
    is_quantization,
    precision,
    units,
)
from edgewise.backends.xnnpack.lowering.quantized_constants import QuantizedConstants
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.edge.graph import calls, is_getitem, may_be_empty, op_name, tensors_of
from edgewise.edge.updates import partial_updates
from edgewise.operators.partitioner import TablePartitioner
from edgewise.partition.following import ALL_OR_NOTHING, WEIGHTS_WITH_OPERATOR
from edgewise.partition.spec import (
    DELEGATE_INPUT,
    DelegationSpec,
    Refusal,
)
from edgewise.partition.units import Units, free_calls, own_for_each_reader

logger = logging.getLogger(__name__)

_OWNS = Refusal("weights that the program holds", "a layer that owns its weights")
_IDLE = Refusal("a partition must compute something", "shape operators only")
_IN_PLACE = Refusal("a result of its own, not a part of a buffer, which is written where it lies")


class XnnpackPartitioner(TablePartitioner[Node]):
    """Gives XNNPACK as much of a program as it can run, in as few partitions as possible.

    configs: names of operators of the table ("conv2d", "linear", ...) to delegate;
    None for all. config_precisions: one or several `ConfigPrecisionType`; None for all.
    FP32 alone takes operators between fixed scales, too, and computes them in floating point; what
    is quantized at run time only `XnnpackFloatingPointPartitioner` does.
    per_op_mode: one partition for every operator, with the quantizations around it.
    verbose: say what is delegated and what is refused, by logging (INFO) where the program
    has set logging up, else on the standard error stream.
    force_non_static_weights_for_f32_linear: weights and biases of floating-point linear layers
    are inputs of the delegates, which the program holds. LSTM and GRU become linear layers, step
    by step.
    enable_bf16: has no effect. bfloat16 is computed in float32, in delegates like any other.
    """

    table = TABLE
    tag = "xnnpack"
    _takes_dynamic_as_floats = False

    def __init__(
        self,
        configs: Sequence[str] | None = None,
        config_precisions: ConfigPrecisionType | Sequence[ConfigPrecisionType] | None = None,
        per_op_mode: bool = False,
        verbose: bool = False,
        force_non_static_weights_for_f32_linear: bool = False,
        enable_bf16: bool = False,
    ) -> None:
        self.configs = None if configs is None else frozenset(_checked_configs(configs))
        self.config_precisions = frozenset(_checked_precisions(config_precisions))
        for name, option in (
            ("per_op_mode", per_op_mode),
            ("verbose", verbose),
            ("force_non_static_weights_for_f32_linear", force_non_static_weights_for_f32_linear),
            ("enable_bf16", enable_bf16),
        ):
            if not isinstance(option, bool):
                raise TypeError(
                    f"[XnnpackPartitioner] {name} must be True or False; got {option!r}"
                )
        self.per_op_mode = per_op_mode
        self.verbose = verbose
        self.force_non_static_weights_for_f32_linear = force_non_static_weights_for_f32_linear
        self.delegation_spec = DelegationSpec(XnnpackBackend.backend_id, [])

    def keeps(self, program: ExportedProgram) -> Callable[[Node], bool]:
        """Whether the definition accepts the node."""
        constants = self._constants(program)
        return lambda node: not self.refusals(node, constants)

    def reasons_to_decompose(self, ep: ExportedProgram) -> Callable[[Node], Sequence[Refusal]]:
        """What the definition of a composite operator has against the node."""
        constants = self._constants(ep)
        return lambda node: self.refusals(node, constants)

    def _constants(self, program: ExportedProgram) -> QuantizedConstants:
        """What partitions may own."""
        constants = QuantizedConstants(program)
        if self.force_non_static_weights_for_f32_linear:
            for node in non_static_weights(program, constants):
                node.meta[DELEGATE_INPUT] = True
                del constants.specs[node.name]
        return constants

    def refusals(self, node: Node, constants: QuantizedConstants) -> list[Refusal]:
        """Why XNNPACK does not take the node; empty if it does."""
        definition = TABLE.of(node)
        if definition is None:
            return [Refusal("an operator of the XNNPACK table", op_name(node))]
        if self.force_non_static_weights_for_f32_linear and node.target in RECURRENT:
            return [_OWNS]
        for tensor in [t for n in (node, *node.all_input_nodes) for t in tensors_of(n)]:
            if may_be_empty(tensor):
                got = f"a size that only data tells: {list(tensor.shape)}"
                return [Refusal("no tensor may be empty", got, "torch._check(size > 0)")]
        if self.configs is not None and definition.name not in self.configs:
            return [Refusal("an operator that `configs` names", definition.name)]
        if len(self.config_precisions) < len(ConfigPrecisionType):
            found = self._precision(node, constants)
            if found not in self.config_precisions:
                wanted = " or ".join(sorted(p.name for p in self.config_precisions))
                return [Refusal(f"a precision of `config_precisions`: {wanted}", found.name)]
        return definition.refusals(node, constants)

    @property
    def _floats_only(self) -> bool:
        return self.config_precisions == {ConfigPrecisionType.FP32}

    def _precision(self, node: Node, constants: QuantizedConstants) -> ConfigPrecisionType:
        found = precision(node, constants)
        # A matrix product with quantized weights is a piece of a layer that somebody took apart.
        if not self._floats_only or is_quantization(node) or node.target in PRODUCTS:
            return found
        if found == ConfigPrecisionType.DYNAMIC_QUANT and not self._takes_dynamic_as_floats:
            return found
        return ConfigPrecisionType.FP32

    def units(self, program: ExportedProgram) -> Units[Node]:
        """Operators, with the quantizations around them."""
        constants = self._constants(program)
        own_for_each_reader([n for n in calls(program.graph) if n in constants])
        nodes = free_calls(program.graph)
        refused = {n: r for n in nodes if (r := self._reasons(n, constants))}
        refused |= {n: [_IN_PLACE] for n in partial_updates(program).intersection(nodes)}
        joined = [n for n in nodes if not (self._floats_only and n in refused)]
        accepted = {
            operator: members
            for operator, members in units(joined, constants, set(nodes) - set(refused)).items()
            if self._takes(operator, members, constants, refused)
        }
        return Units(constants, accepted, refused)

    def grouped(self, program: ExportedProgram, found: Units[Node]) -> list[list[Node]]:
        """See `TablePartitioner`."""
        if self.per_op_mode:
            return [[operator] for operator in found.units]
        return super().grouped(program, found)

    def kept(self, group: list[Node], found: Units[Node]) -> list[Node]:
        """All of a group that computes something."""
        members = [n for operator in group for n in found.units[operator]]
        if not all(_moves_nothing(n) or n in found.constants for n in members):
            return group
        for operator in group:
            found.refuse(operator, _IDLE)
        return []

    def finish(
        self, program: ExportedProgram, found: Units[Node], taken: Mapping[str, Sequence[Node]]
    ) -> None:
        """Says what is delegated, if it is asked to."""
        for tag, members in taken.items():
            self._say(f"{tag}: {_counted(op_name(n) for n in members if not is_getitem(n))}")
        for reason, names in _by_reason(found.refused).items():
            self._say(f"not delegated: {_counted(names)}: {reason}")

    def _reasons(self, node: Node, constants: QuantizedConstants) -> list[Refusal]:
        """What is said against the node itself. Quantizations are asked for with `_takes`."""
        if is_getitem(node) or node in constants:
            return []
        definition = TABLE.of(node)
        if definition is not None and is_quantization(node) and not self._floats_only:
            return definition.refusals(node, constants)
        return self.refusals(node, constants)

    def _takes(
        self,
        operator: Node,
        members: Sequence[Node],
        constants: QuantizedConstants,
        refused: dict[Node, list[Refusal]],
    ) -> bool:
        """Whether all of a unit can be delegated; if not, notes a reason for each node."""
        if operator in constants:
            reader = next((op_name(user) for user in operator.users), "nobody")
            refused[operator] = [Refusal(WEIGHTS_WITH_OPERATOR, reader)]
        elif is_quantization(operator) and operator not in refused:
            reasons = self.refusals(operator, constants)  # it belongs to nobody
            if reasons and not is_getitem(operator):
                refused[operator] = reasons
        against = [n for n in members if n in refused]
        if not against and not is_getitem(operator):
            return True
        for node in members:
            if node not in refused and not is_getitem(node) and against:
                refused[node] = [Refusal(ALL_OR_NOTHING, f"{op_name(against[0])}, which is not")]
        return False

    def _say(self, text: str) -> None:
        if not self.verbose:
            return
        if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
            logger.info(text)
        else:
            print(f"[xnnpack] {text}", file=sys.stderr)


class XnnpackDynamicallyQuantizedPartitioner(XnnpackPartitioner):
    """Delegates only linear layers and convolutions whose activations are quantized at run
    time, with the quantization."""

    def __init__(
        self,
        per_op_mode: bool = False,
        verbose: bool = False,
        configs: Sequence[str] | None = None,
        force_non_static_weights_for_f32_linear: bool = False,
        enable_bf16: bool = False,
    ) -> None:
        super().__init__(
            configs,
            ConfigPrecisionType.DYNAMIC_QUANT,
            per_op_mode,
            verbose,
            force_non_static_weights_for_f32_linear,
            enable_bf16,
        )


class XnnpackFloatingPointPartitioner(XnnpackPartitioner):
    """Delegates only what is computed in floating point.

    Of a quantized program these are linear layers and what is computed between a dequantization and
    a quantization: both stay outside, and weights come dequantized.
    """

    _takes_dynamic_as_floats = True

    def __init__(self, per_op_mode: bool = False, verbose: bool = False) -> None:
        super().__init__(None, ConfigPrecisionType.FP32, per_op_mode, verbose)


def _checked_configs(configs: Sequence[str]) -> Sequence[str]:
    known = {definition.name for definition in TABLE.definitions}
    if isinstance(configs, str) or not all(isinstance(c, str) for c in configs):
        raise TypeError(
            f"[XnnpackPartitioner] configs must be a list of names; got {configs!r}; "
            f"try some of: {', '.join(sorted(known))}"
        )
    unknown = sorted(set(configs) - known)
    if unknown:
        raise ValueError(
            f"[XnnpackPartitioner] configs must be names of the operator table; "
            f"got {', '.join(unknown)}; try some of: {', '.join(sorted(known))}"
        )
    return configs


def _checked_precisions(
    precisions: ConfigPrecisionType | Sequence[ConfigPrecisionType] | None,
) -> Sequence[ConfigPrecisionType]:
    if precisions is None:
        return list(ConfigPrecisionType)
    if isinstance(precisions, ConfigPrecisionType):
        return [precisions]
    given: Any = precisions
    is_list = isinstance(given, Iterable) and not isinstance(given, str)
    listed: list[Any] = list(given) if is_list else [given]
    for found in listed:
        if not isinstance(found, ConfigPrecisionType):
            raise TypeError(
                f"[XnnpackPartitioner] config_precisions must be of ConfigPrecisionType; "
                f"got {found!r}; try ConfigPrecisionType.STATIC_QUANT"
            )
    if not listed:
        raise ValueError(
            "[XnnpackPartitioner] config_precisions must name at least one precision; got none"
        )
    return listed


def _counted(names: Iterable[str]) -> str:
    """`3 x aten.add.Tensor, aten.mul.Tensor`"""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items())


def _by_reason(refused: Mapping[Node, Sequence[Refusal]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, reasons in refused.items():
        found.setdefault("; ".join(map(str, reasons)), []).append(op_name(node))
    return found


_RENAMES = {
    torch.ops.aten.view_copy.default,
    torch.ops.aten.squeeze_copy.dims,
    torch.ops.aten.unsqueeze_copy.default,
    torch.ops.aten.clone.default,
    torch.ops.aten._to_copy.default,
}


def _moves_nothing(node: Node) -> bool:
    return node.target in _RENAMES or is_getitem(node)
