"""Programs of random operators: what a seed draws is the same on every machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Predicate = Callable[[torch.Tensor], bool]
Function = Callable[..., Any]
MOST_ELEMENTS = 4000
LARGEST = 1e4
_TYPES = (torch.float32, torch.int32, torch.int64)


@dataclass(frozen=True)
class Call:
    """function(program, *operands): operands by their index among the values so far."""

    name: str
    function: Function
    operands: tuple[int, ...]


class Program(nn.Module):
    """Calls one after the other; it returns what no call reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.calls: list[Call] = []
        self.results: list[int] = []

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for call in self.calls:
            values.extend(self.computed(call, values))
        return tuple(values[index] for index in self.results)

    def computed(self, call: Call, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = call.function(self, *(values[index] for index in call.operands))
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def text(self) -> str:
        calls = (f"{c.name}({', '.join(map(str, c.operands))})" for c in self.calls)
        return f"{'; '.join(calls)} -> {self.results}"


@dataclass
class Draw:
    """What operators are drawn from: values computed so far, layers and constants of the program.

    Methods that choose a value return its index, or None if none fits.
    """

    random: random.Random
    program: Program
    values: list[torch.Tensor]
    _constants: dict[str, torch.Tensor] = field(default_factory=dict)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.values[index]

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def value(self, fits: Predicate = lambda t: True) -> int | None:
        found = [index for index, value in enumerate(self.values) if fits(value)]
        return self.random.choice(found) if found else None

    def real(self, fits: Predicate = lambda t: True) -> int | None:
        return self.value(lambda t: t.is_floating_point() and fits(t))

    def layer(self, made: nn.Module) -> Function:
        index = len(self.program.layers)
        self.program.layers.append(made.eval())
        return lambda program, *operands: program.layers[index](*operands)

    def constant(self, tensor: torch.Tensor) -> Callable[[Program], torch.Tensor]:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = tensor
        self.program.register_buffer(name, tensor)
        return lambda program: getattr(program, name)


Operator = Callable[[Draw], "tuple[Function, Sequence[int]] | None"]
"""What it computes and of which values; None if no value fits."""


def drawn(
    seed: int, operators: Sequence[tuple[str, Operator]], fewest: int = 3, most: int = 14
) -> tuple[Program, tuple[torch.Tensor, ...]]:
    """A program and its inputs. Its values are finite, none is large, and each has an element."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    inputs = _inputs(chance)
    program = Program().eval()
    draw = Draw(chance, program, [value.clone() for value in inputs])
    wanted = chance.randint(fewest, most)
    for _ in range(20 * wanted):
        if len(program.calls) == wanted:
            break
        call, results = _call(draw, *chance.choice(operators))
        if call is not None:
            program.calls.append(call)
            draw.values.extend(results)
    read = {index for call in program.calls for index in call.operands}
    made = range(len(inputs), len(draw.values))
    program.results = [index for index in made if index not in read][:6]
    if chance.random() < 0.2:
        program.results.append(chance.choice(made))  # twice, or one that is read, too
    return program, inputs


def _inputs(chance: random.Random) -> tuple[torch.Tensor, ...]:
    shapes = []
    for _ in range(chance.randint(1, 3)):
        rank = chance.choice((1, 2, 3, 3, 4, 4, 4, 5))
        rest = [chance.choice((1, 2, 3, 4, 4, 6, 8, 8)) for _ in range(rank - 1)]
        shapes.append([chance.choice((1, 2, 2, 3)), *rest])
    if chance.random() < 0.5:
        shapes.append(shapes[0])
    made = [torch.randn(shape) for shape in shapes]
    if chance.random() < 0.3:
        made.append(torch.randint(0, 9, (chance.choice((1, 2)), chance.choice((3, 5)))))
    return tuple(made)


def _call(draw: Draw, name: str, operator: Operator) -> tuple[Call | None, list[torch.Tensor]]:
    """None for an operator that the values so far do not allow, or whose results go out of hand."""
    try:
        found = operator(draw)
        if found is None:
            return None, []
        call = Call(name, found[0], tuple(found[1]))
        with torch.no_grad():
            results = draw.program.computed(call, draw.values)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return None, []
    return (call, results) if all(map(_is_tame, results)) else (None, [])


def _is_tame(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in _TYPES
        and value.dim() <= 6
        and 0 < value.numel() < MOST_ELEMENTS
        and bool(value.double().isfinite().all())
        and float(value.double().abs().max()) < LARGEST
    )
