"""What our quantizer annotates is what ExecuTorch's does, but for the differences listed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from support import Fn

pytestmark = pytest.mark.peer

IMAGE, ROWS = (1, 8, 12, 12), (4, 8)

NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 4), ROWS),
    "linear, relu": (lambda: nn.Sequential(nn.Linear(8, 4), nn.ReLU()), ROWS),
    "conv1d": (lambda: nn.Conv1d(8, 4, 3), (1, 8, 12)),
    "conv2d": (lambda: nn.Conv2d(8, 4, 3), IMAGE),
    "conv2d, relu": (lambda: nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU()), IMAGE),
    "grouped": (lambda: nn.Conv2d(8, 4, 3, groups=2), IMAGE),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), IMAGE),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 3), IMAGE),
    "transposed, grouped": (lambda: nn.ConvTranspose2d(8, 4, 3, groups=2), IMAGE),
    "transposed, 1-D": (lambda: nn.ConvTranspose1d(8, 4, 3), (1, 8, 12)),
    "add": (lambda: Fn(lambda x: x + x.exp()), ROWS),
    "add, relu": (lambda: Fn(lambda x: (x + x.exp()).relu()), ROWS),
    "mul": (lambda: Fn(lambda x: x * x.exp()), ROWS),
    "add a number": (lambda: Fn(lambda x: x + 0.37), ROWS),
    "mul by a number": (lambda: Fn(lambda x: x * 0.37), ROWS),
    "sub": (lambda: Fn(lambda x: x - x.exp()), ROWS),
    "sigmoid": (lambda: nn.Sigmoid(), ROWS),
    "hardswish": (lambda: nn.Hardswish(), ROWS),
    "cat": (lambda: Fn(lambda x: torch.cat([x, x.exp()])), ROWS),
    "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d((3, 3)), IMAGE),
    "avg_pool2d": (lambda: nn.AvgPool2d(2), IMAGE),
    "mean": (lambda: Fn(lambda x: x.mean((2, 3))), IMAGE),
    "max_pool2d behind a layer": (
        lambda: nn.Sequential(nn.Conv2d(8, 4, 3), nn.MaxPool2d(2)),
        IMAGE,
    ),
    "permute_copy behind a layer": (
        lambda: nn.Sequential(nn.Linear(8, 4), Fn(lambda x: torch.permute_copy(x, (1, 0)))),
        ROWS,
    ),
    "view behind a layer": (
        lambda: nn.Sequential(nn.Linear(8, 4), Fn(lambda x: x.view(2, 8))),
        ROWS,
    ),
    "max_pool2d first": (lambda: nn.MaxPool2d(2), IMAGE),
    "softmax": (lambda: nn.Softmax(-1), ROWS),
}

MORE = {
    False: {"transposed, grouped", "sub", "sigmoid", "hardswish", "avg_pool2d", "mean"},
    True: {"conv1d", "transposed, grouped", "transposed, 1-D"},
}
"""By whether activations are dynamic: what we quantize, and ExecuTorch leaves in float."""

RELU_APART = {"conv2d, relu"}
"""With dynamic activations: ExecuTorch leaves the convolution in float."""


@pytest.fixture(autouse=True)
def _without_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """ExecuTorch's quantizer traces sixteen patterns, seconds for each net, with a batch norm,
    which no net here has."""
    import executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils as peer

    monkeypatch.setattr(peer, "_do_annotate_conv_bn", lambda *_, **__: [])


def _annotated(module: Any, net: str, dynamic: bool, half: bool) -> dict[str, int]:
    """How many operands of each operator are quantized, and 1 more if its result is."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    build, shape = NETS[net]
    torch.manual_seed(0)
    model, x = build().eval(), torch.randn(shape)
    if half:
        model, x = model.half(), x.half()
    graph = torch.export.export(model, (x,)).module()
    config = module.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    prepared = prepare_pt2e(graph, module.XNNPACKQuantizer().set_global(config))

    def is_observer(node: Any) -> bool:
        return node.op == "call_module" and "activation_post_process" in str(node.target)

    found: dict[str, int] = {}
    for node in prepared.graph.nodes:
        count = sum(is_observer(n) for n in node.all_input_nodes)
        count += any(is_observer(u) for u in node.users)
        if node.op == "call_function" and count:
            found[str(node.target)] = count
    return found


def _differ(net: str, dynamic: bool) -> bool:
    return net in MORE[dynamic] or (dynamic and net in RELU_APART)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("net", NETS)
def test_the_same_is_annotated(net: str, dynamic: bool) -> None:
    import executorch.backends.xnnpack.quantizer.xnnpack_quantizer as peer

    import edgewise.backends.xnnpack as ours

    mine, theirs = _annotated(ours, net, dynamic, False), _annotated(peer, net, dynamic, False)
    if _differ(net, dynamic):
        assert mine != theirs
        assert set(theirs) <= set(mine)
    else:
        assert mine == theirs


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("net", ["linear", "conv2d", "transposed"])
def test_the_same_is_annotated_in_float16(net: str, dynamic: bool) -> None:
    import executorch.backends.xnnpack.quantizer.xnnpack_quantizer as peer

    import edgewise.backends.xnnpack as ours

    assert _annotated(ours, net, dynamic, True) == _annotated(peer, net, dynamic, True)
