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
from edgewise.backends.neutron.lowering.converter import (
    FLAVOR_PREFIX,
    installed_converter,
    package_of,
)
from edgewise.backends.neutron.lowering.grouping import partitions
from edgewise.backends.neutron.lowering.idle import at_the_ends, is_idle
from edgewise.backends.neutron.lowering.quantized import (
    Cluster,
    Quant,
    clusters,
    is_constant,
    is_dequantize,
    is_quantize,
    own_dequantizations,
    results,
)
from edgewise.backends.neutron.lowering.table import Rules, is_main, query_of
from edgewise.backends.neutron.rows import all_rows, row_of
from edgewise.backends.neutron.targets import target_of
from edgewise.edge.graph import arguments, is_call, is_getitem, op_name, tensors_of
from edgewise.edge.node_errors import as_users
from edgewise.edge.program import Constants
from edgewise.partition.delegate import is_delegate_call
from edgewise.partition.following import TAKES_INTEGERS, WITH_ITS_OPERATOR
from edgewise.partition.spec import (
    TAG,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    Refusal,
    refused_before,
)
from edgewise.partition.tagging import Tags

DYNAMIC_BATCH = "CustomDelegationOptions(allow_dynamic_batch=True)"
QUANTIZE_FIRST = "quantizing the model for this NPU: NeutronQuantizer with prepare_pt2e"

_NAMED = Refusal("operators that operators_not_to_delegate does not name", "one that it names")
_BORDER = Refusal(TAKES_INTEGERS, "a quantization at its border")
_GIVES_ITS_OPERAND = Refusal(
    "operators at the ends of a partition compute something",
    "one whose result is its operand",
    "leaving it out of the model, or CustomDelegationOptions(allow_no_op_partitions=True)",
)
_WITH_ITS_OPERATOR = Refusal(WITH_ITS_OPERATOR, "one that is refused")


class NeutronPartitioner(Partitioner):
    """Gives the Neutron NPU what it computes in 8-bit integers.

    compile_spec: from `generate_neutron_compile_spec` or `NeutronCompileSpecBuilder`.
    neutron_target_spec: a target or its name; must be the one of compile_spec, which suffices.
    (custom_delegation_options may stand in its place.)
    custom_delegation_options: what may be delegated although it is not known to pay.
    post_quantization_state_dict: accepted for scripts that pass it; the program has its constants.
    preserve_ops: more operators that are not decomposed; check_op_support(node): whether one of
    these is kept.

    Everything that cannot be decided before the program runs stays off the NPU, with its reason.
    ValueError if the target is unknown. Partitioning needs no converter; compiling what it tagged
    does (NeutronConverterError).
    """

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
        self._preserved = list(preserve_ops or ())
        self._check_op_support = check_op_support and as_users(check_op_support)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Composite operators with a row of their own, and those that the user named."""
        own = [t for row in all_rows() if row.keep for t in row.targets]
        check = self._check_op_support

        def wanted(node: Node) -> bool:
            if node.target is torch.ops.aten.pad.default:  # with a number it has another row
                return bool(arguments(node)["mode"] == "reflect")
            return node.target in own or check is None or check(node)

        return [*own, *self._preserved], wanted

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags clusters that the rows accept; says for everything else why not."""
        constants = Constants(exported_program)
        graph = exported_program.graph
        own_dequantizations([n for n in graph.nodes if is_call(n)])
        free = [n for n in graph.nodes if is_call(n) and not (is_delegate_call(n) or TAG in n.meta)]
        found = clusters(free, constants)
        batch = None
        if self.rules.options.allow_dynamic_batch:
            inputs = [n for n in graph.nodes if n.op == "placeholder" and n not in constants]
            batch = DynamicBatch(graph, inputs)
        refused = {id(c): r for c in found if (r := self._refusals(c, constants, batch))}
        tags = Tags("neutron", self.delegation_spec)
        taken: list[list[Node]] = []

        def refuse(cluster: Cluster, reason: Refusal) -> None:
            refused[id(cluster)] = {n: [reason] for n in cluster.nodes or cluster.all_nodes}
            if batch is not None:
                batch.release(cluster)

        for partition in partitions(graph, found, lambda c: id(c) not in refused, refuse):
            if not self.rules.options.allow_no_op_partitions:
                at_ends = at_the_ends(partition, constants)
                for cluster in at_ends:
                    refuse(cluster, _GIVES_ITS_OPERAND)
                partition = [c for c in partition if c not in at_ends]
            if not partition:
                continue
            idle = self._idle(partition, constants)
            if idle is not None:
                for cluster in partition:
                    refuse(cluster, idle)
                continue
            taken.append([n for cluster in partition for n in cluster.all_nodes])
            tags.add(taken[-1])
        reasons = {n.name: r for given in refused.values() for n, r in given.items()}
        for node in batch.fill(taken) if batch is not None else ():
            reasons[node.name] = [FILLED]
        for node in (n for c in found if id(c) in refused for n in c.all_nodes):
            reasons.setdefault(node.name, [_WITH_ITS_OPERATOR])
        for node in free:
            if TAG not in node.meta and (is_quantize(node) or is_dequantize(node)):
                reasons.setdefault(node.name, [_BORDER])
        if not any(refused_before(n) for n in free):  # else it was told before
            self._report_unused_names(free, reasons)
        return PartitionResult(exported_program, tags, reasons)

    # --- one cluster --------------------------------------------------------------------

    def _refusals(
        self, cluster: Cluster, constants: Constants, batch: DynamicBatch | None
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
            with_it = Refusal("operators between quantizations go together", next(iter(given)).name)
            for node in cluster.nodes:
                given.setdefault(node, [with_it])
        if given and batch is not None:
            batch.release(cluster)
        return given

    def _against_operators(self, cluster: Cluster) -> dict[Node, list[Refusal]]:
        """Of the nodes that the user keeps off the NPU, or that it has not."""
        given = {n: list(r) for n in cluster.all_nodes if (r := refused_before(n))}
        for node in cluster.nodes:
            if self._is_named(node):
                given[node] = [_NAMED]
            elif row_of(node) is None and not is_getitem(node):
                given[node] = [Refusal("operators of the Neutron table", op_name(node))]
        return given

    def _against_nodes(self, cluster: Cluster, constants: Constants) -> dict[Node, list[Refusal]]:
        given: dict[Node, list[Refusal]] = {}
        for node in cluster.nodes:
            row = row_of(node)
            if row and (found := row.refusals(query_of(node, constants, cluster, self.rules))):
                given[node] = found
        return given

    def _against_all(self, cluster: Cluster, constants: Constants) -> Refusal | None:
        nodes = cluster.nodes
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
                dtype = str(quant.dtype).removeprefix("torch.")
                got = f"{node.name}: {dtype} {quant.low}..{quant.high}"
                return Refusal("activations in int8, -128..127", got, QUANTIZE_FIRST)
        if not nodes:
            return None  # quantized anew
        if len(results(cluster)) != 1 or len({Quant.of(n) for n in cluster.outputs}) != 1:
            return Refusal(
                "one result with one quantization",
                ", ".join(f"{n.name}: {Quant.of(n)}" for n in cluster.outputs),
                "NeutronQuantizer",
            )
        return self._shape_of_cluster(cluster, constants)

    def _shape_of_cluster(self, cluster: Cluster, constants: Constants) -> Refusal | None:
        """One operator that computes, moves before it, moves and clamps behind."""
        main = [n for n in cluster.nodes if is_main(n)]
        if len(main) > 1:
            got = ", ".join(n.name for n in main)
            return Refusal("one operator between quantizations", got, "NeutronQuantizer")
        for node in cluster.nodes:
            row = row_of(node)
            if row is None or not (row.clamps or node in main):
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

    # --- all of them --------------------------------------------------------------------

    def _idle(self, partition: Sequence[Cluster], constants: Constants) -> Refusal | None:
        """A partition that computes nothing: the converter makes no program of it."""
        if self.rules.options.allow_no_op_partitions:
            return None
        if all(is_idle(node, c, constants) for c in partition for node in c.nodes):
            return Refusal(
                "a partition must compute something",
                "operators that only rename or cut",
                "CustomDelegationOptions(allow_no_op_partitions=True)",
            )
        return None

    def _report_unused_names(self, nodes: Sequence[Node], reasons: dict[str, Any]) -> None:
        import warnings

        known = set().union(*(_names(n) for n in nodes)) if nodes else set()
        unused = [n for n in self.options.operators_not_to_delegate if n not in known]
        if unused:
            warnings.warn(
                f"[NeutronPartitioner] operators_not_to_delegate should name operators or nodes of "
                f"the program; got {', '.join(unused)}; try names of the delegation report",
                stacklevel=4,
            )


def _against_floats(cluster: Cluster) -> Refusal | None:
    if cluster.inputs and cluster.outputs and not cluster.floats:
        return None
    floats = [n for n in cluster.floats if n.op == "output" or _is_real(n)]
    if cluster.floats and not floats:
        first = cluster.floats[0]
        got = str(tensors_of(first)[0].dtype if tensors_of(first) else "a number")
        return Refusal("operands and result quantized to int8", got.removeprefix("torch."))
    got = f"floating point at {', '.join(n.name for n in floats[:3])}" if floats else ""
    got = got or "constants only"
    return Refusal("operands and result quantized to int8", got, QUANTIZE_FIRST)


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


def _is_stored(node: Node, constants: Constants) -> bool:
    """Whether the node moves what is dequantized."""
    while not is_constant(node, constants):
        row = row_of(node)
        if row is None:
            return not is_call(node) or "dequantize" in op_name(node)
        if not row.moves or len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return True


def _names(node: Node) -> set[str]:
    """What `operators_not_to_delegate` may call a node: its name, or its operator's."""
    operator = op_name(node)
    short = operator.rpartition(".")[0] if operator.count(".") == 2 else operator
    return {node.name, *(n.replace(".", s) for n in (operator, short) for s in "._")}
