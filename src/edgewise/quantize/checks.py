"""What cannot be quantized: weights and activations that are not finite."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.node_errors import at_node
from edgewise.quantize._torchao import FixedQParamsObserver, ObserverBase


def check_weights(model: torch.nn.Module, keep_float: Sequence[str] = ()) -> None:
    """ValueError for a parameter with NaN or infinity in it: no scale covers it.

    keep_float: modules whose parameters are not looked at.
    """
    for name, value in model.named_parameters():
        kept = any(name.startswith(f"{module}.") for module in keep_float)
        if kept or not value.is_floating_point() or bool(value.detach().isfinite().all()):
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
    """While calibrating: ValueError where an observer is shown NaN or infinity, with the node.

    Afterwards a warning for results of which a fixed scale (of sigmoid, tanh, softmax) leaves
    nothing: none was as large as a step of it.
    """
    hooks = []
    seen: dict[Node, tuple[float, float]] = {}
    for node in prepared.graph.nodes:
        observer = _observer(prepared, node)
        source = node.args[0] if node.args else None
        if observer is None or not isinstance(source, Node):
            continue

        def check(
            module: torch.nn.Module, given: tuple[torch.Tensor, ...], source: Node = source
        ) -> None:
            value = given[0]
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise ValueError(
                    f"{at_node(source)} calibration must show finite values; got NaN or infinity; "
                    f"try other calibration data, or keep_float for the module"
                )

        def note(
            module: torch.nn.Module, given: tuple[torch.Tensor, ...], source: Node = source
        ) -> None:
            most = float(given[0].detach().abs().max()) if given[0].numel() else 0.0
            seen[source] = max(most, seen.get(source, (0.0,))[0]), float(module.scale)  # type: ignore[arg-type]

        hooks.append(observer.register_forward_pre_hook(check))
        if isinstance(observer, FixedQParamsObserver):
            hooks.append(observer.register_forward_pre_hook(note))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    for source, (most, step) in seen.items():
        if 0 < most < step:
            warnings.warn(
                f"{at_node(source)} results must be larger than a step of their fixed scale, "
                f"{step:g}, to be seen in integers; got none above {most:.2g} in calibration; try "
                f"keep_float for the module",
                stacklevel=2,
            )


def _observer(prepared: GraphModule, node: Node) -> torch.nn.Module | None:
    if node.op != "call_module":
        return None
    module = prepared.get_submodule(str(node.target))
    return module if isinstance(module, ObserverBase) else None
