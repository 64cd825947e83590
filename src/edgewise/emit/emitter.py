"""One method of an edge program becomes one execution plan."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from edgewise.edge.arguments import arguments_of
from edgewise.edge.cache_operators import CACHES
from edgewise.edge.graph import (
    AUTO_FUNCTIONALIZED,
    arguments,
    is_getitem,
    op_name,
    source_line,
)
from edgewise.edge.layout import dim_order
from edgewise.edge.node_errors import as_users, at_node
from edgewise.edge.program import Constants, output_node, tensor_bytes, tensor_of, written_state
from edgewise.emit.config import ExecutorchBackendConfig
from edgewise.emit.in_place import is_row_update, plan_in_place, plan_writes
from edgewise.emit.lifetimes import FOREVER, Lifetimes
from edgewise.emit.memory import MemoryPlan, plan_memory
from edgewise.emit.origins import Origins
from edgewise.emit.out_variants import (
    SYMBOLIC,
    OutVariant,
    mutable_variant,
    out_variant,
    special_arguments,
)
from edgewise.emit.scalar_types import check_types, scalar_type
from edgewise.emit.shapes import DYNAMIC_UNBOUND, has_unbounded_inputs, upper_bounds
from edgewise.emit.shared_state import ARENA, SharedState
from edgewise.errors import EmitError, UnsupportedOperatorError
from edgewise.flatbuffer import Table
from edgewise.format import program as pte
from edgewise.format.constants import ConstantTable
from edgewise.format.data_file import DEFAULT_NAME, DataFile, TensorLayout
from edgewise.partition.lowered_module import (
    LoweredBackendModule,
    is_delegate_call,
    lowered_of,
)

AddPayload = Callable[[LoweredBackendModule], pte.BackendDelegate]


_EXTERNAL = 1  # TensorDataLocation


class MethodEmitter:
    """Turns the nodes of one method into values, instructions and a memory plan."""

    def __init__(
        self,
        name: str,
        program: ExportedProgram,
        config: ExecutorchBackendConfig,
        constants: ConstantTable,
        initial_state: ConstantTable,
        add_payload: AddPayload,
        shared: SharedState | None = None,
        data_file: Callable[[str], DataFile] | None = None,
    ) -> None:
        self._name = name
        self._program = program
        self._config = config
        self._constant_table = constants
        self._initial_state = initial_state
        self._add_payload = add_payload
        self._shared = shared
        self._data_file = data_file
        self._in_place = plan_in_place(program)
        self._writes = plan_writes(program, self._in_place)
        self._values: list[pte.EValue] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._of_node: dict[Node, Any] = {}
        self._operators: dict[tuple[str, str], int] = {}
        self._delegates: list[pte.BackendDelegate] = []
        self._instructions: list[pte.Instruction] = []
        self._frames: list[pte.FrameList] = []
        self._planned: dict[int, tuple[pte.Tensor, int]] = {}
        self._bytes: dict[int, int] = {}
        self._lifetimes = Lifetimes()
        self._origins = Origins(program.graph)
        self.called: dict[str, Node | None] = {}
        self._module = program.graph_module

    @property
    def origins(self) -> Origins:
        """What the method's instructions and values come from, once it is emitted."""
        return self._origins

    def emit(self) -> tuple[pte.ExecutionPlan, MemoryPlan]:
        check_types(self._module.graph.nodes)
        self._takes_any_size = has_unbounded_inputs(self._program)
        inputs = self._emit_inputs()
        self._emit_nodes()
        outputs = self._emit_outputs(inputs)
        plan = self._plan()
        self._origins.finish(len(self._instructions), self._of_node)
        chain = pte.Chain(
            inputs=[],
            outputs=[],
            instructions=self._instructions,
            stacktrace=self._frames if self._config.emit_stacktrace else None,
        )
        return pte.ExecutionPlan(
            name=self._name,
            container_meta_type=self._container(),
            values=self._values,
            inputs=inputs,
            outputs=outputs,
            chains=[chain],
            operators=[pte.Operator(n, o) for n, o in self._operators],
            delegates=self._delegates,
            non_const_buffer_sizes=[0, plan.size, *([self._shared.size] if self._shared else [])],
        ), plan

    # --- inputs and outputs ------------------------------------------------------------

    def _emit_inputs(self) -> list[int]:
        constants = Constants(self._program)
        nodes = {n.name: n for n in self._program.graph.nodes if n.op == "placeholder"}
        inputs = []
        for spec in self._program.graph_signature.input_specs:
            name = getattr(spec.arg, "name", "")
            node = nodes.get(name)
            if node is None:
                continue
            if spec.kind == InputKind.USER_INPUT:
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor):
                    index = self._tensor(node, value)
                    self._live(index, -1)
                    if not self._config.memory_planning.alloc_graph_input:
                        self._planned.pop(index, None)
                else:
                    index = self._number(value, node)
                self._of_node[node] = index
                inputs.append(index)
            elif self._shared and spec.target in self._shared.offsets:
                offset = self._shared.offsets[spec.target]
                self._of_node[node] = self._state(node, spec, offset)
            elif node in constants:
                if node.users:
                    self._of_node[node] = self._weight(node, constants)
            elif isinstance(spec.arg, TensorArgument):
                self._of_node[node] = self._state(node, spec)
            else:
                raise EmitError(
                    f"{at_node(node)} inputs must be tensors or numbers; got {spec.kind}"
                )
        return inputs

    def _emit_outputs(self, inputs: Sequence[int]) -> list[int]:
        returned = output_node(self._program.graph).args[0]
        assert isinstance(returned, (tuple, list))
        outputs = []
        for spec, value in zip(self._program.graph_signature.output_specs, returned, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(self._output(value))
            elif spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                raise EmitError(f"[{self._name}] outputs must be results or state; got {spec.kind}")
        writes = [
            (self._of_node[state], self._of_node[value])
            for state, value in written_state(self._program)
        ]
        outputs = self._emit_writes(writes, outputs)
        end = len(self._instructions)
        for index in outputs:
            self._live(index, end)
            if not self._config.memory_planning.alloc_graph_output and index not in inputs:
                self._planned.pop(index, None)
        return outputs

    def _emit_writes(self, writes: Sequence[tuple[int, int]], outputs: list[int]) -> list[int]:
        """Updates buffers and inputs, after all that reads them. Returns the method's outputs.

        What is to be returned, or written elsewhere, as it was before the updates is saved first.
        """
        states = [state for state, _ in writes]
        early = {self._of_node[state] for pairs in self._writes.values() for state, _ in pairs}
        writes = [(state, value) for state, value in writes if state not in {value, *early}]
        written = {state for state, _ in writes}
        saved = {
            old: self._save(old)
            for old in dict.fromkeys([*outputs, *(value for _, value in writes)])
            if old in written
        }
        for state, value in writes:
            self._write(state, saved.get(value, value))
        for state in states:  # an input that the method writes keeps its memory to the end
            self._live(state, len(self._instructions))
        return [saved.get(index, index) for index in outputs]

    def _write(self, state: int, value: int) -> None:
        now = len(self._instructions)
        self._live(state, now)
        self._live(value, now)
        self._kernel("aten::copy_", "", [state, value, self._atom(pte.Bool(False)), state])
        self._no_trace()

    def _save(self, index: int, order: list[int] | None = None) -> int:
        """A copy, in memory of its own, of what a tensor holds now; `order`: of dimensions."""
        original = self._values[index].val
        tensor = replace(original, data_buffer_idx=0, allocation_info=None, extra_tensor_info=None)
        tensor.dim_order = order or tensor.dim_order
        copy = self._add(tensor)
        self._bytes[copy] = self._bytes[index]
        self._planned[copy] = (tensor, self._bytes[copy])
        self._copy(index, copy)
        return copy

    def _is_constant(self, index: int) -> bool:
        return index not in self._planned and self._values[index].val.allocation_info is None

    def _copy(self, source: int, target: int) -> None:
        """Writes one tensor's contents and shape to another."""
        now = len(self._instructions)
        self._live(source, now)
        self._live(target, now)
        variant = out_variant(torch.ops.aten.clone.default)
        assert variant is not None
        order = self._list(self._values[target].val.dim_order, "int[]", None)
        args = [source, self._atom(pte.Bool(False)), order, target, target]
        self._kernel(variant.name, variant.overload, args)
        self._no_trace()

    def _output(self, value: Any) -> int:
        if isinstance(value, Node):
            return int(self._of_node[value])
        return self._number(value, None)

    def _container(self) -> pte.ContainerMetadata:
        entry = self._program.module_call_graph[0].signature
        if entry is None or entry.in_spec is None or entry.out_spec is None:
            return pte.ContainerMetadata("", "")
        names = arguments_of(self._program)
        return pte.ContainerMetadata(
            _with_names(_structure(entry.in_spec), names), _structure(entry.out_spec)
        )

    # --- calls -----------------------------------------------------------------------

    def _emit_nodes(self) -> None:
        for node in self._module.graph.nodes:
            if node.op == "call_function":
                self._emit_call(node)
                self._origins.made(node, len(self._instructions))
            for state, value in self._writes.get(node, ()):
                self._write(int(self._of_node[state]), int(self._of_node[value]))

    def _emit_call(self, node: Node) -> None:
        if is_getitem(node):
            parts = self._of_node[node.args[0]]  # type: ignore[index]
            self._of_node[node] = parts[node.args[1]]
            return
        now = len(self._instructions)
        if is_delegate_call(node):
            self._emit_delegate(node)
        elif node.target in SYMBOLIC:
            self._emit_symbolic(node, SYMBOLIC[node.target])
        elif node.target is AUTO_FUNCTIONALIZED:
            self._emit_mutable(node)
        else:
            self._emit_kernel(node)
        self._trace(node)
        for source in node.all_input_nodes:
            self._touch(self._of_node.get(source), now)
        self._touch(self._of_node[node], now)

    def _emit_delegate(self, node: Node) -> None:
        self._delegates.append(self._add_payload(lowered_of(node, self._module)))
        inputs = [self._argument(a, "Tensor", node) for a in node.args[1:]]
        outputs = [self._result(node, value, i) for i, value in enumerate(node.meta["val"])]
        self._of_node[node] = outputs
        call = pte.DelegateCall(len(self._delegates) - 1, inputs + outputs)
        self._instructions.append(pte.Instruction(call))

    def _emit_symbolic(self, node: Node, variant: OutVariant) -> None:
        sources = list(node.args)
        args = [self._argument(a, "number", node) for a in sources]
        result = self._add(_symbol(node.meta.get("val")))
        self._of_node[node] = result
        self._kernel(variant.name, variant.overload, [*args, result], node)

    def _emit_mutable(self, node: Node) -> None:
        """A custom operator that writes its arguments gets copies of them to write."""
        target = node.args[0]
        assert isinstance(target, torch._ops.OpOverload)
        variant = mutable_variant(target)
        if variant is None:
            raise UnsupportedOperatorError(
                f"{at_node(node)} a custom operator must return something or write its arguments; "
                f"got {target._schema}, which does both; try returning what it writes"
            )
        args, written = [], []
        for argument in target._schema.arguments:
            default = argument.default_value if argument.has_default_value() else None
            index = self._argument(
                node.kwargs.get(argument.name, default), str(argument.type), node
            )
            if argument.alias_info is not None and argument.alias_info.is_write:
                if not isinstance(self._values[index].val, pte.Tensor):
                    raise UnsupportedOperatorError(
                        f"{at_node(node)} custom operators may write tensors; "
                        f"got {argument.name} of {target._schema}"
                    )
                index = self._save(index)
                written.append(index)
            args.append(index)
        # In the file a call returns what it writes.
        returned = self._add(pte.TensorList(written)) if len(written) > 1 else written[0]
        self._touch(args, len(self._instructions))
        self._kernel(variant.name, variant.overload, [*args, returned], node)
        self._of_node[node] = [self._atom(pte.Null()), *written]

    def _emit_kernel(self, node: Node) -> None:
        variant = out_variant(node.target)
        if variant is None:
            raise UnsupportedOperatorError(
                f"{at_node(node)} an operator that no backend takes must have an out-variant; "
                f"got {op_name(node)}; try to decompose it, or register one with torch.library"
            )
        given = special_arguments(node) or arguments(node)
        args = [
            self._argument(given.get(a.name, a.default), a.type, node) for a in variant.arguments
        ]
        # What the kernel writes in place is the argument's own memory: a copy of a constant's.
        in_place = []
        for at, argument in enumerate(variant.arguments):
            if argument.name in CACHES.get(node.target, ()):
                args[at] = self._save(args[at]) if self._is_constant(args[at]) else args[at]
                in_place.append(args[at])
        value = node.meta["val"]
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        values = values[: len(values) - len(in_place)]
        # Some gradients are not wanted: their outputs are None.
        outputs = [
            self._atom(pte.Null()) if v is None else self._result(node, v, i)
            for i, v in enumerate(values)
        ]
        several = isinstance(value, (tuple, list))
        self._of_node[node] = [*outputs, *in_place] if several else outputs[0]
        as_list = several and variant.outputs == 1 and len(in_place) == 0
        if as_list:  # the kernel's one output is a list, of which there may be one item
            returned = self._add(pte.TensorList(outputs))
        elif any(v is None for v in values):
            found = [-1 if v is None else i for v, i in zip(values, outputs, strict=True)]
            returned = self._add(pte.OptionalTensorList(found))
        else:
            returned = self._add(pte.TensorList(outputs)) if len(outputs) > 1 else outputs[0]
        if outputs[0] == args[0] and is_row_update(node):
            self._kernel("aten::index_put_", "", [*args, returned], node)
        else:
            called = [*args, *([returned] if as_list else outputs), returned]
            self._kernel(variant.name, variant.overload, called, node)

    def _kernel(
        self, name: str, overload: str, args: Sequence[int], node: Node | None = None
    ) -> None:
        """node: what the call computes, for the report of missing kernels."""
        index = self._operators.setdefault((name, overload), len(self._operators))
        self.called.setdefault(f"{name}.{overload}".removesuffix("."), node)
        self._instructions.append(pte.Instruction(pte.KernelCall(index, list(args))))

    def _trace(self, node: Node) -> None:
        if not self._config.emit_stacktrace:
            return
        file, _, line = source_line(node).rpartition(":")
        frame = pte.Frame(file, int(line or 0), node.name, op_name(node))
        self._frames.append(pte.FrameList([frame]))

    def _no_trace(self) -> None:
        """For an instruction that comes from no node: there is one list for each instruction."""
        if self._config.emit_stacktrace:
            self._frames.append(pte.FrameList([]))

    # --- values ----------------------------------------------------------------------

    def _argument(self, value: Any, kind: str, node: Node | None) -> int:
        """The value's index, converted as the schema's type asks."""
        if value is None:
            return self._atom(pte.Null())
        if isinstance(value, Node):
            return int(self._of_node[value])
        kind = kind.removeprefix("Optional[").removesuffix("]") if "Optional[" in kind[:9] else kind
        if isinstance(value, (list, tuple)):
            return self._list(value, kind, node)
        if kind == "Tensor" and isinstance(value, (bool, int, float)):
            return self._constant(_number_as_tensor(value, node))
        if isinstance(value, bool):
            return self._atom(pte.Bool(value))
        if isinstance(value, int):
            return self._atom(pte.Double(float(value)) if kind == "float" else pte.Int(value))
        if isinstance(value, float):
            return self._atom(pte.Double(value))
        if isinstance(value, str):
            return self._atom(pte.String(value))
        if isinstance(value, torch.dtype):
            return self._atom(pte.Int(scalar_type(value)))
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return self._atom(pte.Null())
        where = at_node(node) if node is not None else f"[{self._name}]"
        raise EmitError(
            f"{where} arguments must be tensors, numbers, strings, types or lists of these; "
            f"got {type(value).__name__}"
        )

    def _list(self, items: Sequence[Any], kind: str, node: Node | None) -> int:
        if any(isinstance(i, Node) and isinstance(i.meta.get("val"), torch.Tensor) for i in items):
            if any(i is None for i in items):
                found = [-1 if i is None else int(self._of_node[i]) for i in items]
                return self._add(pte.OptionalTensorList(found))
            found = [int(self._of_node[i]) for i in items]
            optional = "Optional" in kind
            return self._add(pte.OptionalTensorList(found) if optional else pte.TensorList(found))
        if items and all(isinstance(i, bool) for i in items):
            return self._add(pte.BoolList([bool(i) for i in items]))
        if any(isinstance(i, float) for i in items) or "float" in kind:
            return self._add(pte.DoubleList([float(i) for i in items]))
        return self._add(pte.IntList([self._argument(i, "int", node) for i in items]))

    def _number(self, value: Any, node: Node | None) -> int:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._add(_symbol(value))
        if value is None:
            return self._add(pte.Null())
        if isinstance(value, bool):
            return self._add(pte.Bool(value))
        if isinstance(value, int):
            return self._add(pte.Int(value))
        if isinstance(value, float):
            return self._add(pte.Double(value))
        if isinstance(value, str):
            return self._add(pte.String(value))
        where = at_node(node) if node is not None else f"[{self._name}]"
        raise EmitError(f"{where} inputs and outputs must be tensors or numbers; got {type(value)}")

    def _result(self, node: Node, value: Any, position: int) -> int:
        """Where the call's result goes: memory from the plan, or the state that it updates."""
        state = self._in_place.get((node, position))
        return self._tensor(node, value) if state is None else int(self._of_node[state])

    def _tensor(self, node: Node, value: Any) -> int:
        """A tensor with memory from the plan."""
        if not isinstance(value, torch.Tensor):
            raise EmitError(f"{at_node(node)} results must be tensors; got {type(value).__name__}")
        sizes, dynamism = upper_bounds(value.shape, self._program.range_constraints)
        tensor = pte.Tensor(
            scalar_type=scalar_type(value.dtype),
            sizes=sizes,
            dim_order=list(dim_order(value)),
            shape_dynamism=dynamism,
        )
        index = self._add(tensor)
        if dynamism == DYNAMIC_UNBOUND and not self._takes_any_size:
            raise EmitError(
                f"{at_node(node)} a size that only data tells must have a bound; got "
                f"{list(value.shape)}; try torch._check(size <= LIMIT) in the model"
            )
        self._bytes[index] = math.prod(sizes) * value.element_size()
        if dynamism != DYNAMIC_UNBOUND:
            self._planned[index] = (tensor, self._bytes[index])
        return index

    def _weight(self, node: Node, constants: Constants) -> int:
        """A constant of the model's, in the program or in a file of its own."""
        tensor = constants.tensor(node)
        name = self._external_file(node)
        if name is None or self._data_file is None:
            return self._constant(tensor)
        sizes, order = list(tensor.shape), list(range(tensor.dim()))
        layout = TensorLayout(scalar_type(tensor.dtype), sizes, order)
        target = str(constants.specs[node.name].target)
        key = self._data_file(name).add(target, tensor_bytes(tensor), layout)
        extra = pte.ExtraTensorInfo(fully_qualified_name=key, location=_EXTERNAL)
        made = pte.Tensor(layout.scalar_type, sizes=sizes, dim_order=order, extra_tensor_info=extra)
        return self._add_constant(made, tensor)

    def _external_file(self, node: Node) -> str | None:
        """The file for a constant; None for the program itself. Literals are code, not data."""
        choose = self._config.external_constants
        if not choose or "lifted_tensor" in node.name:
            return None
        return DEFAULT_NAME if choose is True else as_users(choose)(node)

    def _constant(self, tensor: torch.Tensor) -> int:
        made = pte.Tensor(
            scalar_type=scalar_type(tensor.dtype),
            sizes=list(tensor.shape),
            dim_order=list(range(tensor.dim())),
            data_buffer_idx=self._constant_table.add(tensor_bytes(tensor)),
        )
        return self._add_constant(made, tensor)

    def _add_constant(self, made: pte.Tensor, tensor: torch.Tensor) -> int:
        index = self._add(made)
        self._bytes[index] = tensor.nbytes
        return index

    def _state(self, node: Node, spec: InputSpec, shared: int | None = None) -> int:
        """A buffer that the program writes: planned for the whole method, with its first value.

        shared: its offset in the arena that methods share, if it is there. Zeros are not
        written: what a method plans starts with them.
        """
        initial = tensor_of(self._program, spec)
        index = self._tensor(node, initial)
        tensor, _ = self._planned[index]
        if self._config.emit_mutable_buffer_names:
            tensor.extra_tensor_info = pte.ExtraTensorInfo(fully_qualified_name=str(spec.target))
        tensor.dim_order = list(range(initial.dim()))
        content = tensor_bytes(initial)
        if len(content) and torch.frombuffer(content, dtype=torch.uint8).any():
            tensor.data_buffer_idx = self._initial_state.add(content)
        if shared is not None:
            tensor.allocation_info = pte.AllocationDetails(ARENA, shared & 0xFFFFFFFF, shared >> 32)
            self._planned.pop(index)
        self._live(index, -1)
        self._live(index, FOREVER)
        return index

    def _atom(self, value: Table) -> int:
        """A number, string or nothing; equal ones are one value."""
        key = (type(value), repr(value))
        if key not in self._numbers:
            self._numbers[key] = self._add(value)
        return self._numbers[key]

    def _add(self, value: Table) -> int:
        self._values.append(pte.EValue(value))
        return len(self._values) - 1

    # --- memory ----------------------------------------------------------------------

    def _touch(self, found: Any, now: int) -> None:
        for index in found if isinstance(found, list) else [found]:
            if isinstance(index, int):
                self._live(index, now)

    def _live(self, index: int, now: int) -> None:
        self._lifetimes.use(index, now)

    def _plan(self) -> MemoryPlan:
        sizes = {index: size for index, (_, size) in self._planned.items()}
        blocks = self._lifetimes.blocks(sizes, len(self._instructions))
        plan = plan_memory(blocks, self._config.memory_planning.alignment)
        self._origins.blocks = blocks
        self._origins.homes = {value: self._lifetimes.home(value) for value in sizes}
        for index, (tensor, _) in self._planned.items():
            offset = plan.offsets[self._lifetimes.home(index)]
            tensor.allocation_info = pte.AllocationDetails(1, offset & 0xFFFFFFFF, offset >> 32)
        return plan


def _number_as_tensor(value: bool | int | float, node: Node | None) -> torch.Tensor:
    """A number where the schema has a tensor: without dimensions, it promotes as numbers do."""
    if isinstance(value, float):
        result = node.meta.get("val") if node is not None else None
        double = isinstance(result, torch.Tensor) and result.dtype == torch.float64
        return torch.tensor(value, dtype=torch.float64 if double else torch.float32)
    return torch.tensor(value)


def _symbol(value: Any) -> pte.Int | pte.Double | pte.Bool:
    """The slot of a number that is computed: of its kind, as callers are told it."""
    if isinstance(value, (torch.SymBool, bool)):
        return pte.Bool(False)
    return pte.Double(0.0) if isinstance(value, (torch.SymFloat, float)) else pte.Int(0)


def _structure(spec: pytree.TreeSpec) -> str:
    """The nesting as text. Named results of operators (`topk`) are plain tuples in a file."""
    try:
        return pytree.treespec_dumps(spec)
    except NotImplementedError:
        return pytree.treespec_dumps(pytree.tree_structure(_plain(_nested(spec))))


def _with_names(structure: str, names: Sequence[str]) -> str:
    """The nesting of a call with the arguments' names, which other readers pass over."""
    if not names:
        return structure
    version, root = json.loads(structure)
    return json.dumps([version, {**root, "arguments": list(names)}])


def _nested(spec: pytree.TreeSpec) -> Any:
    return pytree.tree_unflatten([0] * spec.num_leaves, spec)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value)((k, _plain(v)) for k, v in value.items())
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return [_plain(v) for v in value] if isinstance(value, list) else value
