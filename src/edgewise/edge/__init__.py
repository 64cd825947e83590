"""From `torch.export` to the edge dialect: functional, few spellings, memory formats by rule.

`dialect` states what such a program may contain; `to_edge` runs the stages; each stage
is a module of its own.
"""

from edgewise.edge.config import EdgeCompileConfig
from edgewise.edge.constant_files import mark_constants
from edgewise.edge.dialect import check
from edgewise.edge.to_edge import Timings, to_edge_program

__all__ = ["EdgeCompileConfig", "Timings", "check", "mark_constants", "to_edge_program"]
