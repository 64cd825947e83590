"""What a quantizer says about a model: which values get an observer, and which share one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.backends.xnnpack.lowering.quantizer import XNNPACKQuantizer
from edgewise.quantize import get_symmetric_quantization_config


def config(**options: Any) -> Any:
    return get_symmetric_quantization_config(**{"is_per_channel": True, **options})


def prepare(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    quantizer: XNNPACKQuantizer | None = None,
    *,
    qat: bool = False,
) -> GraphModule:
    """The export with observers; by default everything is quantized statically."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

    quantizer = quantizer or XNNPACKQuantizer().set_global(config(is_qat=qat))
    graph = torch.export.export(model.train() if qat else model.eval(), inputs).module()
    return prepare_qat_pt2e(graph, quantizer) if qat else prepare_pt2e(graph, quantizer)


def convert(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    quantizer: XNNPACKQuantizer | None = None,
) -> GraphModule:
    """Prepared, calibrated on `inputs`, and converted."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    prepared = prepare(model, inputs, quantizer)
    with torch.no_grad():
        prepared(*inputs)
    return convert_pt2e(prepared)


def is_observer(graph: GraphModule, node: Any) -> bool:
    if not isinstance(node, Node) or node.op != "call_module":
        return False
    return hasattr(graph.get_submodule(str(node.target)), "calculate_qparams")


def operator(node: Node) -> str:
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.op
    return node.target._schema.name.split("::")[-1]


def observed(graph: GraphModule) -> dict[str, str]:
    """By operator: a letter for each observed argument, `>` and `o` if its result is observed.

    Letters: `w` for a parameter or buffer, `i` for anything else. The operators that have no
    observer at all are left out; of an operator called twice both are joined by a comma.
    """
    found: dict[str, str] = {}
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        letters = "".join(
            "w" if _is_constant(source) else "i"
            for source in node.all_input_nodes
            if is_observer(graph, source)
        )
        result = "o" if any(is_observer(graph, user) for user in node.users) else ""
        if letters or result:
            name = operator(node)
            text = f"{letters}>{result}"
            found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _is_constant(observer: Node) -> bool:
    source = observer.all_input_nodes[0]
    while source.op == "call_module":
        source = source.all_input_nodes[0]
    return source.op == "get_attr"


def observers(graph: GraphModule, name: str) -> tuple[list[Any], Any]:
    """The observers of the arguments and of the result of the only operator of this name."""
    (node,) = [n for n in graph.graph.nodes if operator(n) == name]
    before = [
        graph.get_submodule(str(n.target)) for n in node.all_input_nodes if is_observer(graph, n)
    ]
    after = [graph.get_submodule(str(n.target)) for n in node.users if is_observer(graph, n)]
    return before, after[0] if after else None


def sqnr_db(wanted: torch.Tensor, got: torch.Tensor) -> float:
    noise = (wanted.double() - got.double()).square().sum()
    return float(10 * torch.log10(wanted.double().square().sum() / noise))


class Layers(torch.nn.Module):
    """Layers, and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any], **layers: torch.nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.names = list(layers)
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *(getattr(self, name) for name in self.names))
