"""The contents of a file in the form of a record: nodes, and what each reads of others.

There are no modules, lines or reasons in it. Delegates are opened where their payload is a graph;
where it is a stream of commands, its operations follow each other. Takes no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.inspect.contents import Contents, DelegateContents, MethodContents, ValueContents
from edgewise.inspect.delegate_graphs import DelegateGraph, DelegateTensor
from edgewise.inspect.record import (
    BlockRecord,
    DelegateRecord,
    EdgeRecord,
    InstructionRecord,
    MethodRecord,
    NodeRecord,
    PayloadNodeRecord,
    ProgramRecord,
    TensorRecord,
    WeightRecord,
)


def record_of_contents(contents: Contents, sha256: str) -> ProgramRecord:
    """What a file tells, in the form of a record. sha256: of the file's bytes."""
    methods = tuple(_Method(method).record() for method in contents.methods)
    return ProgramRecord(sha256, contents.nbytes, methods, complete=False)


class _Method:
    """Nodes of one method: its kernels, and what is inside of its delegates."""

    def __init__(self, method: MethodContents) -> None:
        self._method = method
        self._nodes: list[NodeRecord] = []
        self._edges: list[EdgeRecord] = []
        self._written: dict[int, tuple[str, int]] = {}
        """Who wrote a value last."""
        self._delegates: dict[int, DelegateRecord] = {}
        self._inside: dict[int, tuple[str, ...]] = {}

    def record(self) -> MethodRecord:
        for number, value in enumerate(self._method.inputs):
            self._written[value.index] = (f"input_{number}", 0)
            self._nodes.append(NodeRecord(f"input_{number}", "input", outputs=_types([value])))
        steps = []
        for at, step in enumerate(self._method.instructions):
            if step.kind == "kernel":
                name = self._add_kernel(at, step.what, step.arguments)
                steps.append(InstructionRecord("kernel", step.what, None, (name,)))
            elif step.kind == "delegate":
                number = int(step.what.split(",")[0].removeprefix("delegate "))
                if number not in self._delegates:
                    self._enter(number, step.arguments)
                steps.append(InstructionRecord("delegate", "", number, self._inside[number]))
            else:
                if step.kind == "move":
                    source, target = step.arguments
                    self._written[target] = self._written.get(source, ("", 0))
                steps.append(InstructionRecord(step.kind.split()[0]))
        for number, value in enumerate(self._method.outputs):
            name = f"output_{number}"
            self._nodes.append(NodeRecord(name, "output", inputs=_types([value])))
            self._read([value.index], name)
        return MethodRecord(
            name=self._method.name,
            nodes=tuple(self._nodes),
            edges=tuple(self._edges),
            instructions=tuple(steps),
            delegates=tuple(self._delegates[i] for i in sorted(self._delegates)),
            memory=tuple(self._blocks()),
            arenas={str(i): size for i, size in enumerate(self._method.arenas, 1)},
        )

    def _read(self, values: Sequence[int], name: str) -> None:
        for number, value in enumerate(values):
            source, output = self._written.get(value, ("", 0))
            if source:
                self._edges.append(EdgeRecord(source, output, name, number))

    def _tensors(self, arguments: Sequence[int]) -> list[int]:
        """The tensors among values, those in lists too."""
        found = []
        for index in arguments:
            value = self._method.values[index]
            if value.kind == "Tensor":
                found.append(index)
            elif value.kind in ("TensorList", "OptionalTensorList"):
                found += [i for i in value.value or [] if i >= 0]
        return found

    def _add_kernel(self, at: int, operator: str, arguments: Sequence[int]) -> str:
        """An out-variant ends in its outputs, then names them once more."""
        name = f"{at}: {operator.split('::')[-1].split('.')[0]}"
        values = self._method.values
        outputs = list(dict.fromkeys(self._tensors(arguments[-1:])))
        given = [i for i in arguments[:-1] if i not in set(outputs)]
        inputs = [i for i in self._tensors(given) if i not in set(outputs)]
        constant = [i for i in inputs if values[i].place in ("constant", "data file")]
        computed = [i for i in inputs if i not in constant]
        self._read(computed, name)
        self._written.update({value: (name, i) for i, value in enumerate(outputs)})
        moved = sum(values[i].nbytes for i in [*inputs, *outputs])
        self._nodes.append(
            NodeRecord(
                name,
                "call",
                operator,
                _types([values[i] for i in computed]),
                _types([values[i] for i in outputs]),
                {
                    f"argument {n}": str(values[i].value)
                    for n, i in enumerate(given)
                    if values[i].kind not in ("Tensor", "Null", "TensorList", "OptionalTensorList")
                },
                bytes=moved,
                weights=tuple(_weight(values[i]) for i in constant),
            )
        )
        return name

    def _enter(self, number: int, arguments: Sequence[int]) -> None:
        delegate = self._method.delegates[number]
        graph = delegate.graph or DelegateGraph("", [], [])
        ins = [t.name for t in graph.tensors if t.role == "input"]
        outs = [t.name for t in graph.tensors if t.role == "output"]
        values = [i for i in arguments if self._method.values[i].kind == "Tensor"]
        count = len(values) - len(outs) if graph.nodes else self._inputs_of(values)
        given, made = values[:count], values[count:]
        known = {t.name: t for t in graph.tensors}
        by_name = {t: self._written.get(v, ("", 0)) for t, v in zip(ins, given, strict=False)}
        names, previous = [], ""
        for index, node in enumerate(graph.nodes):
            name = f"delegate {number}/{index}: {node.kind}"
            names.append(name)
            read = [known[i] for i in node.inputs if i in known]
            inputs = [t for t in read if t.role != "constant"]
            for i, tensor in enumerate(inputs):
                source, output = by_name.get(tensor.name, ("", 0))
                if source:
                    self._edges.append(EdgeRecord(source, output, name, i))
            if not node.inputs:  # commands: one after the other
                before = [self._written.get(v, ("", 0)) for v in given] if not previous else []
                found = [s for s in before if s[0]] or ([(previous, 0)] if previous else [])
                for i, (source, output) in enumerate(found):
                    self._edges.append(EdgeRecord(source, output, name, i))
            by_name.update({tensor: (name, i) for i, tensor in enumerate(node.outputs)})
            written = [known[i] for i in node.outputs if i in known]
            previous = name
            self._nodes.append(
                NodeRecord(
                    name,
                    "call",
                    node.kind,
                    tuple(map(_inner, inputs)),
                    tuple(map(_inner, written)),
                    {key: str(value) for key, value in node.options.items()},
                    backend=delegate.backend,
                    delegate=number,
                    bytes=sum(_inner(t).bytes for t in [*read, *written]),
                    weights=tuple(
                        WeightRecord(t.key or t.name, _inner(t))
                        for t in read
                        if t.role == "constant"
                    ),
                )
            )
        if not names:
            names.append(self._add_closed(number, delegate, given, made))
            previous = names[0]
        for i, value in enumerate(made):
            fallback = (previous, i)
            self._written[value] = by_name.get(outs[i], fallback) if i < len(outs) else fallback
        self._inside[number] = tuple(names)
        self._delegates[number] = DelegateRecord(
            delegate.backend,
            "",
            delegate.payload_bytes,
            sum({t.key or t.name: t.nbytes for t in graph.tensors}.values()),
            tuple(
                PayloadNodeRecord(node.kind, (name,))
                for node, name in zip(graph.nodes, names, strict=False)
            ),
        )

    def _inputs_of(self, values: Sequence[int]) -> int:
        """How many arguments of a delegate that cannot be opened were written before."""
        return sum(i in self._written for i in values)

    def _add_closed(
        self, number: int, delegate: DelegateContents, given: Sequence[int], made: Sequence[int]
    ) -> str:
        values = self._method.values
        name = f"delegate {number}"
        self._read(given, name)
        self._nodes.append(
            NodeRecord(
                name,
                "call",
                delegate.backend,
                _types([values[i] for i in given]),
                _types([values[i] for i in made]),
                backend=delegate.backend,
                delegate=number,
                notes=(delegate.problem,) if delegate.problem else (),
            )
        )
        return name

    def _blocks(self) -> list[BlockRecord]:
        """The plan; values at one offset with overlapping lives are one block."""
        found = []
        for one in self._method.plan:
            node = self._written.get(one.value, ("", 0))[0]
            nodes = (node,) if node else ()
            found.append(BlockRecord(nodes, one.arena, one.offset, one.nbytes, one.first, one.last))
        return found


def _types(values: Sequence[ValueContents]) -> tuple[TensorRecord, ...]:
    return tuple(
        TensorRecord(v.dtype, tuple(v.shape), v.nbytes) for v in values if v.kind == "Tensor"
    )


def _weight(value: ValueContents) -> WeightRecord:
    return WeightRecord(value.name or f"constant {value.index}", _types([value])[0])


_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int32": 32, "qint32": 32, "qcint32": 32}


def _inner(tensor: DelegateTensor) -> TensorRecord:
    """Elements of other types than these have 8 bits, or 4 where their name says so."""
    count = 1
    for size in tensor.shape:
        count *= size
    bits = _BITS.get(tensor.dtype, 4 if tensor.dtype.endswith("4") else 8)
    return TensorRecord(tensor.dtype, tuple(tensor.shape), tensor.nbytes or (count * bits + 7) // 8)
