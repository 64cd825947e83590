"""Runs a lowered program next to the float model that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from edgewise.accuracy.comparison import Comparison
from edgewise.accuracy.figures import Layer, Output
from edgewise.accuracy.histogram import Counting
from edgewise.accuracy.hooks import Hook, find_hooks, fused, with_hooks
from edgewise.accuracy.matching import base_name, match
from edgewise.accuracy.metrics import ErrorMetrics
from edgewise.accuracy.reference import Reference
from edgewise.edge.graph import is_getitem, module_path, source_line, tensor_shapes
from edgewise.lowering import ExecutorchProgramManager
from edgewise.lowering.origin import Origin
from edgewise.quantize.calibration import as_batch

MOST_TAPS = 128
MOST_TAP_BYTES = 256 << 20
"""Of one program that is lowered and run for its inner values."""


def compare(
    model: torch.nn.Module,
    program: ExecutorchProgramManager,
    batches: Iterable[Any],
    *,
    method: str = "forward",
    layers: bool = True,
    double: bool = False,
    before: ExecutorchProgramManager | None = None,
    label: str = "before",
) -> Comparison:
    """How far the program's outputs and inner values are from the float model's.

    program: what was lowered from `model`, quantized or not; it runs on the native runtime.
    For the layers, the same program is lowered again with inner values as further outputs.
    batches: inputs, each a tuple, or a tensor for one. layers: False for the outputs alone.
    double: the model runs in float64, for programs that are not quantized.
    before: another program of the model, whose decibels are put next to this one's under `label`:
    one without a method, say.
    ValueError if there is no batch, or the program was not lowered from an exported one.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"[compare] model must be the float torch.nn.Module; got {type(model).__name__}; "
            f"try compare(model, program, batches)"
        )
    origin = _origin(program, method)
    exported = origin.programs[method]
    if isinstance(batches, torch.Tensor):
        raise TypeError("[compare] batches must be a list of inputs; got one tensor; try [x]")
    if before is not None:
        batches = list(batches)
        other = compare(model, before, batches, method=method, layers=layers, double=double)
        own = compare(model, program, batches, method=method, layers=layers, double=double)
        return own.beside(other, label)
    # Batches may come one by one and be dropped: only what is being compared is held.
    given = (as_batch(batch) for batch in batches)
    first = next(given, None)
    if first is None:
        raise ValueError(
            "[compare] batches must hold at least one; got none; "
            "try a list of inputs such as the model will see"
        )
    for position, one in enumerate(first):
        if isinstance(one, np.ndarray):
            raise TypeError(
                f"[compare] batches must hold torch's tensors; got ndarray for input {position}; "
                f"try torch.from_numpy"
            )
    reference = Reference(model, first, double=double, like=exported)
    plain = _Native(program.buffer, method)
    watched = _Watched.of(origin, method, reference) if layers else _Watched()
    outputs: dict[str, ErrorMetrics] = {}
    count = 0
    for batch in _chain(first, given):
        inputs = _as_exported(batch, exported)
        wanted, values = reference.run(batch, watched.names)
        got = plain.run(inputs)
        named = [(_name(path), leaf) for path, leaf in pytree.tree_flatten_with_path(wanted)[0]]
        if len(named) != len(got):
            raise ValueError(
                f"[compare] the program must return as many values as the model; got "
                f"{len(got)} and {len(named)}; try the model that it was lowered from"
            )
        for (name, leaf), value in zip(named, got, strict=True):
            if isinstance(leaf, torch.Tensor):
                outputs.setdefault(name, ErrorMetrics()).add(leaf, value)
        watched.add(inputs, values, got)
        count += 1
    return Comparison(
        outputs=[Output(n, t.sqnr_db, t.cosine, t.worst) for n, t in outputs.items()],
        layers=watched.layers(),
        batches=count,
        unmatched=watched.unmatched,
        hook_error=watched.hook_error,
        settings=dict(program.delegation_report(method).settings),
    )


def native(
    file: bytes, program: ExecutorchProgramManager, method: str
) -> Callable[[Sequence[Any]], list[Any]]:
    """Calls the method of the program's file on the native runtime with a batch."""
    exported = _origin(program, method).programs[method]
    runner = _Native(file, method)
    return lambda batch: runner.run(_as_exported(batch, exported))


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _origin(program: ExecutorchProgramManager, method: str) -> Origin[Any]:
    origin: Origin[Any] | None = getattr(program, "origin", None)
    if origin is None:
        raise ValueError(
            f"[compare] program must be what edgewise.compile or to_executorch returned; got "
            f"{type(program).__name__} without what it was lowered from; try the program, not "
            f"its file"
        )
    if method not in origin.programs:
        raise ValueError(
            f"[compare] method must be one of {', '.join(origin.programs)}; got {method!r}"
        )
    return origin


class _Native:
    """A method of a file on the native runtime."""

    def __init__(self, file: bytes, method: str) -> None:
        from edgewise.runtime import Runtime

        self._method = Runtime.get().load_program(file).load_method(method)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self._method.execute(list(inputs)))


@dataclass
class _Part:
    """A program with hooks: which node of the float export each is, and its output."""

    native: _Native
    positions: dict[str, int]


@dataclass
class _Watched:
    """The layers: what they are in the float export, and their sums."""

    parts: list[_Part] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    metrics: dict[str, ErrorMetrics] = field(default_factory=dict)
    values: dict[str, Counting] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    hook_error: float = 0.0

    @classmethod
    def of(cls, origin: Origin[Any], method: str, reference: Reference) -> _Watched:
        exported = origin.programs[method]
        matched = match(exported.graph, reference.program.graph)
        hooks = find_hooks(exported)
        known = [hook for hook in hooks if hook.node in matched]
        watched = cls(unmatched=[hook.node.name for hook in hooks if hook.node not in matched])
        for chosen in _chunks(known):
            hooked, positions = with_hooks(exported, chosen)
            lowered = origin.lower({**origin.programs, method: hooked}).to_executorch()
            names = [matched[hook.node].name for hook in chosen]
            watched.parts.append(
                _Part(_Native(lowered.buffer, method), dict(zip(names, positions, strict=True)))
            )
        watched.nodes = {matched[hook.node].name: matched[hook.node] for hook in known}
        watched.metrics = {name: ErrorMetrics() for name in watched.nodes}
        watched.values = {name: Counting() for name in watched.nodes}
        return watched

    @property
    def names(self) -> set[str]:
        return set(self.nodes)

    def add(self, inputs: Sequence[Any], wanted: dict[str, Any], outputs: Sequence[Any]) -> None:
        for part in self.parts:
            got = part.native.run(inputs)
            for name, position in part.positions.items():
                self.metrics[name].add(wanted[name], got[position])
                self.values[name].add(wanted[name], got[position])
            for plain, hooked in zip(outputs, got, strict=False):
                self.hook_error = max(self.hook_error, _relative(plain, hooked))

    def layers(self) -> list[Layer]:
        return [
            Layer(
                name=name,
                operator=" ".join(_operator(node) for node in fused(self.nodes[name])),
                module=module_path(fused(self.nodes[name])[0]),
                source=source_line(fused(self.nodes[name])[0]),
                sqnr_db=metric.sqnr_db,
                cosine=metric.cosine,
                max_error=metric.worst,
                added_noise=max(0.0, _less(metric.noise_to_signal, self._noise_before(name))),
                peak=self.values[name].largest / metric.rms if metric.rms else 0.0,
                histogram=self.values[name].histogram(),
            )
            for name, metric in self.metrics.items()
        ]

    def _noise_before(self, name: str) -> float:
        """The largest of the nearest layers that the node reads, directly or not."""
        noise = 0.0
        seen: set[Node] = set()
        open_nodes = list(self.nodes[name].all_input_nodes)
        while open_nodes:
            node = open_nodes.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.name in self.metrics:
                noise = max(noise, self.metrics[node.name].noise_to_signal)
            else:
                open_nodes += node.all_input_nodes
        return noise


def _chunks(hooks: Sequence[Hook]) -> list[list[Hook]]:
    chunks: list[list[Hook]] = []
    room = 0
    for hook in hooks:
        (shape,) = tensor_shapes(hook.node)
        size = 4 * torch.Size(shape).numel()
        if not chunks or len(chunks[-1]) == MOST_TAPS or size > room:
            chunks.append([])
            room = MOST_TAP_BYTES
        chunks[-1].append(hook)
        room -= size
    return chunks


def _as_exported(batch: Sequence[Any], exported: ExportedProgram) -> list[Any]:
    """The inputs in a flat list; float tensors in the type that the program takes."""
    values = {n.name: n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"}
    names = exported.graph_signature.user_inputs
    leaves = pytree.tree_leaves(tuple(batch))
    if len(leaves) != len(names):
        raise ValueError(
            f"[compare] a batch must have the program's {len(names)} inputs; got {len(leaves)}; "
            f"try a tuple with one item for each argument of forward"
        )
    for i, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
        like = values.get(str(name))
        if (
            isinstance(leaf, torch.Tensor)
            and isinstance(like, torch.Tensor)
            and leaf.is_floating_point()
            and like.is_floating_point()
        ):
            leaves[i] = leaf.to(like.dtype)
    return leaves


def _relative(plain: Any, hooked: Any) -> float:
    metric = ErrorMetrics()
    metric.add(plain, hooked)
    largest = float(torch.as_tensor(plain).double().abs().nan_to_num().max()) if metric.count else 0
    return metric.worst / largest if largest else metric.worst


def _less(one: float, other: float) -> float:
    """Infinite noise behind infinite noise adds none."""
    return 0.0 if one == other else one - other


def _operator(node: Node) -> str:
    source = node.args[0] if is_getitem(node) else node
    assert isinstance(source, Node)
    return base_name(source)


def _name(path: Any) -> str:
    return pytree.keystr(path) or "0"
