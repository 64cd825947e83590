"""Small questions that every pass asks about fx nodes."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import sympy
import torch
from torch._functorch import predispatch
from torch.fx import Graph, Node

Dim: TypeAlias = "int | sympy.Expr"
"""A size: a number, or an expression of the program's symbols."""

AUTO_FUNCTIONALIZED = torch.ops.higher_order.auto_functionalized
"""A call (operator, arguments by name) of an operator that writes some of its arguments: computes
its results, then new tensors for the written arguments."""

# What `torch.vmap` leaves in the graph of an export: calls that nobody uses, by which levels begin
# and end that other calls name.
_VMAP = ("lazy_load_decompositions", "_vmap_increment_nesting", "_vmap_decrement_nesting")
for _name in _VMAP:
    if (_function := getattr(predispatch, _name, None)) is not None:
        torch.fx.node.has_side_effect(_function)

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_GENERATED = ("<eval_with_key>", "<frozen", "<string>")


def is_call(node: Node) -> bool:
    return node.op == "call_function"


def op_name(node: Node) -> str:
    """`aten.add.Tensor` for an operator, the function's name for anything else callable."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if callable(target):
        return str(getattr(target, "__name__", target))
    return f"{node.op} {target}"


def value_of(node: Node) -> Any:
    """What the node computes, as a fake tensor, a number, a SymInt, or a tuple of these."""
    return node.meta.get("val")


def is_composite(target: torch._ops.OpOverload) -> bool:
    """Whether torch defines the operator by others (CompositeImplicitAutograd)."""
    name = f"{target._schema.name}.{target._schema.overload_name}".removesuffix(".")
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def fake(node: Node) -> torch.Tensor:
    """The node's fake tensor; only for nodes that compute one tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{node.name} ({op_name(node)}) computes no tensor but {type(value)}")
    return value


def arguments(node: Node) -> dict[str, Any]:
    """The call's arguments by name, schema defaults filled in."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    named: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if not argument.kwarg_only and position < len(node.args):
            named[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            named[argument.name] = node.kwargs[argument.name]
        elif argument.has_default_value():
            named[argument.name] = _default(argument)
        else:
            named[argument.name] = None
    return named


def _default(argument: Any) -> Any:
    """The schema's default; of a memory format that is a number, not PyTorch's object."""
    if argument.name == "memory_format" and argument.default_value == 0:
        return torch.contiguous_format
    return argument.default_value


def tensor_shapes(node: Node) -> list[list[int]]:
    """Shapes of the tensors that the node computes, as numbers (see `size_hint`)."""
    value = value_of(node)
    values = value if isinstance(value, (tuple, list)) else [value]
    return [[size_hint(s) for s in v.shape] for v in values if isinstance(v, torch.Tensor)]


def dtype_name(dtype: torch.dtype) -> str:
    """Without its module: "float32"."""
    return str(dtype).removeprefix("torch.")


def tensor_types(node: Node) -> list[str]:
    """Data types of the tensors that the node computes: "float32"."""
    return [dtype_name(value.dtype) for value in tensors_of(node)]


def is_getitem(node: Node) -> bool:
    return is_call(node) and node.target is operator.getitem


def source_line(node: Node) -> str:
    """`file.py:12` that the node comes from, or the empty string.

    The innermost line of the model, be it the user's own or a library's, outside of PyTorch.
    Of an installed library the path starts at the package: `transformers/models/vit/...`.
    """
    trace = node.meta.get("stack_trace")
    if not trace:
        return ""
    frames = _FRAME.findall(trace)
    for path, line in reversed(frames):
        inside = _PACKAGES.sub("", path)
        if path.startswith((_TORCH, *_GENERATED)) or inside.startswith("torch/"):
            continue
        return f"{inside}:{line}"
    if not frames or frames[-1][0].startswith(_GENERATED):
        return ""
    return f"{frames[-1][0]}:{frames[-1][1]}"


def module_path(node: Node) -> str:
    """Qualified name of the module that the node comes from: `features.0.0`."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    return str(list(stack.values())[-1][0]).removeprefix("L['self'].").removeprefix("L['self']")


def replace(node: Node, by: Node) -> None:
    """Replaces the node by `by` and erases it."""
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


REPORTED_AS = "reported_as"
"""Key of `node.meta`: the node's name in the delegation report, handed on to what it becomes."""

_PROVENANCE = (
    REPORTED_AS,
    "stack_trace",
    "nn_module_stack",
    "source_fn_stack",
    "torch_fn",
    "custom",
    "decomposed_from",
)


def inherit_meta(new: Node, old: Node) -> None:
    """Gives a node that a pass made the provenance of the one that it stands for."""
    for key in _PROVENANCE:
        if key in old.meta and key not in new.meta:
            new.meta[key] = old.meta[key]


def call(graph: Graph, op: Any, args: Sequence[Any], like: Node, val: Any, **kwargs: Any) -> Node:
    """Adds a call at the graph's insertion point with `like`'s provenance and value `val`."""
    node = graph.call_function(op, tuple(args), kwargs)
    inherit_meta(node, like)
    node.meta["val"] = val
    return node


def calls(graph: Graph) -> Iterator[Node]:
    """The call_function nodes, from a snapshot: safe against edits of the graph."""
    return iter([node for node in graph.nodes if node.op == "call_function"])


def erase_dead(graph: Graph) -> bool:
    """Erases pure calls that nobody uses, in one backward sweep."""
    changed = False
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users and not node.is_impure():
            graph.erase_node(node)
            changed = True
    return changed


def size_hint(size: Any) -> int:
    """The size; of a symbolic one what it was in the export, 0 if only data decides it.

    Not `int(size)`: that would fix the symbol to this number, in the user's program too.
    """
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return 0 if hint is None else int(hint)


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether the shapes are equal whatever the symbols in them are.

    Not `a == b`: where that holds for the export's example it would be made a rule.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(a) == len(b) and all(
        x == y if isinstance(x, int) and isinstance(y, int) else statically_known_true(x == y)
        for x, y in zip(a, b, strict=True)
    )


def dims_of(shape: Sequence[Any]) -> tuple[Dim, ...]:
    """A fake tensor's sizes. Expressions compare by structure: no guard is made by `==`."""
    found: list[Dim] = []
    for size in shape:
        expression = size if isinstance(size, int) else size.node.expr
        found.append(int(expression) if isinstance(expression, sympy.Integer) else expression)
    return tuple(found)


def shape_of(node: Node) -> tuple[Dim, ...]:
    """Sizes of the one tensor that the node computes."""
    return dims_of(fake(node).shape)


def is_size(node: Node) -> bool:
    """Whether the node computes a symbolic number: a size, or arithmetic on sizes."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def tensors_of(node: Node) -> list[torch.Tensor]:
    """The fake tensors that the node computes."""
    value = value_of(node)
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def is_complex(node: Node) -> bool:
    """Whether the node computes complex numbers."""
    return any(t.is_complex() for t in tensors_of(node))


def is_spectral(node: Node) -> bool:
    """Whether the call computes with complex numbers, even from real ones to real ones."""
    return op_name(node).startswith(("aten.fft_", "aten.stft.", "aten.istft."))


def may_be_empty(tensor: torch.Tensor) -> bool:
    """Whether only data tells that the tensor has elements: it has a size from 0 on."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    size: Any
    for size in tensor.shape:
        if isinstance(size, torch.SymInt) and free_unbacked_symbols(size.node.expr):
            lower: Any = size.node.shape_env.bound_sympy(size.node.expr).lower
            if not (lower.is_number and lower >= 1):
                return True
    return False


def is_static(shape: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in shape)
