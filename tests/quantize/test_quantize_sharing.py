"""Who shares a scale with whom: as torchao finds it, and where torchao recurses without an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.prepare import (
    _get_edge_or_node_to_group_id,
    _get_edge_or_node_to_qspec,
)

from edgewise.backends.neutron import NeutronQuantizer
from edgewise.quantize import quantizer as quantizers
from edgewise.quantize._torchao import SharedQuantizationSpec
from edgewise.quantize.sharing import refer_to_one_value


class Net(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def _grown_twice(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    return torch.cat([torch.cat([y, x], 1).clone(), y], 1)


def _behind(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    return torch.maximum(torch.cat([y, x], 1)[:, 6:], y)


KNOWN = {
    "moved": lambda x: (x + x).flatten(1).unsqueeze(1),
    "joined": lambda x: torch.cat([x + x, torch.relu(x), x], 1),
    "joined twice": lambda x: torch.cat([torch.cat([x + x, x], 1), x * x], 1),
    "two readers": lambda x: torch.cat([(x + x), x.transpose(1, 2)], 1) + torch.cat([x, x * x], 1),
    "pooled": lambda x: nn.functional.max_pool1d(torch.relu(x), 2).flatten(1),
    "apart": lambda x: torch.sigmoid(x + x) * torch.tanh(x),
}
CIRCLES = {"copies that are read again": _grown_twice, "behind its operand": _behind}


def _annotated(function: Callable[[torch.Tensor], Any]) -> torch.fx.GraphModule:
    graph = torch.export.export(Net(function), (torch.randn(1, 6, 6),)).module()
    return NeutronQuantizer().annotate(graph)


def _groups(model: torch.fx.GraphModule) -> set[frozenset[str]]:
    found: dict[int, set[str]] = {}
    for place, group in _get_edge_or_node_to_group_id(_get_edge_or_node_to_qspec(model)).items():
        found.setdefault(group, set()).add(str(place))
    return {frozenset(members) for members in found.values()}


@pytest.mark.parametrize("function", KNOWN.values(), ids=KNOWN)
def test_who_shares_stays(
    function: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantizers, "refer_to_one_value", lambda model: None)
    model = _annotated(function)
    expected = _groups(model)
    refer_to_one_value(model)
    assert _groups(model) == expected


@pytest.mark.parametrize("function", CIRCLES.values(), ids=CIRCLES)
def test_circles_are_one_group(
    function: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _annotated(function)
    specs = _get_edge_or_node_to_qspec(model)
    shared = [s for s in specs.values() if isinstance(s, SharedQuantizationSpec)]
    assert len({s.edge_or_node for s in shared}) == 1
    assert len(_groups(model)) == 1
    monkeypatch.setattr(quantizers, "refer_to_one_value", lambda model: None)
    with pytest.raises(RecursionError):
        _groups(_annotated(function))
