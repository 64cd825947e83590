"""What notebooks show: HTML that is well formed, says the figures, and escapes what it quotes."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import edgewise


class Odd(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"<b>&'": torch.sort(x.relu())[0]}


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    model, x = Odd(), torch.randn(2, 8)
    program = edgewise.compile(model, (x,), verbose=False)
    loaded = edgewise.load(program.buffer)
    with edgewise.profile() as profile:
        loaded(x.numpy())
    return {
        "report": program.delegation_report(),
        "program": program,
        "comparison": edgewise.inspect.compare(model, program, [(x,)]),
        "model": loaded,
        "profile": profile,
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("report", ["aten.sort.default", "XnnpackBackend", "runtime", "not delegated"]),
        ("program", ["bytes", "XnnpackBackend", "aten.sort.default"]),
        ("comparison", ["1 batch", "<b>&'", "SQNR dB", "exact"]),
        ("model", ["forward", "float32[2, 8]", "XnnpackBackend"]),
        ("profile", ["forward", "aten::sort.values"]),
    ],
)
def test_html(name: str, said: list[str], shown: dict[str, Any]) -> None:
    tree = ElementTree.fromstring(shown[name]._repr_html_())
    text = "\n".join(tree.itertext())
    assert [part for part in said if part not in text] == []
    assert not {element.tag for element in tree.iter()} & {"script", "style", "link", "b", "img"}
