"""How exact the definitions are, in steps of the result's scale.

Against the PT2E reference: what dequantizing, computing in float32 and quantizing gives. Measured
in the TOSA reference model, whose integers the compiled program gives bit by bit.
"""

from __future__ import annotations

from edgewise.partition.accuracy import Accuracies, Accuracy

ONE_SCALE = "one scale"
"""Stands for operands and results of one scale, of either type."""


def within(int8: int, int16: int | None = None, same: int | None = None) -> Accuracies:
    """At most so many steps, by the type of the operands; and where all have one scale."""
    steps = {"int8": int8, "int16": int16, ONE_SCALE: same}
    return {key: Accuracy(steps=n, reference="PT2E") for key, n in steps.items() if n is not None}


STEP = within(1, 1)
"""Both sides round; ties, and a factor of 31 bits, may part them."""
MOVED = within(1, 1, same=0)
"""Elements that are moved or chosen are rescaled where the scales differ."""
EXACT = within(0)
TABLES = within(0, 1)
"""In 8 bits a table has every result. In 16 bits it has each 128th, and lines in between; where
these miss a step, a range has a table of its own."""
