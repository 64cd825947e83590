"""What the quantizer's settings and the types of integers bring onto the NPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from ethosu_reference import SPECS, assert_simulated, compare, partitioned, parts, quantized
from torch import nn

from edgewise.backends.ethosu import (
    EthosUQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from edgewise.edge.graph import arguments, op_name
from edgewise.edge.quantized_decomposed import QUANTIZE
from support import Fn

CONFIGS = {
    torch.int8: get_symmetric_quantization_config(),
    torch.int16: get_symmetric_a16w8_quantization_config(),
}
NETS = {
    "linear": nn.Linear(6, 5),
    "a move": Fn(lambda x: x.permute(1, 0)),
    "a function": nn.Sigmoid(),
    "two layers": nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("inside", CONFIGS, ids=str)
@pytest.mark.parametrize("outside", CONFIGS, ids=str)
def test_inputs_and_outputs_have_a_setting(
    net: str, inside: torch.dtype, outside: torch.dtype
) -> None:
    torch.manual_seed(0)
    quantizer = EthosUQuantizer().set_global(CONFIGS[inside]).set_io(CONFIGS[outside])
    program = quantized(NETS[net], (torch.rand(4, 6),), quantizer=quantizer)
    calls = [n for n in program.graph.nodes if op_name(n) == QUANTIZE]
    (given,) = [n for n in calls if n.args[0].op == "placeholder"]
    (result,) = program.graph.output_node().args[0]
    assert arguments(given)["dtype"] == arguments(result)["dtype"] == outside
    (part,) = parts(partitioned(program, "U55"))
    found = compare(part, seeds=1, family="U55")
    assert found.steps <= (1 if inside == outside == torch.int8 else 2), found


def test_without_the_setting_io_is_quantized_as_the_rest() -> None:
    quantizer = EthosUQuantizer().set_io(CONFIGS[torch.int16]).set_io(None)
    program = quantized(nn.Linear(6, 5), (torch.rand(4, 6),), quantizer=quantizer)
    kinds = {arguments(n)["dtype"] for n in program.graph.nodes if "_per_tensor" in op_name(n)}
    assert kinds == {torch.int8}


@pytest.mark.parametrize("family", SPECS)
@pytest.mark.parametrize("function", [torch.maximum, torch.minimum])
def test_extremes_of_32_bits(family: str, function: Callable[..., torch.Tensor]) -> None:
    inputs = tuple(torch.randint(-9, 9, s, dtype=torch.int32) for s in ((2, 3, 4), (3, 1)))
    program = torch.export.export(Fn(function), inputs)
    (part,) = parts(partitioned(program, family))
    found = compare(part, seeds=1, family=family)
    assert found.steps == 0, found
    assert_simulated(found, SPECS[family])


@pytest.mark.parametrize("family", ["U55", "U85"])
def test_inputs_that_nothing_reads_stay_outside(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime hands inputs over by position. Quantizers of others leave such calls."""
    monkeypatch.setattr("edgewise.backends.ethosu.lowering.quantizer.put_whole", lambda model: None)
    net = Fn(lambda x, y: x.select_scatter(y, 0, 0))
    program = quantized(net, (torch.rand(1, 6), torch.rand(6)))
    result = partitioned(program, family)
    assert not result.partition_tags
    against = {str(r) for found in result.refusals.values() for r in found}
    rule = f"Vela keeps every input for {SPECS[family]}; got 1 of 2"
    assert any(rule in text for text in against), against


@pytest.mark.parametrize("family", ["U55", "U65"])
def test_products_of_16_bits_are_refused_but_on_u85(family: str) -> None:
    program = quantized(
        Fn(torch.bmm), (torch.rand(2, 3, 4), torch.rand(2, 4, 5)), CONFIGS[torch.int16]
    )
    result = partitioned(program, family)
    assert not result.partition_tags
    against = {str(r) for found in result.refusals.values() for r in found}
    assert any("both computed matrices of 8 bits, or of 16 on U85" in text for text in against)


def test_windows_have_an_area() -> None:
    program = quantized(nn.MaxPool2d((800, 90), 1), (torch.rand(1, 1, 900, 100),))
    result = partitioned(program)
    assert not result.partition_tags
    against = {str(r) for found in result.refusals.values() for r in found}
    assert any("windows of at most 65536 elements; got 800 x 90" in text for text in against)


IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs_": lambda x: (x + x).abs_(),
    "channel_shuffle": lambda x: torch.channel_shuffle(x.abs(), 2),
    "exp_ and neg_": lambda x: (x + 1).exp_().neg_(),
    "gelu_": lambda x: torch.ops.aten.gelu_(x + x),
    "pow_": lambda x: (x + x).pow_(2),
    "relu6_": lambda x: torch.ops.aten.relu6_(x * 9),
    "remainder_": lambda x: (x + x).remainder_(0.7),
    "square_": lambda x: torch.square_(x + x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_in_place_is_quantized(name: str) -> None:
    torch.manual_seed(0)
    program = quantized(Fn(IN_PLACE[name]), (torch.rand(1, 4, 3, 5) * 2 - 1,))
    (part,) = parts(partitioned(program, "U55"))
    found = compare(part, seeds=1, family="U55")
    assert found.steps <= 1, found


def test_infinities_that_are_filled_in_in_place_are_not_quantized() -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        return (x + x).masked_fill_(x > 0.9, -torch.inf).softmax(-1)

    program = quantized(Fn(attention), (torch.rand(2, 8),))
    assert all(math.isfinite(n.args[1]) for n in program.graph.nodes if op_name(n) == QUANTIZE)
