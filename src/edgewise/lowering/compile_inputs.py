"""What a caller hands to `edgewise.compile`: a model and its example inputs, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Call:
    """Arguments by position and by name."""

    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


def check_order(model: Any, example_inputs: Any) -> None:
    """TypeError if the two were given the other way round."""
    swapped = isinstance(example_inputs, (torch.nn.Module, ExportedProgram))
    if swapped and not isinstance(model, (torch.nn.Module, ExportedProgram)):
        raise TypeError(
            f"[compile] the model comes first; got {type(model).__name__}, then "
            f"{type(example_inputs).__name__}; try compile(model, example_inputs)"
        )


def _check_device(model: torch.nn.Module, call: Call) -> None:
    leaves = pytree.tree_leaves((call.inputs, dict(call.keywords)))
    for what, tensors, hint in (
        ("the model", [*model.parameters(), *model.buffers()], "model.cpu()"),
        ("example_inputs", [x for x in leaves if isinstance(x, torch.Tensor)], "x.cpu()"),
    ):
        elsewhere = next((str(one.device) for one in tensors if one.device.type != "cpu"), None)
        if elsewhere == "meta":
            hint = "real tensors: there are no values on this device"
        if elsewhere is not None:
            raise ValueError(
                f"[compile] {what} must be in the CPU's memory; got {elsewhere}; try {hint}"
            )


def checked_model(model: Any, call: Call | None) -> tuple[torch.nn.Module, Call]:
    """Both, if torch can export the model with these inputs. TypeError or ValueError if not."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"[compile] model must be a torch.nn.Module or an ExportedProgram; "
            f"got {type(model).__name__}{_model_hint(model)}"
        )
    if call is None:
        raise TypeError(
            "[compile] example_inputs must be given for a module; got None; try a tuple of "
            "tensors, one for each argument of forward, or example_kwargs={name: tensor}"
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            f"[compile] model must be Python's module, which torch.export can trace; got "
            f"{type(model).__name__} of torch.jit; try the torch.nn.Module that it was made from"
        )
    _check_device(model, call)
    return model, call


def _model_hint(model: Any) -> str:
    if isinstance(model, type):
        return f"; try an instance, such as {model.__name__}(...)"
    if isinstance(model, Mapping):
        return "; try the module, after model.load_state_dict(...)"
    if isinstance(model, (str, Path)):
        if str(model).endswith(".pt2"):
            return f"; try torch.export.load({str(model)!r})"
        if not Path(model).exists():
            return "; there is no such folder; try the module itself, with its weights loaded"
        return "; try the module itself, with its weights loaded"
    if callable(model):
        return "; try a torch.nn.Module whose forward calls it"
    return ""


def checked_call(inputs: Any, keywords: Any) -> Call | None:
    """None if nothing was given. TypeError for what torch does not export."""
    if keywords is None:
        found = _checked_inputs(inputs)
        return None if found is None else Call(found)
    rule = "[compile] example_kwargs must be a dict of arguments by name"
    if not isinstance(keywords, Mapping) or not all(isinstance(name, str) for name in keywords):
        raise TypeError(f"{rule}; got {type(keywords).__name__}; try {{'x': torch.randn(1, 3)}}")
    _check_no_arrays(dict(keywords), "example_kwargs")
    return Call(_checked_inputs(inputs) or (), dict(keywords))


def _checked_inputs(inputs: Any) -> tuple[Any, ...] | None:
    """As a tuple; a tensor alone is the only input. TypeError for what torch does not export."""
    if inputs is None:
        return None
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    rule = "[compile] example_inputs must be a tuple with one item for each argument of forward"
    if isinstance(inputs, Mapping):
        raise TypeError(
            f"{rule}; got {type(inputs).__name__}; try example_kwargs=inputs, or (inputs,) if "
            f"forward takes it as one argument"
        )
    if isinstance(inputs, np.ndarray):
        raise TypeError(f"{rule}; got ndarray; try (torch.from_numpy(x),)")
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise TypeError(f"{rule}; got {type(inputs).__name__}; try (torch.randn(1, 3, 224, 224),)")
    _check_no_arrays(tuple(inputs), "example_inputs")
    return tuple(inputs)


def _check_no_arrays(inputs: Any, role: str) -> None:
    for path, leaf in pytree.tree_flatten_with_path(inputs)[0]:
        if isinstance(leaf, np.ndarray):
            index = getattr(path[0], "idx", None) if len(path) == 1 else None
            where = f"input {index}" if index is not None else role + pytree.keystr(path)
            raise TypeError(
                f"[compile] {role} must be tensors, or numbers; got ndarray for {where}; "
                f"try torch.from_numpy"
            )
