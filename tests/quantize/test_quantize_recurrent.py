"""Recurrent layers in integers on XNNPACK: written out, one delegate, as PT2E says.

Integers are within four steps of PT2E: each step of a sequence and each layer rounds again. What is
quantized while it runs, or in its weights alone, is as near as float32 and rounding allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.quantize.flow import quantize_and_tell

STEPS, BATCH, WIDTH, SIZE = 4, 2, 6, 8


class Net(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(WIDTH, SIZE, **options)

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        given = None if not states else states if len(states) == 2 else states[0]
        y, last = self.layer(x, given)
        return (y, *(last if isinstance(last, tuple) else (last,)))


class Cells(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell = getattr(nn, kind)(WIDTH, SIZE)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        for i in range(STEPS):
            h = self.cell(x[i], h)
        return h


def sequence(batch_first: bool = False) -> torch.Tensor:
    return torch.randn((BATCH, STEPS, WIDTH) if batch_first else (STEPS, BATCH, WIDTH))


def state(layers: int = 1, size: int = SIZE) -> torch.Tensor:
    return torch.randn(layers, BATCH, size) / 2


# model, inputs, multiply-accumulates
NETS: dict[str, tuple[Any, Any, int]] = {
    "lstm": (lambda: Net("LSTM"), lambda: (sequence(),), 4 * 8 * (6 + 8)),
    "gru": (lambda: Net("GRU", batch_first=True), lambda: (sequence(True),), 3 * 8 * (6 + 8)),
    "rnn": (lambda: Net("RNN", bias=False), lambda: (sequence(),), 8 * (6 + 8)),
    "rnn of relu": (
        lambda: Net("RNN", nonlinearity="relu"),
        lambda: (sequence(), state()),
        8 * (6 + 8),
    ),
    "two layers, both ways": (
        lambda: Net("LSTM", num_layers=2, bidirectional=True),
        lambda: (sequence(), state(4), state(4)),
        2 * 4 * 8 * (6 + 8) + 2 * 4 * 8 * (16 + 8),
    ),
    "projection": (
        lambda: Net("LSTM", proj_size=5),
        lambda: (sequence(), state(size=5), state()),
        4 * 8 * (6 + 5) + 8 * 5,
    ),
    "cells": (lambda: Cells("GRUCell"), lambda: (sequence(), state()[0]), 3 * 8 * (6 + 8)),
}


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic", "int8-weight"])
@pytest.mark.parametrize("name", NETS)
def test_in_one_delegate_as_in_pt2e(name: str, scheme: str) -> None:
    build, inputs, macs = NETS[name]
    torch.manual_seed(0)
    model, given = build().eval(), inputs()
    batches = [given, inputs(), inputs()] if scheme == "int8" else None
    exported, left = quantize_and_tell(
        model, given, scheme, XNNPACKQuantizer, calibration=batches, progress=False
    )
    assert not [one for one in left if one.has_weights]
    program = edgewise.compile(exported, verbose=False)
    report = program.delegation_report()
    assert len(report.delegates) == 1
    assert report.share("nodes") == 1
    # What a first state of zeros gives is known before.
    known = {"lstm": 4, "gru": 3, "rnn": 1}.get(name, 0) * SIZE * SIZE
    assert sum(node.macs for node in report.nodes) == BATCH * (STEPS * macs - known)
    with torch.no_grad():
        wanted = exported.module()(*given)
    got = edgewise.load(program.buffer)(*[x.numpy() for x in given])
    many = isinstance(wanted, tuple)
    for theirs, ours in zip(wanted if many else [wanted], got if many else [got], strict=True):
        largest = float(theirs.abs().max())
        most = {"int8": 4.1 * largest / 127, "int8-dynamic": 0.02, "int8-weight": 1e-5}[scheme]
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=most)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_state_that_is_kept_does_not_decay(kind: str) -> None:
    """Gates that are open: in 8 bits they are 255/256 at most, and 60 steps keep 79 % of a state.
    What is left is what 8 bits of the layers' products lose."""
    torch.manual_seed(0)
    net = Net(kind).eval()
    with torch.no_grad():
        kept = {"LSTM": slice(SIZE, 2 * SIZE), "GRU": slice(SIZE, 2 * SIZE)}[kind]
        net.layer.bias_ih_l0[kept] += 12
        if kind == "LSTM":
            net.layer.bias_ih_l0[:SIZE] -= 12  # nothing is written
    inputs = (torch.randn(60, 1, WIDTH), *[torch.randn(1, 1, SIZE)] * (2 if kind == "LSTM" else 1))
    program = edgewise.compile(net, inputs, quantize="int8", calibration=[inputs], verbose=False)
    last = edgewise.load(program.buffer)(*[x.numpy() for x in inputs])[-1]
    with torch.no_grad():
        wanted = net(*inputs)[-1]
    np.testing.assert_allclose(last, wanted.numpy(), rtol=0.02, atol=0.01)
    told = [one.reason for one in program.delegation_report().unquantized]
    assert any("a recurrent layer's gate is never 1" in reason for reason in told)


def test_weights_are_stored_once() -> None:
    class Long(Net):
        def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
            return super().forward(x)[0]

    torch.manual_seed(0)
    sizes = []
    for steps in (4, 8):
        layer = Long("LSTM").eval()
        layer.layer = nn.LSTM(WIDTH, 128)
        program = edgewise.compile(
            layer, (torch.randn(steps, 1, WIDTH),), quantize="int8-weight", verbose=False
        )
        sizes.append(len(program.buffer))
    assert sizes[1] - sizes[0] < 4 * 10_000  # a weight of the hidden state has 65,536


def test_multiply_accumulates_of_float_layers() -> None:
    for name, (build, inputs, macs) in NETS.items():
        program = edgewise.compile(build().eval(), inputs(), verbose=False)
        found = sum(node.macs for node in program.delegation_report().nodes)
        known = SIZE * SIZE if name == "rnn" else 0  # torch takes it apart
        assert found == BATCH * (STEPS * macs - known), name
