"""Masks of attention: found in every spelling, and put as a processor can add them.

A scale that stands for a number like -1e9 beside scores leaves nothing of the scores. So quantizers
find what leaves scores out of a softmax (`recognition`), and add what their processor knows
instead: zeros and minus infinities that its softmax takes as a mask (`infinite`), or zeros and a
number with a scale of its own (`finite`).
"""

from edgewise.quantize.masks.finite import (
    MASK_SPEC,
    ScoresObserver,
    add_finite_masks,
    mask_of,
    scores_spec,
)
from edgewise.quantize.masks.infinite import add_infinite_masks, is_computed_mask, steps_of_mask
from edgewise.quantize.masks.padded_rows import pad_rows, padded_rows
from edgewise.quantize.masks.recognition import LEFT_OUT, prepares_masks

__all__ = [
    "LEFT_OUT",
    "MASK_SPEC",
    "ScoresObserver",
    "add_finite_masks",
    "add_infinite_masks",
    "is_computed_mask",
    "mask_of",
    "pad_rows",
    "padded_rows",
    "prepares_masks",
    "scores_spec",
    "steps_of_mask",
]
