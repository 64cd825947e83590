"""Every named scheme on small models, against the float model."""

from __future__ import annotations

from typing import Any

import annotations
import numpy as np
import pytest
import torch
from annotations import sqnr_db
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.quantize import SCHEMES, quantize
from edgewise.quantize.schemes import NAMES_ELSEWHERE, scheme_of
from examples.models import MODELS

pytestmark = pytest.mark.matrix

# Decibels that the worst output keeps of the signal, about 3 below what was measured. 8 bits
# give some 40 for one layer; noise of many layers adds up, and 4 bits take 20 more.
BOUNDS = {
    ("tiny_mlp", "int8"): 40,
    ("tiny_mlp", "int8-dynamic"): 43,
    ("tiny_mlp", "int8-weight"): 45,
    ("tiny_cnn", "int8"): 40,
    ("tiny_cnn", "int8-dynamic"): 42,
    ("tiny_cnn", "int8-weight"): 43,
    ("bert_small", "int8"): 23,
    ("bert_small", "int8-dynamic"): 34,
    ("bert_small", "int8-weight"): 40,
    ("bert_small", "int4-dynamic"): 17,
    ("bert_small", "int4-weight"): 17,
}


def outputs(run: Any, inputs: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(run(*inputs))
    return [torch.as_tensor(leaf) for leaf in leaves]


@pytest.mark.parametrize(("name", "scheme"), BOUNDS)
def test_schemes_keep_the_signal(name: str, scheme: str) -> None:
    spec = MODELS[name]
    model = spec.build()
    batches = [spec.example_inputs(seed) for seed in range(4)]
    given = batches if SCHEMES[scheme].needs_calibration else None
    program = quantize(
        model, batches[0], scheme, XNNPACKQuantizer, calibration=given, progress=False
    )
    wanted, reference = outputs(model, batches[0]), outputs(program.module(), batches[0])
    ratios = [sqnr_db(w, r) for w, r in zip(wanted, reference, strict=True)]
    assert min(ratios) >= BOUNDS[name, scheme]
    lowered = edgewise.compile(model, batches[0], quantize=scheme, calibration=given, verbose=False)
    run = edgewise.load(lowered.buffer)
    native = outputs(run, batches[0])
    ratios = [sqnr_db(w, n) for w, n in zip(wanted, native, strict=True)]
    assert min(ratios) >= BOUNDS[name, scheme]


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic", "int4-dynamic"])
def test_files_hold_the_integers_only(scheme: str) -> None:
    """A quarter or an eighth of the weights' bytes, scales and the graph on top."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64))
    x = torch.randn(2, 256)
    count = sum(p.numel() for p in model.parameters())
    program = edgewise.compile(model, x, quantize=scheme, calibration=[x], verbose=False)
    share = {"int8": 1.0, "int8-dynamic": 1.0, "int4-dynamic": 0.5 + 4 / 32}[scheme]
    assert len(program.buffer) < 1.15 * share * count + 4096


@pytest.mark.parametrize("scheme", ["int4-dynamic", "int4-weight"])
def test_groups_must_divide_the_features(scheme: str) -> None:
    model = nn.ModuleDict({"even": nn.Linear(64, 48), "odd": nn.Linear(48, 8)})
    net = annotations.Layers(lambda x, parts: parts["odd"](parts["even"](x)), parts=model)
    x = torch.randn(1, 64)
    message = r"must divide the input features .* got 32 for parts.odd \(48\); try keep_float="
    with pytest.raises(ValueError, match=message):
        edgewise.compile(net, x, quantize=scheme, verbose=False)
    with pytest.raises(ValueError, match=r"got 64 for parts.odd \(48\)"):
        edgewise.compile(net, x, quantize=scheme, group_size=64, verbose=False)
    kept = edgewise.compile(net, x, quantize=scheme, keep_float=["parts.odd"], verbose=False)
    got = edgewise.load(kept.buffer)(x)
    assert sqnr_db(net(x).detach(), torch.as_tensor(got)) > 15


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_group_sizes(group_size: int) -> None:
    model, x = nn.Linear(128, 16), torch.randn(4, 128)
    program = edgewise.compile(
        model, x, quantize="int4-dynamic", group_size=group_size, verbose=False
    )
    # A weight of normal or uniform values in 15 steps: 20 dB, less 4 for large groups.
    got = torch.as_tensor(edgewise.load(program.buffer)(x))
    assert sqnr_db(model(x).detach(), got) > 16


def test_schemes_by_name() -> None:
    assert scheme_of("int8") is SCHEMES["int8"]
    assert scheme_of(SCHEMES["int8"]) is SCHEMES["int8"]
    assert scheme_of("int4-weight", 64).group_size == 64
    with pytest.raises(ValueError, match=r"one of int8, int8-dynamic, .* got 'int3'"):
        scheme_of("int3")
    for name, ours in NAMES_ELSEWHERE.items():
        with pytest.raises(ValueError, match=f"; try '{ours}'$"):
            scheme_of(name)
    with pytest.raises(ValueError, match="group_size is for schemes with groups; got 32 for int8"):
        scheme_of("int8", 32)
    for wrong in (0, 16, 48, -32):
        with pytest.raises(ValueError, match=f"must be a multiple of 32; got {wrong}"):
            scheme_of("int4-weight", wrong)


def test_keep_float_keeps_modules_and_what_is_inside() -> None:
    model = MODELS["bert_small"].build()
    inputs = MODELS["bert_small"].example_inputs(0)
    for scheme in ("int8-dynamic", "int4-dynamic"):
        program = quantize(
            model, inputs, scheme, XNNPACKQuantizer, keep_float=["encoder", "embeddings"]
        )
        quantized = [n for n in program.graph.nodes if "dequantize" in str(n.target)]
        # The pooler is left: its weight and its activation.
        assert len(quantized) == 2
    with pytest.raises(ValueError, match=r"must name modules of the model; got encodr"):
        quantize(model, inputs, "int8-dynamic", XNNPACKQuantizer, keep_float=["encodr"])


def test_what_compile_refuses() -> None:
    x = torch.randn(1, 8)
    exported = torch.export.export(nn.Linear(8, 4), (x,))
    with pytest.raises(
        ValueError, match=r"'int4-dynamic' is of layers.*try the module that it was"
    ):
        edgewise.compile(exported, quantize="int4-dynamic")
    with pytest.raises(
        ValueError, match=r"quantize needs a backend that computes in integers.* got backend='none'"
    ):
        edgewise.compile(nn.Linear(8, 4), x, backend="none", quantize="int8-dynamic")


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_open_sizes_stay_open(scheme: str, dtype: torch.dtype) -> None:
    layers = (torch.nn.Embedding(11, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    model = torch.nn.Sequential(*layers).to(dtype).eval()
    short, long = (torch.randint(0, 11, (2, length)) for length in (3, 5))
    program = edgewise.compile(
        model,
        (short,),
        quantize=scheme,
        calibration=[short, long] if scheme == "int8" else None,
        dynamic_shapes=({1: torch.export.Dim("length", max=12)},),
        verbose=False,
    )
    run = edgewise.load(program.buffer)
    for given in (short, long):
        expected = model(given).detach().float().numpy()
        np.testing.assert_allclose(run(given.numpy()), expected, atol=0.1)


def test_weights_that_other_operators_read_stay_float() -> None:
    class Queries(torch.nn.Module):
        """As DETR's: a table that is split, a layer whose weight is a matrix of the parent's. It
        writes to a buffer."""

        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(8, 64)
            self.queries = torch.nn.Embedding(6, 64)
            self.listed = torch.nn.Embedding(1, 64)
            self.register_buffer("calls", torch.zeros(1))
            self.first = torch.nn.Linear(64, 64)
            self.second = torch.nn.Linear(64, 32)
            self.head = torch.nn.Linear(64, 8, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.calls.add_(1)  # type: ignore[operator]
            x = self.first(self.words(ids)) + torch.cat([self.listed.weight, self.listed.weight])[0]
            one, other = self.queries.weight.split(3)
            return self.head(x + one.sum(0) * other.sum(0)), self.second(x) @ self.second.weight

    torch.manual_seed(0)
    model, ids = Queries().eval(), torch.randint(0, 8, (2, 5))
    with pytest.warns(UserWarning, match=r"read, too: listed \(cat\), queries \(split\), second"):
        program = quantize(model, (ids,), "int4-dynamic", XNNPACKQuantizer)
    # The integers of a weight are read through an operator of torchao's.
    reads = {
        node.name: {user.target.__name__.partition("_")[0] for user in node.users}
        for node in program.graph.nodes
        if node.op == "placeholder"
    }
    of_integers = {name for name, users in reads.items() if "access" in users}
    assert program.state_dict["calls"].item() == 0
    assert of_integers == {"p_words_weight", "p_first_weight", "p_head_weight"}
    for got, wanted in zip(program.module()(ids), model(ids), strict=True):
        error = float((got - wanted).square().sum() / wanted.square().sum())
        assert error < 0.02
