"""Rotary embeddings of `transformers` models as tables of all positions."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from edgewise.llm.export.step import current_step

__all__ = ["RotaryTables"]


class RotaryTables(torch.nn.Module):
    """Cosines and sines of a model's rotary embedding, for all positions, by the type of layer.

    Scalings of positions that depend on a text's length are those for a text of the whole context.
    """

    def __init__(self, original: Any, context: int, types: list[str]) -> None:
        super().__init__()
        takes_type = "layer_type" in inspect.signature(original.forward).parameters
        known = getattr(original, "rope_type", None)
        with_positions = [t for t in types if not isinstance(known, dict) or t in known]
        self._names = with_positions if takes_type else [""]
        # What models ask of it besides.
        self.config = getattr(original, "config", None)
        self.layer_types = getattr(original, "layer_types", None)
        positions = torch.arange(context).unsqueeze(0)
        self.has_axes = hasattr(original, "mrope_section") or "mrope_section" in (
            getattr(self.config, "rope_parameters", None) or {}
        )
        """Whether parts of a head have positions of their own: in time, height and width."""
        with torch.no_grad():
            axes = _axes(original, context) if self.has_axes else ()
            for name in self._names:
                found = original(torch.zeros(1), positions, *((name,) if takes_type else ()))
                self._is_complex = isinstance(found, torch.Tensor)
                cos, sin = (found.real, found.imag) if self._is_complex else found
                self._hold(name, cos[0], sin[0])
                for number, axis in enumerate(axes):
                    self._hold(f"{name}_{number}", cos[0] * axis, sin[0] * axis)

    def _hold(self, name: str, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self.register_buffer(f"cos_{name}", cos.contiguous(), persistent=False)
        self.register_buffer(f"sin_{name}", sin.contiguous(), persistent=False)

    def _look_up(self, name: str, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        look_up = torch.nn.functional.embedding
        cos, sin = (getattr(self, f"{kind}_{name}") for kind in ("cos", "sin"))
        return look_up(positions, cos), look_up(positions, sin)

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str = ""
    ) -> tuple[torch.Tensor, torch.Tensor] | torch.Tensor:
        """Cosines and sines [B, S, depth] of the positions [B, S], as two or as complex numbers;
        or [3, B, S], in time, height and width, which are one unless the step says otherwise."""
        step = current_step()
        if step is not None and step.has_axes:
            parts = [
                self._look_up(f"{layer_type}_{axis}", at)
                for axis, at in enumerate(position_ids[-3:].unbind(0))
            ]
            cos, sin = (first + second + third for first, second, third in zip(*parts, strict=True))
            return cos, sin
        if position_ids.dim() == 3:
            position_ids = position_ids[0]
        tables = self._look_up(layer_type, position_ids)
        return torch.complex(*tables) if self._is_complex else tables


def _axes(original: Any, context: int) -> torch.Tensor:
    """Which numbers of a head turn with which axis: float32 [3, depth] of 0 and 1."""
    moved = []
    for axis in range(3):
        positions = torch.zeros(3, 1, context, dtype=torch.int64)
        positions[axis] = torch.arange(context)
        _, sin = original(torch.zeros(1), positions)
        moved.append((sin[0] != 0).any(0))
    moved[0] = ~(moved[1] | moved[2])
    return torch.stack(moved).to(torch.float32)
