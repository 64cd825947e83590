"""Folding batch normalisation, against eager in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from edge_support import edge, spelling
from torch import nn

import edgewise
from support import DEEP, assert_close, eager64, partitioners, run_ours

IMAGE, SOUND, ROWS = (2, 4, 7, 5), (2, 4, 9), (3, 4)


def norm(kind: Any, channels: int, **options: Any) -> nn.Module:
    made = kind(channels, **options)
    made.running_mean.uniform_(-1, 1)
    made.running_var.uniform_(0.2, 3)
    if made.affine:
        nn.init.uniform_(made.weight, -2, 2)
        nn.init.uniform_(made.bias, -1, 1)
    return made


class Pair(nn.Module):
    def __init__(self, layer: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = layer, after

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(self.layer(x))


class Shared(Pair):
    """Somebody else reads the layer's output."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layer(x)
        return self.norm(y) + y


class Twice(Pair):
    """One layer, called twice: its weights serve a normed and a plain call."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(self.layer(x)), self.layer(x * 2)


class Own(nn.Module):
    """Weights are computed from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = norm(nn.BatchNorm2d, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(F.conv2d(x, x[:1].expand(4, 4, 7, 5), padding=3))


class WithoutStatistics(nn.Module):
    """What `F.batch_norm` computes from the batch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return F.batch_norm(self.layer(x), None, None, training=True)


def make(
    layer: nn.Module,
    kind: Any = nn.BatchNorm2d,
    channels: int = 6,
    pair: Any = Pair,
    **options: Any,
) -> nn.Module:
    return pair(layer, norm(kind, channels, **options))


FOLDED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "conv2d": (lambda: make(nn.Conv2d(4, 6, 3)), IMAGE),
    "conv2d without bias": (lambda: make(nn.Conv2d(4, 6, 3, bias=False)), IMAGE),
    "conv2d, groups": (lambda: make(nn.Conv2d(4, 6, 3, groups=2)), IMAGE),
    "depthwise": (lambda: make(nn.Conv2d(4, 4, 3, groups=4), channels=4), IMAGE),
    "padding=same": (lambda: make(nn.Conv2d(4, 6, 3, padding="same")), IMAGE),
    "conv1d": (lambda: make(nn.Conv1d(4, 6, 3), nn.BatchNorm1d), SOUND),
    "conv3d": (lambda: make(nn.Conv3d(4, 6, 2), nn.BatchNorm3d), (1, 4, 3, 4, 5)),
    "transposed": (lambda: make(nn.ConvTranspose2d(4, 6, 3, stride=2)), IMAGE),
    "transposed 1d": (lambda: make(nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d), SOUND),
    "linear": (lambda: make(nn.Linear(4, 6), nn.BatchNorm1d), ROWS),
    "linear without bias": (lambda: make(nn.Linear(4, 6, bias=False), nn.BatchNorm1d), ROWS),
    "not affine": (lambda: make(nn.Conv2d(4, 6, 3), affine=False), IMAGE),
    "large eps": (lambda: make(nn.Conv2d(4, 6, 3), eps=0.5), IMAGE),
    "two norms": (lambda: nn.Sequential(make(nn.Conv2d(4, 6, 3)), norm(nn.BatchNorm2d, 6)), IMAGE),
    "called twice": (lambda: make(nn.Conv2d(4, 6, 3), pair=Twice), IMAGE),
}

KEPT: dict[str, tuple[Any, tuple[int, ...]]] = {
    "shared output": (lambda: make(nn.Conv2d(4, 4, 3, padding=1), channels=4, pair=Shared), IMAGE),
    "computed weight": (Own, IMAGE),
    "statistics of the batch": (WithoutStatistics, IMAGE),
    "no tracked statistics": (
        lambda: Pair(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, track_running_stats=False)),
        IMAGE,
    ),
    "transposed with groups": (lambda: make(nn.ConvTranspose2d(4, 6, 3, groups=2)), IMAGE),
    "linear on more than rows": (lambda: make(nn.Linear(9, 9), nn.BatchNorm1d, 4), SOUND),
    "after nothing": (lambda: norm(nn.BatchNorm2d, 4), IMAGE),
    "after an activation": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), norm(nn.BatchNorm2d, 6)),
        IMAGE,
    ),
    # A convolution without batch dimension computes 3-D: what the norm takes for channels are
    # its rows.
    "without batch dimension": (lambda: make(nn.Conv2d(4, 5, 3), nn.BatchNorm1d, 5), (4, 7, 6)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded(name: str) -> None:
    make_module, shape = FOLDED[name]
    module, x = make_module().eval(), torch.randn(shape)
    program = edge(module, (x,))
    assert not any("batch_norm" in op for op in spelling(program)), spelling(program)
    with torch.no_grad():
        got = program.module()(x)
    assert_close(torch.utils._pytree.tree_leaves(got), eager64(module, (x,)), 1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    make_module, shape = KEPT[name]
    module, x = make_module().eval(), torch.randn(shape)
    program = edge(module, (x,))
    kept = {"statistics of the batch", "no tracked statistics"}
    assert any("batch_norm" in op or (name in kept and "var" in op) for op in spelling(program))
    with torch.no_grad():
        got = program.module()(x)
    assert_close([got], eager64(module, (x,)), 1e-5)


def test_training_is_not_folded() -> None:
    module = make(nn.Conv2d(4, 6, 3)).train()
    x = torch.randn(IMAGE)
    with torch.no_grad():
        program = torch.export.export(module, (x,))
    import edgewise

    lowered = edgewise.to_edge(program).exported_program()
    assert any("batch_norm" in op for op in spelling(lowered))


def test_the_module_keeps_its_weights() -> None:
    module = make(nn.Conv2d(4, 6, 3)).eval()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    edge(module, (torch.randn(IMAGE),))
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])


class Trained(torch.nn.Module):
    """Norms that write their running statistics, which are read after them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.instances = torch.nn.InstanceNorm2d(4, track_running_stats=True, affine=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.instances(self.norm(self.conv(x)))
        return y, self.norm.running_mean * 1, self.norm.running_var * 1, self.instances.running_var


@pytest.mark.parametrize("sizes", [None, ({0: torch.export.Dim("n", min=2, max=6)},)])
def test_trained_norms_keep_their_statistics(sizes: Any) -> None:
    model = Trained().train()
    calls = [(torch.rand(n if sizes else 4, 3, 6, 5) * n,) for n in (4, 2, 6)]
    program = torch.export.export(model, calls[0], dynamic_shapes=sizes)
    pte = edgewise.to_edge_transform_and_lower(program, partitioner=partitioners("xnnpack"))
    for call, got in zip(calls, run_ours(pte.to_executorch().buffer, *calls), strict=True):
        with torch.no_grad():
            wanted = [y.clone() for y in model(*call)]
        assert_close(got, wanted, floor=DEEP, inputs=call)
