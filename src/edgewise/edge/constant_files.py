"""Which data file a constant belongs into, as its placeholder is marked.

The mark is `meta["custom"]["delegate_constant_tag"]`, the name of a file, as ExecuTorch's
`delegate_external_constants_pass_unlifted` gives it. torch keeps `custom` of constants while a
program is exported again, but for modules with numbers for names (`Sequential`); that of the graph
module it keeps always. So marks stand there, too, by the constants' names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

MARK = "delegate_constant_tag"
_CUSTOM = "custom"


def mark_constants(module: torch.nn.Module, choose: Callable[[Node], str | None]) -> bool:
    """Marks the constants of an unlifted module (`exported_program.module()`) for data files.

    choose: the name of the file for a constant's `get_attr` node, without ".ptd"; None: it stays in
    the program. Returns whether there are constants. Once the module is exported again and lowered,
    what delegates pack of the constants lies in these files.
    """
    found = False
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            if node.op != "get_attr":
                continue
            found, file = True, choose(node)
            node.meta.setdefault(_CUSTOM, {})[MARK] = file
            of_module: dict[str, Any] = part.meta  # type: ignore[assignment]
            of_module.setdefault(_CUSTOM, {}).setdefault(MARK, {})[str(node.target)] = file
    return found


def file_of(node: Node) -> str | None:
    """The name of the file that a constant is marked for."""
    custom = node.meta.get(_CUSTOM)
    return custom.get(MARK) if isinstance(custom, dict) else None


def restore_marks(program: ExportedProgram, exported: ExportedProgram) -> None:
    """Marks the edge program's constants as the exported program's graph module says, in place."""
    custom = exported.graph_module.meta.get(_CUSTOM)
    files = custom.get(MARK) if isinstance(custom, dict) else None
    if not isinstance(files, dict):
        return
    targets = {getattr(s.arg, "name", ""): s.target for s in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        file = files.get(targets.get(node.name)) if node.op == "placeholder" else None
        if file is not None:
            node.meta[_CUSTOM] = {**(node.meta.get(_CUSTOM) or {}), MARK: file}
