"""What ExecuTorch's libraries add to `torch.ops.quantized_decomposed`, for scripts that name it.

These are tables of embeddings, and the out-variants of quantizations, which scripts look for to see
whether a library is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from edgewise.edge.quantized_embeddings import NAMES, define
from edgewise.edge.quiet_torchao import declare_quantized_operators

_operators: Any = torch.ops.quantized_decomposed
declare_quantized_operators()
_library: Any = torch.library.Library("quantized_decomposed", "FRAGMENT")  # type: ignore[no-untyped-call]


def _define_out(name: str) -> None:
    operator = getattr(_operators, name).default
    functional = str(operator._schema).partition("::")[2]
    arguments, _, _ = functional.rpartition(") -> ")
    named = arguments if ", *, " in arguments else f"{arguments}, *"
    _library.define(
        f"{named.replace(f'{name}(', f'{name}.out(', 1)}, Tensor(a!) out) -> Tensor(a!)"
    )
    _library.impl(f"{name}.out", _written_by(operator), "CompositeExplicitAutograd")


def _written_by(operator: Any) -> Callable[..., torch.Tensor]:
    def call(*args: Any, out: torch.Tensor, **named: Any) -> torch.Tensor:
        result = operator(*args, **named)
        return out.resize_(result.shape).copy_(result)

    return call


for _bits, _name in NAMES.items():
    if not hasattr(_operators, _name):
        define(_library, _bits)
for _name in (
    *NAMES.values(),
    *(f"{way}_per_{what}" for way in ("quantize", "dequantize") for what in ("tensor", "token")),
):
    if hasattr(_operators, _name) and not hasattr(getattr(_operators, _name), "out"):
        _define_out(_name)


def undefine() -> None:
    """Takes the operators back: ExecuTorch defines them itself."""
    _library._destroy()
