"""From a partition to a TOSA graph."""

from __future__ import annotations

from collections import Counter

from torch.export import ExportedProgram

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.context import Lowering
from edgewise.backends.ethosu.lowering.tosa import Tosa
from edgewise.backends.ethosu.operators import TABLE
from edgewise.edge.graph import fake
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.layout import dim_order


def build(program: ExportedProgram, family: str) -> Tosa:
    """The graph of a partition: inputs and outputs in the program's order and layout.

    family: of processors (`Target.family`), some of which have operators that others have not.
    """
    builder = Builder(family)
    to = Lowering(builder, IntegerConstants(program), family)
    results = to.lower_all(program, TABLE)
    builder.tosa.origin = ""
    lying = [builder.in_order(to.plain(n), dim_order(fake(n))) for n in results]
    # Vela drops results that are another one, or an input, in another shape or order.
    sources = Counter([*(t.name for t in builder.tosa.inputs), *map(builder.source, lying)])
    for tensor in lying:
        alone = sources[builder.source(tensor)] == 1
        builder.tosa.output(tensor if alone else builder.written(tensor))
    return builder.tosa
