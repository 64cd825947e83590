"""edgewise: PyTorch models onto devices.

    import edgewise
    program = edgewise.compile(model, example_inputs, backend="xnnpack")
    program.save("model.pte")
    output = edgewise.load("model.pte")(x)

Lowering needs torch (`pip install edgewise[export]`); `load` needs only numpy. Names
are imported when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from edgewise._version import __version__ as __version__

if TYPE_CHECKING:
    from edgewise.edge import EdgeCompileConfig
    from edgewise.emit import ExecutorchBackendConfig
    from edgewise.lowering import (
        EdgeProgramManager,
        ExecutorchProgramManager,
        to_edge,
        to_edge_transform_and_lower,
    )
    from edgewise.lowering.compiling import compile
    from edgewise.partition import DelegationReport
    from edgewise.profiling import profile
    from edgewise.quantize.budget import Budget
    from edgewise.runtime import load

_HOME = {
    "Budget": "edgewise.quantize.budget",
    "DelegationReport": "edgewise.partition",
    "EdgeCompileConfig": "edgewise.edge",
    "EdgeProgramManager": "edgewise.lowering",
    "ExecutorchBackendConfig": "edgewise.emit",
    "ExecutorchProgramManager": "edgewise.lowering",
    "compile": "edgewise.lowering.compiling",
    "load": "edgewise.runtime",
    "profile": "edgewise.profiling",
    "to_edge": "edgewise.lowering",
    "to_edge_transform_and_lower": "edgewise.lowering",
}

_PACKAGES = ("inspect", "llm", "profiling", "quantize", "report", "runtime", "scale", "tuning")
"""`edgewise.runtime` and so on need no import of their own."""

__all__ = [
    "Budget",
    "DelegationReport",
    "EdgeCompileConfig",
    "EdgeProgramManager",
    "ExecutorchBackendConfig",
    "ExecutorchProgramManager",
    "compile",
    "load",
    "profile",
    "to_edge",
    "to_edge_transform_and_lower",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _PACKAGES:
        # With the name and the module, Python tells of similar names.
        raise AttributeError(
            f"module 'edgewise' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    try:
        module = importlib.import_module(_HOME.get(name, f"edgewise.{name}"))
    except ModuleNotFoundError as missing:
        from edgewise.lazy import explained

        raise explained(f"edgewise.{name}", missing) from missing
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PACKAGES})
