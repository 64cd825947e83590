"""One spelling for each thing: rewrites by rule, without tracing.

ATen has many names for one computation (`flatten`, `reshape`, `unflatten` are views;
`conv2d`, `conv1d` are `convolution`; `dropout` is nothing once training is over).
`RULES` maps each such operator to a function that puts the edge dialect's spelling
before the node and returns it, or returns None where the rule does not apply (the node
is then decomposed by `edge.normalize`). Shapes come from the node's own value.
"""

from edgewise.edge.canonicalize import composites, copies, numbers, pooling, spelling, views
from edgewise.edge.canonicalize.copies import integers_of_totals
from edgewise.edge.canonicalize.numbers import tensors_of_numbers
from edgewise.edge.canonicalize.registry import RULES, apply_rule, is_nothing

__all__ = [
    "RULES",
    "apply_rule",
    "composites",
    "copies",
    "integers_of_totals",
    "is_nothing",
    "numbers",
    "pooling",
    "spelling",
    "tensors_of_numbers",
    "views",
]
