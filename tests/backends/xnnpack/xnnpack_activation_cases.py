"""Cases of activations, powers, clamps and recurrent layers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from xnnpack_case_parts import (
    IMAGE,
    INFINITE,
    MATRIX,
    WIDE,
    Accepted,
    Asked,
    Outputs,
    Refused,
    channels_last,
    fn,
    made,
    t,
    torch_gru,
    torch_lstm,
)

from support import Fn

ACCEPTED: dict[str, dict[str, Accepted]] = {
    "softplus": {
        "": (nn.Softplus(), (WIDE,)),
        "beta": (nn.Softplus(2.5, 15), (WIDE / 10,)),
    },
    "log_sigmoid": {"": (nn.LogSigmoid(), (WIDE,))},
    "mish": {"": (nn.Mish(), (WIDE,))},
    "elu": {
        "": (nn.ELU(0.7), (MATRIX,)),
        "scales": fn(lambda x: torch.ops.aten.elu(x, 1.5, 1.2, 2.0)),
        "wide": (nn.ELU(), (WIDE,)),
    },
    "celu": {"": (nn.CELU(0.7), (WIDE,))},
    "selu": {"": (nn.SELU(), (WIDE,))},
    "prelu": {
        "one slope": (nn.PReLU(), (MATRIX,)),
        "a slope for each channel": (Fn(lambda x, w: F.prelu(x, w), w=t(4)), (IMAGE,)),
        "between convolutions": (channels_last(Fn(lambda x, w: F.prelu(x, w), w=t(4))), (IMAGE,)),
        "a vector": (Fn(lambda x, w: F.prelu(x, w), w=t(5)), (MATRIX,)),
    },
    "softshrink": {"": (nn.Softshrink(0.3), (MATRIX,))},
    "pow": {
        "3": fn(lambda x: x**3),
        "4": fn(lambda x: x**4),
        "1": fn(lambda x: (x**1.0) * 2),
        "1/2": fn(lambda x: x**0.5, MATRIX.abs()),
        "-1/2": fn(lambda x: x**-0.5, MATRIX.abs() + 0.1),
        "-1": fn(lambda x: x**-1.0),
        "-2": fn(lambda x: x**-2.0),
        "square": fn(torch.square),
        "infinities": fn(lambda x: x**3, INFINITE),
    },
    "reciprocal": {
        "": fn(torch.reciprocal),
        "of zeros and infinities": fn(torch.reciprocal, torch.tensor([0.0, -0.0, math.inf])),
    },
    "log2": {"": fn(torch.log2, MATRIX.abs() + 0.1)},
    "log10": {"": fn(torch.log10, MATRIX.abs() + 0.1)},
    "clamp_tensor": {
        "": fn(torch.clamp, MATRIX, t(5) - 1, t(3, 1) + 1),
        "constant bound": fn(lambda x, c: x.clamp(min=c), c=t(5)),
        "high": fn(lambda x, y: x.clamp(max=y), MATRIX, t(5)),
    },
    "exp": {"infinities": fn(torch.exp, INFINITE)},
    "exp2": {
        "": fn(torch.exp2, MATRIX * 5),
        "wide": fn(torch.exp2, WIDE),
        "infinities": fn(torch.exp2, INFINITE),
    },
    "cosh": {
        "": fn(torch.cosh, MATRIX * 3),
        "wide": fn(torch.cosh, WIDE),
        "infinities": fn(torch.cosh, INFINITE),
    },
    "sinh": {
        "": fn(torch.sinh, MATRIX * 3),
        "wide": fn(torch.sinh, WIDE),
        "infinities": fn(torch.sinh, INFINITE),
        "small": fn(torch.sinh, MATRIX * 1e-3),
    },
    "expm1": {
        "": fn(torch.expm1, MATRIX * 3),
        "wide": fn(torch.expm1, WIDE),
        "infinities": fn(torch.expm1, INFINITE),
        "small": fn(torch.expm1, MATRIX * 1e-3),
    },
    "log": {"zero, infinity, negative": fn(torch.log, torch.tensor([0.0, math.inf, -1.0]))},
    "sqrt": {"zero, negative": fn(torch.sqrt, torch.tensor([0.0, -1.0, -math.inf]))},
    "rsqrt": {"negative": fn(torch.rsqrt, torch.tensor([-1.0, -math.inf, 4.0]))},
    "sigmoid": {"infinities": fn(torch.sigmoid, INFINITE), "wide": fn(torch.sigmoid, WIDE)},
    "tanh": {"infinities": fn(torch.tanh, INFINITE), "wide": fn(torch.tanh, WIDE)},
    "maximum": {"infinities": fn(torch.maximum, INFINITE, t(2, 3))},
    "minimum": {"infinities": fn(torch.minimum, INFINITE, t(2, 3))},
    "clamp": {"infinities": fn(lambda x: x.clamp(-1, 1), INFINITE)},
    "relu": {"infinities": fn(torch.relu, INFINITE)},
    "lstm_cell": {
        "": (Outputs(made(nn.LSTMCell, 5, 4), 0, 1), (t(2, 5),)),
        "with state": (
            Fn(
                lambda x, h, c, a, b: torch.ops.aten.lstm_cell(x, [h, c], a, b),
                a=t(16, 5),
                b=t(16, 4),
            ),
            (t(2, 5), t(2, 4), t(2, 4, seed=1)),
        ),
    },
    "gru_cell": {
        "": (made(nn.GRUCell, 5, 4), (t(2, 5),)),
        "without bias": (made(nn.GRUCell, 5, 4, bias=False), (t(2, 5), t(2, 4))),
    },
    "lstm": {
        "": (Outputs(made(nn.LSTM, 5, 4), 0, 1, 2), (t(3, 2, 5),)),
        "batch first": (Outputs(made(nn.LSTM, 5, 4, batch_first=True), 0), (t(2, 3, 5),)),
        "two layers, both directions": (
            Outputs(made(nn.LSTM, 5, 4, 2, bidirectional=True), 0, 1, 2),
            (t(3, 2, 5),),
        ),
        "without bias": (Outputs(made(nn.LSTM, 5, 4, bias=False), 0, 2), (t(3, 2, 5),)),
        "one step": (Outputs(made(nn.LSTM, 5, 4), 0, 1, 2), (t(1, 2, 5),)),
        "many steps": (Outputs(made(nn.LSTM, 5, 4), 0), (t(40, 1, 5),)),
    },
    "gru": {
        "": (Outputs(made(nn.GRU, 5, 4), 0, 1), (t(3, 2, 5),)),
        "batch first, two layers, both directions": (
            Outputs(made(nn.GRU, 5, 4, 2, batch_first=True, bidirectional=True), 0, 1),
            (t(2, 3, 5),),
        ),
        "with state": (Outputs(made(nn.GRU, 5, 4), 0), (t(3, 2, 5), t(1, 2, 4))),
    },
}

REFUSED: dict[str, dict[str, Refused]] = {
    "elu": {
        "alpha": (
            Fn(lambda x: F.elu(x, -0.5)),
            (MATRIX,),
            "aten.elu.default",
            "alpha and input_scale above 0; got",
        ),
    },
    "pow": {
        "exponent": (
            Fn(lambda x: x.abs() ** 1.7),
            (MATRIX,),
            "aten.pow.Tensor_Scalar",
            "exponent=2 or 0.5 or 1 or 3 or 4 or -0.5 or -1 or -2; got exponent=1.7",
        ),
    },
}

# Kept whole only if the row takes them: see ASKED of xnnpack_cases.
ASKED: dict[str, Asked] = {
    "softplus: beta": (nn.Softplus(-1.0), (MATRIX,), "beta > 0; got beta=-1.0"),
    "softplus: threshold": (nn.Softplus(1.0, 2.0), (MATRIX,), "threshold >= 15; got threshold=2.0"),
    "celu: alpha": (nn.CELU(-0.5), (MATRIX,), "alpha > 0; got alpha=-0.5"),
    "softshrink: lambd": (nn.Softshrink(0.0), (MATRIX,), "lambd > 0; got lambd=0.0"),
    "prelu: computed slope": (
        Fn(F.prelu),
        (MATRIX, t(5)),
        "constant weight; got weight is computed by",
    ),
    "lstm_cell: computed weights": (
        Fn(lambda x, h, c, a, b: torch.ops.aten.lstm_cell(x, [h, c], a, b)),
        (t(2, 5), t(2, 4), t(2, 4), t(16, 5), t(16, 4)),
        "constant weights; got w_ih is computed by",
    ),
    "gru_cell: computed weights": (
        Fn(lambda x, h, a, b: torch.ops.aten.gru_cell(x, h, a, b)),
        (t(2, 5), t(2, 4), t(12, 5), t(12, 4)),
        "constant weights; got w_ih is computed by",
    ),
    "lstm: computed weights": (
        Fn(torch_lstm),
        (t(3, 2, 5), t(16, 5), t(16, 4)),
        "constant weights; got computed by",
    ),
    "lstm: projection": (
        Outputs(made(nn.LSTM, 5, 4, proj_size=2), 0, 1, 2),
        (t(3, 2, 5),),
        "no projection; got 5 tensors a layer",
    ),
    "lstm: dropout": (
        Fn(lambda x, a, b: torch_lstm(x, a, b, dropout=0.5, train=True), a=t(16, 5), b=t(16, 4)),
        (t(3, 2, 5),),
        "no dropout; got dropout=0.5 in training",
    ),
    "gru: computed weights": (
        Fn(torch_gru),
        (t(3, 2, 5), t(12, 5), t(12, 4)),
        "constant weights; got computed by",
    ),
    "gru: dropout": (
        Fn(lambda x, a, b: torch_gru(x, a, b, dropout=0.5, train=True), a=t(12, 5), b=t(12, 4)),
        (t(3, 2, 5),),
        "no dropout; got dropout=0.5 in training",
    ),
}
