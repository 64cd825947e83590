"""LSTM and GRU: the steps of a sequence of static length, one after the other.

What the input contributes to the gates is one fully connected node for all steps. A step
is one more for the hidden state, and elementwise nodes on small tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import STATES, WIDE_GATES
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import Constraint, Lowering, Query, constant, define
from edgewise.edge.graph import shape_of
from edgewise.edge.sizes import shown

aten = torch.ops.aten
Args = dict[str, Any]

MOST_STEPS = 1024

State = tuple[Ref, ...]
"""The hidden state, and of an LSTM the cell's."""

Step = Callable[[Lowering, Ref, State, "Layer"], State]


class Layer:
    """Weights of one direction of one layer, gates in the order that a step wants.

    `order` lists torch's gates in that order."""

    def __init__(self, tensors: Sequence[torch.Tensor], order: Sequence[int]) -> None:
        self.w_input, self.w_hidden = (_gates(w, order) for w in tensors[:2])
        found = [_gates(b, order) for b in tensors[2:4]]
        self.b_input = found[0] if found else None
        self.b_hidden = found[1] if found else None
        self.size = self.w_hidden.shape[-1]


def _gates(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    parts = tensor.chunk(len(order))
    return torch.cat([parts[i] for i in order])


def _sum(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    return a if b is None else b if a is None else a + b


def _lstm_inputs(to: Lowering, x: Ref, layer: Layer) -> Ref:
    return to.b.fully_connected(x, layer.w_input, _sum(layer.b_input, layer.b_hidden))


def _lstm_step(to: Lowering, gates: Ref, state: State, layer: Layer) -> State:
    """Gates in the order input, forget, output, cell: one sigmoid for three of them."""
    b, n = to.b, layer.size
    hidden, cell = state
    gates = b.binary("Add", gates, b.fully_connected(hidden, layer.w_hidden, None))
    last = gates.rank - 1
    open_ = b.unary("Sigmoid", b.slice(gates, last, 0, 3 * n))
    new = b.unary("Tanh", b.slice(gates, last, 3 * n, n))
    take, keep, show = (b.slice(open_, last, i * n, n) for i in range(3))
    cell = b.binary("Add", b.binary("Multiply", keep, cell), b.binary("Multiply", take, new))
    return b.binary("Multiply", show, b.unary("Tanh", cell)), cell


def _gru_inputs(to: Lowering, x: Ref, layer: Layer) -> Ref:
    return to.b.fully_connected(x, layer.w_input, layer.b_input)


def _gru_step(to: Lowering, gates: Ref, state: State, layer: Layer) -> State:
    """Gates in torch's order: reset, update, new. h' = new + update * (h - new)."""
    b, n = to.b, layer.size
    (hidden,) = state
    own = b.fully_connected(hidden, layer.w_hidden, layer.b_hidden)
    last = gates.rank - 1
    both = b.binary("Add", b.slice(gates, last, 0, 2 * n), b.slice(own, last, 0, 2 * n))
    both = b.unary("Sigmoid", both)
    reset, update = (b.slice(both, last, i * n, n) for i in range(2))
    inner = b.binary("Multiply", reset, b.slice(own, last, 2 * n, n))
    new = b.unary("Tanh", b.binary("Add", b.slice(gates, last, 2 * n, n), inner))
    return (b.binary("Add", new, b.binary("Multiply", update, b.binary("Subtract", hidden, new))),)


LSTM_ORDER, GRU_ORDER = (0, 1, 3, 2), (0, 1, 2)


# --- single cells --------------------------------------------------------------------------


def _weights(to: Lowering, args: Args, order: Sequence[int]) -> Layer:
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    return Layer([to.tensor(args[k]) for k in names if args[k] is not None], order)


def _lstm_cell(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
    layer = _weights(to, args, LSTM_ORDER)
    state = tuple(to.ref(h) for h in args["hx"])
    return _lstm_step(to, _lstm_inputs(to, to.ref(args["input"]), layer), state, layer)


def _gru_cell(to: Lowering, node: Node, args: Args) -> Operand:
    layer = _weights(to, args, GRU_ORDER)
    gates = _gru_inputs(to, to.ref(args["input"]), layer)
    return _gru_step(to, gates, (to.ref(args["hx"]),), layer)[0]


CELL = Constraint("constant weights", constant("w_ih", "w_hh", "b_ih", "b_hh").check)

define(
    "lstm_cell",
    (aten.lstm_cell.default,),
    _lstm_cell,
    (CELL,),
    keep=True,
    also="two fully connected nodes, sigmoids, tanh, products",
    accuracy=STATES,
    deviations=(WIDE_GATES,),
)
define(
    "gru_cell",
    (aten.gru_cell.default,),
    _gru_cell,
    (CELL,),
    keep=True,
    also="as lstm_cell",
    accuracy=STATES,
    deviations=(WIDE_GATES,),
)


# --- sequences -----------------------------------------------------------------------------


def _sequence(
    to: Lowering, args: Args, initial: Sequence[Ref], inputs: Any, step: Step, order: Sequence[int]
) -> tuple[Operand, ...]:
    """Output [time, batch, directions * size], and each state's last, [layers, batch, size]."""
    b = to.b
    x = to.ref(args["input"])
    if args["batch_first"]:
        x = b.permute(x, (1, 0, *range(2, x.rank)))
    tensors = [to.tensor(p) for p in args["params"]]
    directions = 2 if args["bidirectional"] else 1
    each = len(tensors) // (args["num_layers"] * directions)
    layers = [Layer(tensors[i : i + each], order) for i in range(0, len(tensors), each)]
    lasts: list[State] = []
    for number in range(args["num_layers"]):
        results: list[list[Ref]] = []
        for direction in range(directions):
            at = number * directions + direction
            state = tuple(_row(to, h, 0, at) for h in initial)
            outputs, state = _run(to, x, state, layers[at], inputs, step, direction == 1)
            results.append(outputs)
            lasts.append(state)
        merged = [
            _join(to, list(parts), len(parts[0].shape) - 1) for parts in zip(*results, strict=True)
        ]
        x = _stack(to, merged)
    if args["batch_first"]:
        x = b.permute(x, (1, 0, 2))
    return (x, *(_stack(to, list(parts)) for parts in zip(*lasts, strict=True)))


def _run(
    to: Lowering, x: Ref, state: State, layer: Layer, inputs: Any, step: Step, backward: bool
) -> tuple[list[Ref], State]:
    """All steps of one layer in one direction; outputs in the order of time."""
    gates = inputs(to, x, layer)
    steps = x.shape[0]
    assert isinstance(steps, int)
    outputs: dict[int, Ref] = {}
    for t in range(steps)[:: -1 if backward else 1]:
        state = step(to, _row(to, gates, 0, t), state, layer)
        outputs[t] = state[0]
    return [outputs[t] for t in range(steps)], state


def _row(to: Lowering, x: Ref, dim: int, index: int) -> Ref:
    """One element along the first dimension, which goes."""
    part = to.b.slice(x, dim, index, 1)
    return to.b.view(part, x.shape[1:])


def _stack(to: Lowering, parts: list[Ref]) -> Ref:
    return _join(to, [to.b.view(p, (1, *p.shape)) for p in parts], 0)


def _join(to: Lowering, parts: list[Ref], dim: int) -> Ref:
    if len(parts) == 1:
        return parts[0]
    perm = parts[0].perm
    values = [to.b.in_order(part, perm).value for part in parts]
    return Ref(to.b.concatenate(values, perm.index(dim)), perm)


def _lstm(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
    initial = [to.ref(h) for h in args["hx"]]
    return _sequence(to, args, initial, _lstm_inputs, _lstm_step, LSTM_ORDER)


def _gru(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
    return _sequence(to, args, [to.ref(args["hx"])], _gru_inputs, _gru_step, GRU_ORDER)


def _few_steps(q: Query) -> str | None:
    shape = shape_of(q.args["input"])
    if len(shape) != 3:
        return f"{shown(shape)}"
    steps = shape[1 if q.args["batch_first"] else 0]
    return None if isinstance(steps, int) and steps <= MOST_STEPS else f"{steps} steps"


def _constant_params(q: Query) -> str | None:
    for node in q.args["params"]:
        if node not in q.constants:
            return f"computed by {node}"
    return None


def _no_projection(q: Query) -> str | None:
    each = 4 if q.args["has_biases"] else 2
    layers = q.args["num_layers"] * (2 if q.args["bidirectional"] else 1)
    found = len(q.args["params"]) // layers
    return None if found == each else f"{found} tensors a layer"


def _no_dropout(q: Query) -> str | None:
    drops = q.args["train"] and q.args["dropout"]
    return f"dropout={q.args['dropout']} in training" if drops else None


_SEQUENCE = (
    Constraint(f"a batch of sequences of static length, at most {MOST_STEPS}", _few_steps),
    Constraint("constant weights", _constant_params, "weights that are parameters or buffers"),
    Constraint("no projection", _no_projection),
    Constraint("no dropout", _no_dropout),
)

define(
    "lstm",
    (aten.lstm.input,),
    _lstm,
    _SEQUENCE,
    keep=True,
    also="as many cells as there are steps",
    accuracy=STATES,
    deviations=(WIDE_GATES,),
)
define(
    "gru",
    (aten.gru.input,),
    _gru,
    _SEQUENCE,
    keep=True,
    also="as many cells as there are steps",
    accuracy=STATES,
    deviations=(WIDE_GATES,),
)
