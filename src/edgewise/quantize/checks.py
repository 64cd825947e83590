"""What cannot be quantized: weights and activations that are not finite."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import is_static
from edgewise.edge.node_errors import at_node
from edgewise.quantize._torchao import FixedQParamsObserver, ObserverBase


def check_weights(model: torch.nn.Module, keep_float: Sequence[str] = ()) -> None:
    """ValueError for a parameter with NaN or infinity in it: no scale covers it.

    keep_float: modules whose parameters are not looked at.
    """
    for name, value in model.named_parameters():
        kept = any(name.startswith(f"{module}.") for module in keep_float)
        if kept or not value.is_floating_point() or is_finite(value):
            continue
        module = _module(name)
        raise ValueError(
            f"[quantize] weights must be finite; got NaN or infinity in {name} "
            f"{list(value.shape)}; try weights that are"
            f"{f', or keep_float=[{module!r}]' if module else ''}"
        )


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


@contextmanager
def watched_activations(prepared: GraphModule) -> Iterator[None]:
    """While calibrating: ValueError where an observer is shown NaN or infinity, or behind it where
    one was shown no elements at all, with the node.

    Afterwards a warning for results of which a fixed scale (of sigmoid, tanh, softmax) leaves
    nothing: none was as large as a step of it.
    """
    hooks = []
    empty: dict[Node, bool] = {}
    seen: dict[Node, tuple[float, float]] = {}
    for observer, sources in _observed(prepared).items():
        # One that several values share is called once for each of them, in the graph's order.
        shown = cycle(sources)

        def look(
            module: torch.nn.Module,
            given: tuple[torch.Tensor, ...],
            shown: Iterator[Node] = shown,
        ) -> None:
            source, value = next(shown), given[0]
            if _is_chosen_by_data(source):
                empty[source] = value.numel() == 0 and empty.get(source, True)
            if value.is_floating_point() and not is_finite(value):
                raise ValueError(
                    f"{at_node(source)} calibration must show finite values; got NaN or infinity; "
                    f"try other calibration data, or keep_float for the module"
                )
            if isinstance(module, FixedQParamsObserver):
                most = float(value.detach().abs().max()) if value.numel() else 0.0
                seen[source] = max(most, seen.get(source, (0.0,))[0]), float(module.scale)

        hooks.append(observer.register_forward_pre_hook(look))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    for source in (node for node, is_empty in empty.items() if is_empty):
        raise ValueError(
            f"{at_node(source)} calibration must show values; got no elements in any batch; try "
            f"batches of which something is left here, or keep_float for the module"
        )
    for source, (most, step) in seen.items():
        if 0 < most < step:
            warnings.warn(
                f"{at_node(source)} results must be larger than a step of their fixed scale, "
                f"{step:g}, to be seen in integers; got none above {most:.2g} in calibration; try "
                f"keep_float for the module",
                stacklevel=2,
            )


def _is_chosen_by_data(node: Node) -> bool:
    """Whether it depends on the data how many elements a value has."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not is_static(value.shape)


def is_finite(value: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite, which mostly their sum tells in one pass."""
    value = value.detach()
    return bool(value.sum().isfinite()) or bool(value.isfinite().all())


def _observed(prepared: GraphModule) -> dict[torch.nn.Module, list[Node]]:
    """By observer, the nodes whose values it is shown, in the order in which it is called."""
    found: dict[torch.nn.Module, list[Node]] = {}
    for node in prepared.graph.nodes:
        observer = _observer(prepared, node)
        if observer is not None and node.args and isinstance(node.args[0], Node):
            found.setdefault(observer, []).append(node.args[0])
    return found


def _observer(prepared: GraphModule, node: Node) -> torch.nn.Module | None:
    if node.op != "call_module":
        return None
    module = prepared.get_submodule(str(node.target))
    return module if isinstance(module, ObserverBase) else None
