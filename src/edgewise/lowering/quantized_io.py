"""Inputs and outputs of a program that are integers: what is quantized first, or dequantized last,
is given and returned as it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from edgewise.edge.graph import call, erase_dead, is_call, is_size, op_name, source_line
from edgewise.edge.program import copy_program, output_node, placeholders, sync_outputs
from edgewise.edge.quantized_decomposed import DEQUANTIZE, Quantized, is_quantize
from edgewise.edge.spellings import views, with_twins
from edgewise.emit.scalar_types import scalar_type
from edgewise.errors import EdgewiseError

aten = torch.ops.aten
Chosen = bool | Sequence[int]
"""True for every one that can be, or by index."""


@dataclass(frozen=True)
class Border:
    """An input or output that is an integer now. index: among the program's own inputs (or
    outputs), from 0. quantized: what an integer stands for."""

    kind: str
    index: int
    quantized: Quantized


def constants_of(borders: Sequence[Border], method: str | None = None) -> dict[str, Any]:
    """Constant methods that tell a caller of the file what integers stand for, by the names of
    ExecuTorch's passes: `input0_scale`, or `forward_input0_scale` with the method's name."""
    return {
        constant_name(border.kind, border.index, key, method): value
        for border in borders
        for key, value in {
            "scale": border.quantized.scale,
            "zp": border.quantized.zero_point,
            "quant_min": border.quantized.low,
            "quant_max": border.quantized.high,
            "dtype": scalar_type(border.quantized.dtype),
        }.items()
    }


def constant_name(kind: str, index: int, key: str, method: str | None = None) -> str:
    """Of the constant method that tells `key` of a border: `input0_scale`."""
    return f"{f'{method}_' if method else ''}{kind}{index}_{key}"


def quantize_io(
    program: ExportedProgram, inputs: Chosen = False, outputs: Chosen = False
) -> tuple[ExportedProgram, list[Border]]:
    """A copy of a quantized program that takes and returns integers, and which of them.

    The tensors keep their shapes; their types become those of the quantization. EdgewiseError if
    one that is named is not quantized with one scale, or none is where all are asked for.
    """
    program = copy_program(program)
    found = [
        *_each(program.graph_signature.user_inputs, inputs, "input", _input(program)),
        *_each(program.graph_signature.user_outputs, outputs, "output", _output(program)),
    ]
    sync_outputs(program)
    erase_dead(program.graph)
    program.graph_module.recompile()
    return program, found


def _each(
    names: Sequence[Any], chosen: Chosen, kind: str, change: Callable[[int], Quantized | str]
) -> list[Border]:
    if chosen is False or chosen is None:
        return []
    every = chosen is True
    found, reasons = [], []
    for index in range(len(names)) if isinstance(chosen, bool) else chosen:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(names):
            raise EdgewiseError(
                f"[quantized_{kind}s] an index must be below the number of {kind}s, {len(names)}; "
                f"got {index!r}; try True for all that are quantized"
            )
        made = change(index)
        if isinstance(made, Quantized):
            found.append(Border(kind, index, made))
        else:
            reasons.append(f"{kind} {index}: {made}")
    if every and not names:
        reasons = [f"no {kind}"]
    if reasons and not (every and found):
        raise EdgewiseError(
            f"[quantized_{kind}s] {_RULES[kind]}; got {'; '.join(reasons)}; "
            f"try quantize='int8', or the index of one that is quantized"
        )
    return found


_RULES = {
    "input": "an input must be quantized first, with one scale, to be given as integers",
    "output": "an output must be dequantized last, with one scale, to be returned as integers",
}


def _input(program: ExportedProgram) -> Callable[[int], Quantized | str]:
    nodes, names = placeholders(program), program.graph_signature.user_inputs

    def change(index: int) -> Quantized | str:
        node = nodes.get(str(names[index]))
        if node is None or not isinstance(node.meta.get("val"), torch.Tensor):
            return "no tensor"
        found = set(_quantized_behind(node))
        reasons = [one for one in found if isinstance(one, str)]
        if reasons or len(found) != 1:
            return reasons[0] if reasons else f"quantized with {len(found)} scales"
        (quantized,) = found
        assert isinstance(quantized, Quantized)
        real = node.meta["val"]
        node.meta["val"] = real.to(quantized.dtype)
        moved = []
        for user in [*node.users]:
            if is_quantize(user):
                user.replace_all_uses_with(node)
            if is_quantize(user) or _is_check(user):
                program.graph.erase_node(user)
            elif not is_size(user):
                moved.append(user)
        if moved:  # between a dequantization and a quantization, as every backend takes it
            with program.graph.inserting_before(moved[0]):
                dequantize = call(
                    program.graph, _operator("dequantize"), (node, *_args(quantized)), node, real
                )
            for user in moved:
                user.replace_input_with(node, dequantize)
        _set_example(program, index, quantized)
        return quantized

    return change


def _quantized_behind(node: Node) -> Iterator[Quantized | str]:
    """How a value is quantized, there or where it was moved; or what else reads it."""
    readers = [user for user in node.users if not (_is_check(user) or is_size(user))]
    if not readers:
        yield "read by nothing"
    for user in readers:
        if is_quantize(user):
            yield Quantized.of(user)
        elif user.target in _MOVES and user.args[0] is node:
            yield from _quantized_behind(user)
        else:
            yield f"read by {_named(user)}"


def _output(program: ExportedProgram) -> Callable[[int], Quantized | str]:
    names = program.graph_signature.user_outputs
    output = output_node(program.graph)

    def change(index: int) -> Quantized | str:
        results = list(output.args[0])  # type: ignore[arg-type]
        at = len(results) - len(names) + index  # behind what the program writes to its state
        result = source = results[at]
        if not isinstance(result, Node):
            return "no tensor"
        while source.target in _MOVES and isinstance(source.args[0], Node):
            source = source.args[0]
        if not is_call(source) or op_name(source) != DEQUANTIZE:
            return f"made by {_named(source)}"
        quantized = Quantized.of(source)
        if source is result:
            results[at] = source.args[0]
        else:
            with program.graph.inserting_before(output):
                value = result.meta["val"].to(quantized.dtype)
                args = (result, *_args(quantized))
                results[at] = call(program.graph, _operator("quantize"), args, result, value)
        output.args = (tuple(results),)
        return quantized

    return change


_MOVES = views() | with_twins(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.squeeze.default,
    aten.squeeze.dims,
)
"""Operators that move elements, or choose some, and compute nothing."""


def _operator(name: str) -> Any:
    """PT2E's, which are there once a program has any."""
    return getattr(torch.ops.quantized_decomposed, f"{name}_per_tensor").default


def _args(quantized: Quantized) -> tuple[Any, ...]:
    one = quantized
    return one.scale, one.zero_point, one.low, one.high, one.dtype


def _is_check(node: Node) -> bool:
    return node.op == "call_function" and "_assert" in str(node.target)


def _named(node: Node) -> str:
    line = source_line(node)
    return f"{op_name(node) if node.op == 'call_function' else node.op}{f' ({line})' * bool(line)}"


def _set_example(program: ExportedProgram, index: int, quantized: Quantized) -> None:
    """The inputs that the program was exported with, if it holds them, with this one quantized."""
    given = program.example_inputs
    if given is None:
        return
    leaves, spec = pytree.tree_flatten(given)
    if index < len(leaves) and isinstance(leaves[index], torch.Tensor):
        leaves[index] = _operator("quantize")(leaves[index], *_args(quantized))
        program._example_inputs = pytree.tree_unflatten(leaves, spec)
