"""From the module of an exported program, changed since, to an exported program again.

`torch.export.export` of such a module traces it once more, which takes as long as the first time.
A graph of operators that are already what export makes of them only needs its parameters, buffers
and constants as inputs again, a signature, and values for the nodes that are new.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._export.verifier import TrainingIRVerifier
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from edgewise.edge.graph import erase_dead
from edgewise.edge.open_sizes import told_if_fixed
from edgewise.edge.program import argument_of, fake_mode, output_node

_GUARDS = "_guards_fn"
"""What `ExportedProgram.module()` puts in to check its inputs; inference has no use for it."""
_SIZE = torch.ops.aten.sym_size.int
_DROPPED = ("quantization_annotation", "eager_input_vals")
_PREFIXES = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_", InputKind.CONSTANT_TENSOR: "c_"}


def relift(module: GraphModule, like: ExportedProgram) -> ExportedProgram | None:
    """The exported program of `module`, which was `like.module()` before passes changed it.

    It is what `torch.export.export` gives: names, order and values are the same. None where only
    tracing tells: control flow, sizes that depend on data, calls of modules, objects that are no
    tensors, one tensor under two names.
    """
    state = _state(module)
    if state is None or not _is_plain(module, like):
        return None
    relifting = _Relifting(module, like, state)
    return relifting.program()


def _state(module: GraphModule) -> dict[str, tuple[InputKind, torch.Tensor]] | None:
    """Parameters, buffers, then other tensors that the graph reads, by qualified name."""
    found: dict[str, tuple[InputKind, torch.Tensor]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found[name] = InputKind.PARAMETER, parameter
    for name, buffer in module.named_buffers(remove_duplicate=False):
        found[name] = InputKind.BUFFER, buffer
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target not in found:
            value = operator.attrgetter(str(node.target))(module)
            if not isinstance(value, torch.Tensor):
                return None
            found[str(node.target)] = InputKind.CONSTANT_TENSOR, value
    distinct = {id(tensor) for _, tensor in found.values()}
    return found if len(distinct) == len(found) else None


def _is_plain(module: GraphModule, like: ExportedProgram) -> bool:
    kinds = {*_PREFIXES, InputKind.USER_INPUT}
    if any(spec.kind not in kinds for spec in like.graph_signature.input_specs):
        return False
    for node in module.graph.nodes:
        if node.op == "call_module" and node.target == _GUARDS and not node.users:
            continue
        if node.op in ("call_module", "call_method") or "unbacked_bindings" in node.meta:
            return False
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
    given: int = sum(node.op == "placeholder" for node in module.graph.nodes)
    return given == len(_user_inputs(like))


def _user_inputs(program: ExportedProgram) -> list[InputSpec]:
    specs = program.graph_signature.input_specs
    return [spec for spec in specs if spec.kind == InputKind.USER_INPUT]


class _Relifting:
    def __init__(
        self,
        module: GraphModule,
        like: ExportedProgram,
        state: Mapping[str, tuple[InputKind, torch.Tensor]],
    ) -> None:
        self._module, self._like, self._state = module, like, state
        self._mode = fake_mode(like)
        self._graph = Graph()
        self._new: dict[Node, Node] = {}
        self._inputs: list[InputSpec] = []

    def program(self) -> ExportedProgram:
        self._add_inputs()
        with ExitStack() as stack:
            stack.enter_context(self._mode)
            stack.enter_context(torch.no_grad())
            if self._like.range_constraints:
                # Torch's rules in Python: those in C++ take sizes for numbers.
                stack.enter_context(enable_python_dispatcher())
            for node in self._module.graph.nodes:
                if node.op == "call_function":
                    self._add_call(node)
        outputs = self._add_output()
        erase_dead(self._graph)
        state = self._module.state_dict(keep_vars=True)
        constants: dict[str, Any] = {n: t for n, (_, t) in self._state.items() if n not in state}
        return ExportedProgram(
            root=torch.nn.Module(),
            graph=self._graph,
            graph_signature=ExportGraphSignature(self._inputs, outputs),
            state_dict=state,
            range_constraints=dict(self._like.range_constraints),
            module_call_graph=list(self._like.module_call_graph),
            example_inputs=self._like.example_inputs,
            constants=constants,
            verifiers=[TrainingIRVerifier],
        )

    def _add_inputs(self) -> None:
        old = [node for node in self._module.graph.nodes if node.op == "placeholder"]
        user = _user_inputs(self._like)
        theirs = [node for node in self._like.graph.nodes if node.op == "placeholder"]
        taken = {spec.arg.name for spec in user}
        read: dict[str, list[Node]] = {name: [] for name in self._state}
        for node in self._module.graph.nodes:
            if node.op == "get_attr":
                read[str(node.target)].append(node)
        persistent = set(self._module.state_dict())
        for target, (kind, tensor) in self._state.items():
            name = _free(_PREFIXES[kind] + re.sub(r"[^a-z0-9]", "_", target.lower()), taken)
            new = self._placeholder(name)
            new.meta["val"] = self._mode.from_tensor(tensor, static_shapes=True)
            self._new.update(dict.fromkeys(read[target], new))
            kept = target in persistent if kind == InputKind.BUFFER else None
            self._inputs.append(InputSpec(kind, TensorArgument(new.name), target, kept))
        for node, spec, same in zip(old, user, theirs[len(theirs) - len(user) :], strict=True):
            new = self._placeholder(spec.arg.name)
            new.meta = dict(same.meta)
            self._new[node] = new
            self._inputs.append(replace(spec, arg=copy.copy(spec.arg)))

    def _placeholder(self, name: str) -> Node:
        node = self._graph.placeholder(name)
        node.name = name  # also where Python has a function of that name, such as `input`
        return node

    def _add_call(self, node: Node) -> None:
        target: Any = node.target
        args, name = node.args, node.name
        if isinstance(target, torch._ops.OpOverload):
            args = _without_defaults(node)
            name = target.overloadpacket.__name__ if target is not _SIZE else name
        elif target is operator.getitem:
            name = "getitem"
        new = self._graph.create_node(
            "call_function",
            target,
            map_arg(args, self._new.__getitem__),
            map_arg(node.kwargs, self._new.__getitem__),
            name=name,
        )
        new.meta = {key: value for key, value in node.meta.items() if key not in _DROPPED}
        values: Any = map_arg((new.args, new.kwargs), lambda one: one.meta["val"])
        with told_if_fixed(new, self._mode):
            new.meta["val"] = _value(target, *values[0], **values[1])
        self._new[node] = new

    def _add_output(self) -> list[OutputSpec]:
        old = output_node(self._module.graph)
        returned: Any = map_arg(old.args[0], self._new.__getitem__)
        self._graph.output(returned)
        return [OutputSpec(OutputKind.USER_OUTPUT, argument_of(one), None) for one in returned]


def _without_defaults(node: Node) -> tuple[Any, ...]:
    """The arguments without those at the end that are the schema's defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    known, args = node.target._schema.arguments, node.args
    while args:
        last = known[len(args) - 1]
        if not last.has_default_value() or not _is_same(args[-1], last.default_value):
            break
        args = args[:-1]
    return args


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _value(target: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call gives for fake tensors. Quantizing a float16 tensor of open sizes would fix them:
    PyTorch's rule for it makes a copy in float32 on its way."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "quantized_decomposed":
        dtype = args[-1] if args else None
        if target._opname.startswith("quantize_per_") and isinstance(dtype, torch.dtype):
            return torch.empty_like(args[0], dtype=dtype)
    return target(*args, **kwargs)


def _free(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it if another has it."""
    free, count = name, 0
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    taken.add(free)
    return free
