"""Models between tasks: made once by the user's function, then read from the store."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewise.scale.fingerprint import of_module
from edgewise.scale.sources import content, is_exported, made_of, resolve
from edgewise.scale.store import Store
from edgewise.scale.task import Context, digest

_FOLDER = "models"


def save(arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Makes the model and keeps it; what later stages are told of it.

    arguments: `source`, `arguments` of a function, `inputs` (a source, or None).
    """
    source = arguments["source"]
    store = Store(context.store)
    if is_exported(source):
        file = Path(context.root, source).read_bytes()
        program = torch.export.load(io.BytesIO(file))
        if program.example_inputs is None:
            raise ValueError(
                f"[{source}] an exported program must hold its example inputs; got none"
            )
        count = sum(p.numel() for p in program.parameters())
        return {
            "model": digest(file),
            "file": store.add(_FOLDER, file, ".pt2"),
            "source": source,
            "parameters": count,
        }
    module, inputs = _made(arguments, context)
    code = content(source, context.root)
    return keep(store, module, inputs, code, source=source, arguments=arguments["arguments"])


def keep(
    store: Store, module: torch.nn.Module, inputs: Any, code: str = "", **origin: Any
) -> dict[str, Any]:
    """Writes a module and its inputs. Where it cannot be pickled, its values alone: `origin`
    says how it is made again."""
    found = of_module(module, inputs, code)
    buffer = io.BytesIO()
    try:
        torch.save({"module": module, "inputs": inputs}, buffer)
    except (pickle.PicklingError, AttributeError, TypeError):
        if not origin:
            raise
        buffer = io.BytesIO()
        torch.save({"state": module.state_dict(), "inputs": inputs}, buffer)
    name = f"{_FOLDER}/{found}.pt"
    if not store.exists(name):
        store.write(name, buffer.getvalue())
    parameters = sum(p.numel() for p in module.parameters())
    return {"model": found, "file": name, "parameters": parameters, **origin}


def restore(model: Mapping[str, Any], context: Context) -> tuple[Any, tuple[Any, ...]]:
    """The module or exported program, and its example inputs; `model`: what `save` returned."""
    file = io.BytesIO(Store(context.store).read(model["file"]))
    if model["file"].endswith(".pt2"):
        program: ExportedProgram = torch.export.load(file)
        assert program.example_inputs is not None
        return program, tuple(program.example_inputs[0])
    source = model.get("source", "")
    if source:
        resolve(source, context.root)  # pickles find their classes
    held = torch.load(file, weights_only=False)
    if "module" in held:
        return held["module"], held["inputs"]
    module = made_of(source, model["arguments"], context.root)
    module = module[0] if isinstance(module, tuple) else module
    module.load_state_dict(held["state"])
    return module.eval(), held["inputs"]


def _made(
    arguments: Mapping[str, Any], context: Context
) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    source, inputs_from = arguments["source"], arguments.get("inputs")
    made = made_of(source, arguments["arguments"], context.root)
    inputs: Any = None
    if isinstance(made, tuple) and len(made) == 2:
        made, inputs = made
    if not isinstance(made, torch.nn.Module):
        raise TypeError(
            f"[{source}] a model's function must return a torch.nn.Module, or one and a tuple "
            f"of its inputs; got {type(made).__name__}"
        )
    if inputs_from:
        inputs = made_of(inputs_from, {}, context.root)
    if inputs is None:
        raise ValueError(
            f"[{source}] example inputs must be known; got none; try `inputs: file.py:function` "
            f"in the plan, or return (model, inputs)"
        )
    return made.eval(), tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
