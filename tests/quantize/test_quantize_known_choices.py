"""Choices by booleans that are known: what is chosen, or products with zeros and ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgewise.quantize.fold import drop_notes
from edgewise.quantize.known_choices import choose_by_products, drop_known_choices
from support import Fn

X = torch.randn(3, 4, 5)
SOME = torch.ones(4, 5, dtype=torch.bool).tril()
ALL = torch.ones(4, 5, dtype=torch.bool)


def program(function: Any) -> torch.fx.GraphModule:
    made = torch.export.export(Fn(function, w=torch.nn.Parameter(X[0])).eval(), (X,)).module()
    drop_notes(made)
    return made


def _written(x: torch.Tensor) -> torch.Tensor:
    y = torch.where(ALL, x, -x)
    y.mul_(2)
    return x + y


EVERYWHERE: dict[str, Any] = {
    "true": lambda x, w: torch.where(ALL, x, -x),
    "false": lambda x, w: torch.where(~ALL, x, -x),
    "expanded": lambda x, w: torch.where(ALL, x[:, :1], -x),
    "computed of constants": lambda x, w: torch.where(torch.arange(5) < 5, x, -x),
    "written": lambda x, w: _written(x),
}
SOMEWHERE: dict[str, Any] = {
    "two": lambda x, w: torch.where(SOME, x, x.flip(2)),
    "a row": lambda x, w: torch.where(SOME, x[:, :1], x),
    "zero": lambda x, w: torch.where(SOME, x, torch.zeros(())),
    "zero if so": lambda x, w: torch.where(SOME, torch.zeros(()), x),
    "filled": lambda x, w: x.masked_fill(SOME, 0.0),
}
LEFT: dict[str, Any] = {
    "computed": lambda x, w: torch.where(x > 0, x, -x),
    "minus infinity": lambda x, w: torch.where(SOME, x, torch.tensor(-torch.inf)),
    "another number": lambda x, w: x.masked_fill(SOME, 3.0),
    "weights": lambda x, w: torch.where(SOME, x, w),
    "integers": lambda x, w: torch.where(SOME, x.long(), 2 * x.long()),
    "both are numbers": lambda x, w: x + torch.where(SOME, torch.zeros(()), torch.zeros(())),
}


@pytest.mark.parametrize(
    ("rewrite", "function"),
    [
        *(pytest.param(drop_known_choices, EVERYWHERE[name], id=name) for name in EVERYWHERE),
        *(
            pytest.param(lambda m: choose_by_products(m, lambda n: True), SOMEWHERE[name], id=name)
            for name in SOMEWHERE
        ),
    ],
)
def test_known_choices(rewrite: Callable[..., bool], function: Any) -> None:
    module = program(function)
    want = module(X.clone())
    assert rewrite(module)
    called = {str(node.target) for node in module.graph.nodes}
    assert not called & {"aten.where.self", "aten.masked_fill.Scalar"}
    assert torch.equal(module(X.clone()), want)


@pytest.mark.parametrize("name", LEFT)
def test_others_stay(name: str) -> None:
    module = program(LEFT[name])
    assert not drop_known_choices(module)
    assert not choose_by_products(module, lambda node: True)
    assert not choose_by_products(program(SOMEWHERE["two"]), lambda node: False)
