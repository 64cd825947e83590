"""From an edge program to the bytes of a `.pte` file."""

from typing import TYPE_CHECKING, Any

from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.emit.bundling import BundledProgram, MethodTestCase, MethodTestSuite
    from edgewise.emit.config import ExecutorchBackendConfig, MemoryPlanningConfig
    from edgewise.emit.emit import Emitted, emit_program
    from edgewise.emit.memory import Block, MemoryPlan, plan_memory

_LAZY = {
    "Block": "edgewise.emit.memory",
    "BundledProgram": "edgewise.emit.bundling",
    "Emitted": "edgewise.emit.emit",
    "ExecutorchBackendConfig": "edgewise.emit.config",
    "MemoryPlan": "edgewise.emit.memory",
    "MemoryPlanningConfig": "edgewise.emit.config",
    "MethodTestCase": "edgewise.emit.bundling",
    "MethodTestSuite": "edgewise.emit.bundling",
    "emit_program": "edgewise.emit.emit",
    "plan_memory": "edgewise.emit.memory",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: writing takes torch, reading a file does not."""
    return attribute(__name__, _LAZY, name)


__all__ = [
    "Block",
    "BundledProgram",
    "Emitted",
    "ExecutorchBackendConfig",
    "MemoryPlan",
    "MemoryPlanningConfig",
    "MethodTestCase",
    "MethodTestSuite",
    "emit_program",
    "plan_memory",
]
