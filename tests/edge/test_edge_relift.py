"""A module of an exported program becomes one again without being traced: as torch exports it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from edgewise.edge.relift import relift


class Layers(torch.nn.Module):
    """Parameters, buffers of both kinds, a constant, and what is used twice or never."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.unused = torch.nn.Linear(2, 2)
        self.register_buffer("scale", torch.tensor([2.0]))
        self.register_buffer("shift", torch.tensor([0.5]), persistent=False)
        self.plain = torch.arange(4.0)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.Conv(input)) * self.scale + self.shift
        return x.softmax(1).permute(0, 2, 3, 1) + self.plain - self.scale


class Named(torch.nn.Module):
    """Containers in and out, a keyword, an argument that is None, an input given back."""

    def forward(
        self, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], none: None, *, by: torch.Tensor
    ) -> dict[str, Any]:
        x, more = pair
        return {"sum": x + more["x"] * by, "same": x, "number": 3, "nothing": none}


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2


class Parts(torch.nn.Module):
    """Operators with several results, sizes that are computed."""

    def forward(self, x: torch.Tensor) -> Any:
        a, b = x.split(x.shape[1] // 2, 1)
        values, places = torch.cat([a, b * x.shape[0]], 1).max(1)
        return values.reshape(x.shape[0], -1), places, x.shape[0]


class Resized(torch.nn.Module):
    """To sizes that are computed: an operator that torch defines by others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = (x.shape[2] * 2, x.shape[3] + 1)
        return torch.nn.functional.interpolate(x, size=size, mode="bilinear")


class Nothing(torch.nn.Module):
    def forward(self) -> torch.Tensor:
        return torch.ones(3) + 1


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


class ByData(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.nonzero() * 2


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


IMAGE, ROWS = torch.randn(2, 3, 5, 5), torch.randn(4, 6)
X = torch.randn(3)
CASES: dict[str, tuple[Callable[[], torch.nn.Module], tuple[Any, ...], dict[str, Any], Any]] = {
    "layers": (Layers, (IMAGE,), {}, None),
    "layers, batch": (Layers, (IMAGE,), {}, ({0: Dim("n", min=2, max=9)},)),
    "lstm": (lambda: torch.nn.LSTM(6, 5, batch_first=True), (ROWS[None],), {}, None),
    "named": (Named, ((X, {"x": X * 2}), None), {"by": X}, None),
    "counting": (Counting, (X,), {}, None),
    "parts": (Parts, (ROWS,), {}, None),
    "parts, batch": (Parts, (ROWS,), {}, ({0: Dim.AUTO},)),
    "resized": (Resized, (IMAGE,), {}, ({2: Dim.AUTO, 3: Dim.AUTO},)),
    "nothing": (Nothing, (), {}, None),
}


def exported(name: str) -> tuple[ExportedProgram, tuple[Any, ...], dict[str, Any], Any]:
    make, args, kwargs, sizes = CASES[name]
    model = make().eval()
    return (
        torch.export.export(model, args, kwargs, dynamic_shapes=sizes),
        args,
        kwargs,
        sizes,
    )


def changed(program: ExportedProgram) -> GraphModule:
    """Its module, with a node that has no value, such as passes put in."""
    module = program.module()
    assert isinstance(module, GraphModule)
    for node in reversed(module.graph.nodes):
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
            with module.graph.inserting_after(node):
                new = module.graph.call_function(torch.ops.aten.neg.default, (node,))
            new.meta["stack_trace"] = "  File 'model.py', line 3"
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)
            break
    module.recompile()
    return module


def described(program: ExportedProgram) -> list[Any]:
    """All that is compared of a program, in words."""
    numbers: dict[Node, int] = {}
    lines = []
    for node in program.graph.nodes:
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            continue
        numbers[node] = len(numbers)
        args = map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
        name = "" if node.op == "output" else node.name
        lines.append((node.op, str(node.target), name, str(args), value(node.meta.get("val"))))
    signature = program.graph_signature
    entry = program.module_call_graph[0].signature
    assert entry is not None
    return [
        *lines,
        *map(str, signature.input_specs),
        *map(str, signature.output_specs),
        sorted(program.state_dict),
        sorted(program.constants),
        sorted(map(str, program.range_constraints.values())),
        (entry.in_spec, entry.out_spec, entry.forward_arg_names),
    ]


def value(val: Any) -> Any:
    if isinstance(val, torch.Tensor):
        return str(tuple(val.shape)), val.dtype, str(val.stride())
    if isinstance(val, (list, tuple)):
        return [value(one) for one in val]
    return str(val)


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_export_gives(name: str) -> None:
    program, args, kwargs, sizes = exported(name)
    module = changed(program)
    relifted = relift(module, program)
    assert relifted is not None
    with torch.no_grad():
        again = torch.export.export(module, args, kwargs, dynamic_shapes=sizes)
    assert described(relifted) == described(again)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_module_does(name: str) -> None:
    program, args, kwargs, _ = exported(name)
    module = changed(program)
    relifted = relift(module, program)
    assert relifted is not None
    stored = io.BytesIO()
    torch.export.save(relifted, stored)
    stored.seek(0)
    loaded = torch.export.load(stored)
    wanted = module(*args, **kwargs)
    for count in module.buffers():
        count.zero_() if name == "counting" else None
    for other in (relifted.module(), relifted.run_decompositions().module(), loaded.module()):
        torch.testing.assert_close(other(*args, **kwargs), wanted)
        if name == "counting":
            relifted.state_dict["count"].zero_()


@pytest.mark.parametrize(
    ("make", "args"),
    [(Branch, (X,)), (ByData, (X,)), (Tied, (ROWS[:, :4],))],
    ids=["control flow", "sizes by data", "tied weights"],
)
def test_what_must_be_traced(make: type[torch.nn.Module], args: tuple[Any, ...]) -> None:
    program = torch.export.export(make().eval(), args)
    module = program.module()
    assert isinstance(module, GraphModule)
    assert relift(module, program) is None


def test_a_size_that_an_operator_fixes_is_told() -> None:
    """An operator that a pass puts in, and whose own rule asks an open size for its number."""
    with torch.library._scoped_library("test_relift", "FRAGMENT") as library:
        library.define("rows(Tensor x) -> Tensor")
        library.impl("rows", lambda x: x.clone(), "CPU")
        library.impl("rows", lambda x: x.new_empty(int(x.shape[0]), 4), "Meta")
        relus = torch.nn.Sequential(torch.nn.ReLU())
        size = {0: torch.export.Dim("size", max=9)}
        program = torch.export.export(relus, (torch.rand(5, 4),), dynamic_shapes=(size,))
        module = program.module()
        [relu] = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
        relu.target = torch.ops.test_relift.rows.default
        with pytest.warns(UserWarning, match=r"rows.*takes one size only.*= 5"):
            assert relift(module, program) is not None
