"""Which nodes the NPU takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.neutron.lowering.backend import NeutronBackend
from edgewise.backends.neutron.lowering.batch import FILLED, DynamicBatch
from edgewise.backends.neutron.lowering.compile_spec import CustomDelegationOptions, NeutronOptions
from edgewise.backends.neutron.lowering.converter import installed_converter
from edgewise.backends.neutron.lowering.flavors import FLAVOR_PREFIX, package_of
from edgewise.backends.neutron.lowering.idle import at_the_end, is_idle
from edgewise.backends.neutron.lowering.quantized import (
    Cluster,
    Quant,
    clusters,
    results,
)
from edgewise.backends.neutron.lowering.table import Rules, is_main, query_of
from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.targets import target_of
from edgewise.edge.graph import (
    arguments,
    calls,
    dtype_name,
    is_call,
    is_getitem,
    op_name,
    tensors_of,
)
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.node_errors import as_users
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.operators.partitioner import TablePartitioner
from edgewise.partition.following import TAKES_INTEGERS, WITH_ITS_OPERATOR
from edgewise.partition.spec import CompileSpec, DelegationSpec, Refusal, refused_before
from edgewise.partition.units import Units, free_calls, own_for_each_reader

DYNAMIC_BATCH = "CustomDelegationOptions(allow_dynamic_batch=True)"
_MOST_FINER = 2.0**19
"""LiteRT's kernels end at factors of 2**20 and more."""
QUANTIZE_FIRST = "quantizing the model for this NPU: NeutronQuantizer with prepare_pt2e"

_NAMED = Refusal("operators that operators_not_to_delegate does not name", "one that it names")
_BORDER = Refusal(TAKES_INTEGERS, "a quantization at its border")
_GIVES_ITS_OPERAND = Refusal(
    "operators at the end of a partition compute something",
    "one whose result is its operand",
    "leaving it out of the model, or CustomDelegationOptions(allow_no_op_partitions=True)",
)
_IDLE = Refusal(
    "a partition must compute something",
    "operators that only rename or cut",
    "CustomDelegationOptions(allow_no_op_partitions=True)",
)
_WITH_ITS_OPERATOR = Refusal(WITH_ITS_OPERATOR, "one that is refused")


class _Clusters(Units[Cluster]):
    """Clusters by themselves. batch: gives sizes to those that have none, if that is allowed."""

    def __init__(self, constants: IntegerConstants, batch: DynamicBatch | None) -> None:
        super().__init__(constants, {}, {})
        self.batch = batch

    def refuse(self, unit: Cluster, reason: Refusal) -> None:
        """See `Units`; what belongs to its operators is told apart."""
        del self.units[unit]
        self.refuse_nodes(unit, {node: [reason] for node in unit.nodes or unit.all_nodes})

    def refuse_nodes(self, unit: Cluster, reasons: dict[Node, list[Refusal]]) -> None:
        """Of a cluster that is none of the units."""
        self.refused |= reasons
        for node in unit.all_nodes:
            self.refused.setdefault(node, [_WITH_ITS_OPERATOR])
        if self.batch is not None:
            self.batch.release(unit)

    def name_of(self, unit: Cluster) -> Node:
        """Its first operator."""
        return (unit.nodes or unit.all_nodes)[0]


class NeutronPartitioner(TablePartitioner[Cluster]):
    """Gives the Neutron NPU what it computes in 8-bit integers.

    compile_spec: from `generate_neutron_compile_spec` or `NeutronCompileSpecBuilder`.
    neutron_target_spec: a target or its name; must be the one of compile_spec, which suffices.
    (custom_delegation_options may be given instead, as the second argument.)
    custom_delegation_options: what may be delegated although it is not known to pay.
    post_quantization_state_dict: accepted for scripts that pass it; the program has its constants.
    preserve_ops: more operators that are not decomposed; check_op_support(node): whether one of
    these is kept.

    Everything that cannot be decided before the program runs stays off the NPU, with its reason.
    ValueError if the target is unknown. Partitioning needs no converter; compiling what it tagged
    does (NeutronConverterError).
    """

    table = TABLE
    tag = "neutron"

    def __init__(
        self,
        compile_spec: list[CompileSpec],
        neutron_target_spec: Any = None,
        custom_delegation_options: CustomDelegationOptions | None = None,
        post_quantization_state_dict: Mapping[str, Any] | None = None,
        preserve_ops: Sequence[torch._ops.OpOverload] | None = None,
        check_op_support: Callable[[Node], bool] | None = None,
    ) -> None:
        del post_quantization_state_dict
        if isinstance(neutron_target_spec, CustomDelegationOptions):
            neutron_target_spec, custom_delegation_options = None, neutron_target_spec
        self.options = NeutronOptions.read(compile_spec)
        _check_same_target(self.options.config, neutron_target_spec)
        flavor = self.options.neutron_converter_flavor
        converter = installed_converter(flavor)
        delegation = CustomDelegationOptions.of(custom_delegation_options)
        package = converter.package if converter is not None else package_of(flavor)
        old = package is not None and package.startswith(FLAVOR_PREFIX)
        self.rules = Rules(target_of(self.options.config, converter), delegation, not old)
        self.delegation_spec = DelegationSpec(NeutronBackend.backend_id, list(compile_spec))
        self.preserved = list(preserve_ops or ())
        self._check_op_support = check_op_support and as_users(check_op_support)

    def keeps(self, program: ExportedProgram) -> Callable[[Node], bool]:
        """What has a definition of its own, and of what the user named the nodes that the user's
        check accepts."""
        own, check = set(self.table.kept()), self._check_op_support

        def wanted(node: Node) -> bool:
            if node.target is torch.ops.aten.pad.default:  # with a number it is another operator
                return bool(arguments(node)["mode"] == "reflect")
            return node.target in own or check is None or check(node)

        return wanted

    def units(self, program: ExportedProgram) -> _Clusters:
        """Clusters that the definitions accept."""
        constants = IntegerConstants(program)
        graph = program.graph
        own_for_each_reader([n for n in calls(graph) if is_dequantize(n)])
        batch = None
        if self.rules.options.allow_dynamic_batch:
            inputs = [n for n in graph.nodes if n.op == "placeholder" and n not in constants]
            batch = DynamicBatch(graph, inputs)
        found = _Clusters(constants, batch)
        for cluster in clusters(free_calls(graph), constants):
            reasons = self._refusals(cluster, constants, batch)
            if reasons:
                found.refuse_nodes(cluster, reasons)
            else:
                found.units[cluster] = cluster.all_nodes
        return found

    def kept(self, group: list[Cluster], found: Units[Cluster]) -> list[Cluster]:
        """Without what gives its operand at the end; nothing, if nothing is computed."""
        if self.rules.options.allow_no_op_partitions:
            return group
        last = at_the_end(group, found.constants)
        for cluster in last:
            found.refuse(cluster, _GIVES_ITS_OPERAND)
        group = [c for c in group if c not in last]
        if not all(is_idle(node, c, found.constants) for c in group for node in c.nodes):
            return group
        for cluster in group:
            found.refuse(cluster, _IDLE)
        return []

    def finish(
        self, program: ExportedProgram, found: Units[Cluster], taken: Mapping[str, Sequence[Node]]
    ) -> None:
        """Reasons of what belongs to no cluster."""
        assert isinstance(found, _Clusters)
        free = free_calls(program.graph)
        if found.batch is not None:
            found.refused |= {n: [FILLED] for n in found.batch.fill([*taken.values()])}
        for node in free:
            if is_quantize(node) or is_dequantize(node):
                found.refused.setdefault(node, [_BORDER])
        if not any(refused_before(n) for n in free):  # else it was told before
            self._report_unused_names([*free, *(n for part in taken.values() for n in part)])

    # --- one cluster --------------------------------------------------------------------

    def _refusals(
        self, cluster: Cluster, constants: IntegerConstants, batch: DynamicBatch | None
    ) -> dict[Node, list[Refusal]]:
        """By node; empty if the NPU takes the cluster."""
        given = self._against_operators(cluster)
        whole = batch.fix(cluster) if batch is not None and not given else None
        whole = whole or _against_floats(cluster)
        if whole is None and not given:
            whole = self._against_all(cluster, constants)
        if whole is not None:
            for node in cluster.nodes or cluster.all_nodes:
                given.setdefault(node, [whole])
        elif not given:
            given = self._against_nodes(cluster, constants)
        if given:
            with_it = Refusal(
                "operators between quantizations go together", op_name(next(iter(given)))
            )
            for node in cluster.nodes:
                given.setdefault(node, [with_it])
        return given

    def _against_operators(self, cluster: Cluster) -> dict[Node, list[Refusal]]:
        """Of the nodes that the user keeps off the NPU, or that it has not."""
        given = {n: list(r) for n in cluster.all_nodes if (r := refused_before(n))}
        for node in cluster.nodes:
            if self._is_named(node):
                given[node] = [_NAMED]
            elif TABLE.of(node) is None and not is_getitem(node):
                given[node] = [Refusal("operators of the Neutron table", op_name(node))]
        return given

    def _against_nodes(
        self, cluster: Cluster, constants: IntegerConstants
    ) -> dict[Node, list[Refusal]]:
        given: dict[Node, list[Refusal]] = {}
        for node in cluster.nodes:
            definition = TABLE.of(node)
            if definition is not None:
                found = definition.refusals(query_of(node, constants, cluster, self.rules))
                given |= {node: found} if found else {}
        return given

    def _against_all(self, cluster: Cluster, constants: IntegerConstants) -> Refusal | None:
        nodes = cluster.nodes
        plain = _against_plain_integers(cluster, constants)
        if plain is not None:
            return plain
        for node in [*nodes, *cluster.inputs]:
            for tensor in tensors_of(node):
                if not all(isinstance(size, int) for size in tensor.shape):
                    shown = ", ".join(map(str, tensor.shape))
                    hint = "an export without dynamic_shapes"
                    if all(isinstance(size, int) for size in tensor.shape[1:]):
                        hint += f", or {DYNAMIC_BATCH}"
                    return Refusal("static shapes", f"{node.name}: [{shown}]", hint)
                if 0 in tensor.shape:
                    return Refusal("tensors with elements", f"{node.name}: {list(tensor.shape)}")
        for node in [*cluster.inputs, *cluster.outputs]:
            quant = Quant.of(node)
            # ExecuTorch's quantizer leaves -128 out around zero: one step at saturation.
            if quant.dtype != torch.int8 or quant.high != 127 or quant.low not in (-128, -127):
                dtype = dtype_name(quant.dtype)
                got = f"{node.name}: {dtype} {quant.low}..{quant.high}"
                return Refusal("activations in int8, -128..127", got, QUANTIZE_FIRST)
        if not nodes:  # quantized anew
            old, new = Quant.of(cluster.inputs[0]), Quant.of(cluster.outputs[0])
            far = old.scale >= _MOST_FINER * new.scale
            rule = "steps that become finer by less than 2**19"
            return Refusal(rule, f"{old} and {new}") if far else None
        if len(results(cluster)) != 1 or len({Quant.of(n) for n in cluster.outputs}) != 1:
            return Refusal(
                "one result with one quantization",
                ", ".join(f"{n.name}: {Quant.of(n)}" for n in cluster.outputs),
                "NeutronQuantizer",
            )
        return self._shape_of_cluster(cluster, constants)

    def _shape_of_cluster(self, cluster: Cluster, constants: IntegerConstants) -> Refusal | None:
        """One operator that computes, moves before it, moves and clamps behind."""
        main = [n for n in cluster.nodes if is_main(n)]
        if len(main) > 1:
            got = ", ".join(n.name for n in main)
            return Refusal("one operator between quantizations", got, "NeutronQuantizer")
        for node in cluster.nodes:
            definition = TABLE.of(node)
            if definition is None or not (definition.clamps or node in main):
                continue
            for source in node.all_input_nodes:
                if source in cluster.nodes and node in main and not _is_stored(source, constants):
                    return Refusal(
                        "operands that are dequantized",
                        f"{source.name} is computed",
                        QUANTIZE_FIRST,
                    )
        return None

    def _is_named(self, node: Node) -> bool:
        return bool(_names(node) & set(self.options.operators_not_to_delegate))

    def _report_unused_names(self, nodes: Sequence[Node]) -> None:
        import warnings

        known = set().union(*(_names(n) for n in nodes)) if nodes else set()
        unused = [n for n in self.options.operators_not_to_delegate if n not in known]
        if unused:
            warnings.warn(
                f"[NeutronPartitioner] operators_not_to_delegate should name operators or nodes of "
                f"the program; got {', '.join(unused)}; try names of the delegation report",
                stacklevel=5,
            )


def _against_floats(cluster: Cluster) -> Refusal | None:
    if cluster.inputs and cluster.outputs and not cluster.floats:
        return None
    floats = [n for n in cluster.floats if n.op == "output" or _is_real(n)]
    if cluster.floats and not floats:
        return Refusal("operands and result quantized to int8", _dtype(cluster.floats[0]))
    got = f"floating point at {', '.join(n.name for n in floats[:3])}" if floats else ""
    strange = [n for n in cluster.nodes if tensors_of(n) and not _is_real(n)]
    if not got and strange:
        return Refusal("operands and result quantized to int8", _dtype(strange[0]))
    got = got or "constants only"
    return Refusal("operands and result quantized to int8", got, QUANTIZE_FIRST)


def _against_plain_integers(cluster: Cluster, constants: IntegerConstants) -> Refusal | None:
    """Of constants whose integers are numbers, not steps of a scale: `arange`."""
    for node in cluster.nodes:
        for operand in node.all_input_nodes:
            if operand in constants and tensors_of(operand) and not _is_real(operand):
                got = f"{operand.name}: {_dtype(operand)}"
                return Refusal("operands and result quantized to int8", got, "operand.float()")
    return None


def _dtype(node: Node) -> str:
    found = tensors_of(node)
    return dtype_name(found[0].dtype) if found else "a number"


def _is_real(node: Node) -> bool:
    return any(t.is_floating_point() for t in tensors_of(node))


def _check_same_target(config: str, given: Any) -> None:
    """given: a name, one of our targets, or an object of ExecuTorch's NeutronTargetSpec."""
    target = getattr(given, "neutron_target", given)
    name = getattr(target, "name", target)
    if name is not None and name != config:
        raise ValueError(
            f"[NeutronPartitioner] neutron_target_spec must be the target of compile_spec, "
            f"{config!r}; got {name!r}; try leaving it out"
        )


def _is_stored(node: Node, constants: IntegerConstants) -> bool:
    """Whether the node moves what is dequantized."""
    while node not in constants:
        definition = TABLE.of(node)
        if definition is None:
            return not is_call(node) or "dequantize" in op_name(node)
        if not definition.moves or len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return True


def _names(node: Node) -> set[str]:
    """What `operators_not_to_delegate` may call a node: its name, or its operator's."""
    operator = op_name(node)
    short = operator.rpartition(".")[0] if operator.count(".") == 2 else operator
    return {node.name, *(n.replace(".", s) for n in (operator, short) for s in "._")}
