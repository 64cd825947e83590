"""Names of a program's arguments, by which a loaded file may be called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

_ARGUMENTS = "edgewise_arguments"


def argument_names(
    model: torch.nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any]
) -> list[str]:
    """In the order of the model's `forward`; [] where a call by position cannot name them all."""
    try:
        signature = inspect.signature(model.forward)
        given = signature.bind(*inputs, **keywords).arguments
    except (TypeError, ValueError):
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(signature.parameters[name].kind in several for name in given):
        return []
    return list(given)


def note_arguments(program: ExportedProgram, names: Sequence[str]) -> None:
    """Has the file say these names. Must be kept up by whatever makes a program of a program."""
    if names:
        program.graph_module.meta[_ARGUMENTS] = tuple(names)


def arguments_of(program: ExportedProgram) -> tuple[str, ...]:
    """The names that a call by position fills, in order; () if they are not known.

    Torch keeps the order of keywords that the export was given, which need not be `forward`'s: of
    several keywords none is named here unless `note_arguments` did.
    """
    noted = program.graph_module.meta.get(_ARGUMENTS)
    if noted is not None:
        return tuple(noted)
    entry = program.module_call_graph[0].signature if program.module_call_graph else None
    if entry is None or entry.in_spec is None or entry.in_spec.num_children != 2:
        return ()
    names = tuple(getattr(entry, "forward_arg_names", None) or ())
    positional, keywords = (child.num_children for child in entry.in_spec.children())
    if len(names) != positional + keywords:
        return ()
    return names if keywords == 1 else names[:positional]
