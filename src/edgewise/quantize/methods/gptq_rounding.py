"""GPTQ: weights are rounded input by input; those to come make up for the error of each.

With H = E[x x^T] + damping and U the upper Cholesky factor of its inverse, column j of the weight
is rounded, and the later columns k get

    W_k -= (W_j - W'_j) / U_jj * U_jk

Source: "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
https://arxiv.org/abs/2210.17323, algorithm 1, with columns in the order of their mean square
(`act_order` of its authors' implementation) where scales do not depend on the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from edgewise.quantize.methods.moments import moments
from edgewise.quantize.methods.observed import observed_layers

Tensor = torch.Tensor

DAMPING = 0.01
"""Share of the mean of the diagonal that is added to it."""
_BLOCK = 128
"""Columns whose errors are handed on together."""


def gptq(prepared: GraphModule, batches: Iterable[Sequence[Any]]) -> bool:
    """In place; whether there were layers with integer weights.

    prepared: what `prepare_pt2e` made, calibrated. Its scales stay. batches: tuples of inputs.
    """
    found = list(observed_layers(prepared))
    seen = moments(prepared, [one.layer for one in found], batches)
    changed = False
    for one in found:
        second = seen.get(one.layer.node)
        if second is None:
            continue
        weight = one.layer.grouped().flatten(2)
        scale = one.scales().expand_as(weight)
        groups = zip(weight, scale, second, strict=True)
        rounded = [round_in_turn(w, s, g, one.limits) * s for w, s, g in groups]
        one.set_grouped(torch.stack(rounded))
        changed = True
    return changed


def round_in_turn(
    weight: Tensor,
    scale: Tensor,
    second: Tensor,
    limits: tuple[int, int],
    damping: float = DAMPING,
) -> Tensor:
    """The integers, as floating point: [out, in].

    weight, scale: [out, in]. second: E[x x^T], [in, in]. limits: of the integers.
    """
    count = weight.shape[1]
    hessian = second.double()
    dead = hessian.diagonal() == 0
    hessian = hessian + torch.diag_embed(dead.double())
    hessian = hessian + torch.eye(count, dtype=torch.float64) * damping * hessian.diagonal().mean()
    order = hessian.diagonal().argsort(descending=True)
    hessian = hessian[order][:, order]
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    upper = torch.linalg.cholesky(inverse, upper=True).to(weight.dtype)
    rest, scale = weight[:, order].clone(), scale[:, order]
    result = torch.empty_like(rest)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        errors = torch.empty_like(rest[:, start:end])
        for j in range(start, end):
            result[:, j] = (rest[:, j] / scale[:, j]).round().clamp(*limits)
            error = (rest[:, j] - result[:, j] * scale[:, j]) / upper[j, j]
            rest[:, j:end] -= error[:, None] * upper[j, j:end]
            errors[:, j - start] = error
        rest[:, end:] -= errors @ upper[start:end, end:]
    return result[:, order.argsort()]


__all__ = ["DAMPING", "gptq", "round_in_turn"]
