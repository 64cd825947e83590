"""How much noise the outputs lose if a module is kept in float, without lowering it anew.

These are simulations, to choose what is worth being lowered and measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from edgewise.accuracy.metrics import ErrorMetrics
from edgewise.edge.export import evaluating
from edgewise.quantize._torchao import Q_ANNOTATION_KEY, PlaceholderObserver, Quantizer
from edgewise.quantize.flow import configured, prepare, with_integer_weights
from edgewise.quantize.methods.observed import rounded
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.schemes import Scheme
from edgewise.quantize.selection import module_stack

Batches = Sequence[tuple[Any, ...]]


class Simulation(Protocol):
    """A quantized model in which modules can be switched to float."""

    candidates: list[str]
    """Names of the leaf modules that are quantized."""

    def noise(self, keep_float: Sequence[str]) -> float:
        """Noise by signal of the outputs, the worst output's, over the batches."""


def simulate(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    scheme: Scheme,
    quantizer: Callable[[], TableQuantizer],
    batches: Batches,
    calibration: Iterable[Any] | None,
    skip: Sequence[str] = (),
    keywords: Mapping[str, Any] | None = None,
) -> Simulation:
    """skip: modules that are float in any case. keywords: example inputs by name, which stand
    behind the others in batches; for schemes of PT2E."""
    if scheme.uses_pt2e:
        return _Observed(
            model, example_inputs, scheme, quantizer, batches, calibration, skip, keywords
        )
    return _Swapped(model, scheme, batches, skip)


class _Observed:
    """The prepared graph, in which observers quantize with what they have seen."""

    def __init__(
        self,
        model: torch.nn.Module,
        example_inputs: Sequence[Any],
        scheme: Scheme,
        quantizer: Callable[[], TableQuantizer],
        batches: Batches,
        calibration: Iterable[Any] | None,
        skip: Sequence[str],
        keywords: Mapping[str, Any] | None,
    ) -> None:
        self._quantizer, self._scheme, self._skip = quantizer, scheme, skip
        spy = _Spy(self._configured(()))
        self._graph, _ = prepare(
            model,
            example_inputs,
            scheme,
            spy,
            calibration=calibration,
            progress=False,
            example_kwargs=keywords,
        )
        self._parameters: dict[int, Any] = {}
        assert spy.seen is not None
        self._plain = spy.seen
        self._batches = batches
        self._all = self._quantized(())
        self._wanted = [self._run(batch, self._all) for batch in batches]
        annotated = [n for n in self._plain.graph.nodes if Q_ANNOTATION_KEY in n.meta]
        self.candidates = _leaves(model, annotated)

    def noise(self, keep_float: Sequence[str]) -> float:
        off = self._all - self._quantized(keep_float)
        return _noise(self._wanted, (self._run(batch, off) for batch in self._batches))

    def _configured(self, keep_float: Sequence[str]) -> TableQuantizer:
        return configured(self._quantizer, self._scheme, [*self._skip, *keep_float])

    def _quantized(self, keep_float: Sequence[str]) -> set[str]:
        """Names of the values that are quantized if these modules are not."""
        for node in self._plain.graph.nodes:
            node.meta.pop(Q_ANNOTATION_KEY, None)
        self._configured(keep_float).annotate(self._plain)
        found = set()
        for node in self._plain.graph.nodes:
            annotation = node.meta.get(Q_ANNOTATION_KEY)
            if annotation is None:
                continue
            found |= {n.name for n, spec in annotation.input_qspec_map.items() if spec}
            if annotation.output_qspec is not None:
                found.add(node.name)
        return found

    def _run(self, batch: Sequence[Any], off: set[str]) -> list[Any]:
        with torch.no_grad():
            run = _Quantizing(self._graph, off, self._parameters).run
            leaves = pytree.tree_leaves(tuple(batch))
            return pytree.tree_leaves(run(*leaves, enable_io_processing=False))


class _Spy(Quantizer):  # type: ignore[misc]
    """Keeps the graph as it is when it is annotated, before observers are put in."""

    def __init__(self, quantizer: Quantizer) -> None:
        super().__init__()
        self._quantizer = quantizer
        self.seen: GraphModule | None = None

    def annotate(self, model: GraphModule) -> GraphModule:
        graph = Graph()
        graph.output(graph.graph_copy(model.graph, {}))
        self.seen = GraphModule(model, graph)
        result: GraphModule = self._quantizer.annotate(model)
        return result

    def validate(self, model: GraphModule) -> None:
        self._quantizer.validate(model)


class _Quantizing(Interpreter):
    """Observers round to their integers; those of the values in `off` do nothing.

    known: scales and zero points by observer, as those of a histogram take long to find.
    """

    def __init__(self, module: GraphModule, off: set[str], known: dict[int, Any]) -> None:
        super().__init__(module)
        self._off = off
        self._known = known

    def run_node(self, n: Node) -> Any:
        if n.op != "call_module":
            return super().run_node(n)
        observer: Any = self.module.get_submodule(str(n.target))
        if not hasattr(observer, "calculate_qparams"):
            return super().run_node(n)
        source = n.all_input_nodes[0]
        value = self.env[source]
        while source.op == "call_module":
            source = source.all_input_nodes[0]
        if source.name in self._off:
            return value
        if isinstance(observer, PlaceholderObserver):
            return _rounded_by_row(value, observer.quant_min, observer.quant_max)
        if id(observer) not in self._known:
            self._known[id(observer)] = observer.calculate_qparams()
        return rounded(value, observer, *self._known[id(observer)])


def _rounded_by_row(value: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """With the range of each row (of an image: each image), as it is done at run time."""
    dims = tuple(range(1, 4)) if value.dim() == 4 else (-1,)
    least = value.amin(dims, keepdim=True).clamp(max=0)
    most = value.amax(dims, keepdim=True).clamp(min=0)
    scale = ((most - least) / (high - low)).clamp(min=torch.finfo(torch.float32).eps)
    zero_point = (low - least / scale).round()
    return ((value / scale).round() + zero_point).clamp(low, high).sub(zero_point) * scale


class _Swapped:
    """A copy whose modules hold integers, and the float ones that replace them."""

    def __init__(
        self, model: torch.nn.Module, scheme: Scheme, batches: Batches, skip: Sequence[str]
    ) -> None:
        self._model = model
        self._quantized = with_integer_weights(model, scheme, skip)
        self._batches = batches
        self.candidates = [
            name
            for name, module in self._quantized.named_modules()
            if name and any(type(p) is not torch.nn.Parameter for p in module.parameters(False))
        ]
        with evaluating(model):
            self._wanted = self._run(model)

    def noise(self, keep_float: Sequence[str]) -> float:
        swapped = {name: self._quantized.get_submodule(name) for name in keep_float}
        try:
            for name in keep_float:
                self._quantized.set_submodule(name, self._model.get_submodule(name))
            return _noise(self._wanted, self._run(self._quantized))
        finally:
            for name, module in swapped.items():
                self._quantized.set_submodule(name, module)

    def _run(self, model: torch.nn.Module) -> list[list[Any]]:
        with torch.no_grad():
            return [pytree.tree_leaves(model(*batch)) for batch in self._batches]


def _leaves(model: torch.nn.Module, nodes: Iterable[Node]) -> list[str]:
    """Modules without children that the nodes come from."""
    modules = dict(model.named_modules())
    names = dict.fromkeys(stack[-1][0] for n in nodes if (stack := module_stack(n)))
    return [n for n in names if n and n in modules and not list(modules[n].children())]


def _noise(wanted: Iterable[list[Any]], got: Iterable[list[Any]]) -> float:
    metrics: dict[int, ErrorMetrics] = {}
    for expected, found in zip(wanted, got, strict=True):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            if isinstance(one, torch.Tensor):
                metrics.setdefault(index, ErrorMetrics()).add(one, other)
    return max((metric.noise_to_signal for metric in metrics.values()), default=0.0)
