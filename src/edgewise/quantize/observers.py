"""The observer of the static schemes."""

from __future__ import annotations

import torch

from edgewise.quantize import _torchao


class HistogramObserver(_torchao.HistogramObserver):  # type: ignore[misc]
    """torchao's, with a histogram that is counted in float32.

    `torch.histc` of a float16 tensor counts in float16: above 2,048 counts are skipped, above
    65,504 they are infinite, and the range of the least error is then searched for among wrong
    numbers.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Counts the elements of `x`, which it returns as it is."""
        super().forward(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x)
        return x
