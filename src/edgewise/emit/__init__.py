"""From an edge program to the bytes of a `.pte` file."""

from edgewise.emit.config import ExecutorchBackendConfig, MemoryPlanningConfig
from edgewise.emit.emit import Emitted, emit_program
from edgewise.emit.memory import Block, MemoryPlan, plan_memory

__all__ = [
    "Block",
    "Emitted",
    "ExecutorchBackendConfig",
    "MemoryPlan",
    "MemoryPlanningConfig",
    "emit_program",
    "plan_memory",
]
