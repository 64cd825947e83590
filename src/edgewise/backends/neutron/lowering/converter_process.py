"""Runs inside the process of a conversion: imports NXP's module, which may exit or crash.

    python -m edgewise.backends.neutron.lowering.converter_process REQUEST.json

REQUEST.json: {"package", "module", "target", "result", "model"?, "converted"?, "options"?}. What
the target is goes to the file `result` as JSON; with "model" the TFLite file is converted to the
file "converted". Everything that is printed is the converter's log.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_CONVERT = ("compileModel", "convertModel")
"""The newest name first."""


def main(request: dict[str, Any]) -> None:
    module = import_module(f"{request['package']}.{request['module']}")
    described = _described(request, module)
    Path(request["result"]).write_text(json.dumps(described))
    if described["target"] is None or "model" not in request:
        return
    context = module.CompilationContext()
    context.targetOpts = module.getNeutronTarget(request["target"])
    required, optional = request["options"]["required"], request["options"]["optional"]
    for name, value in {**optional, **required}.items():
        # Options came with versions: an older converter does without the optional ones.
        if name in required or hasattr(context.compilationOpts, name):
            setattr(context.compilationOpts, name, value)
    convert = next(getattr(module, name) for name in _CONVERT if hasattr(module, name))
    model = Path(request["model"]).read_bytes()
    Path(request["converted"]).write_bytes(bytes(convert(list(model), context)))


def _described(request: dict[str, Any], module: Any) -> dict[str, Any]:
    """An unknown target crashes the converter, so it is looked up first where that can be done."""
    try:
        utils = import_module(f"{request['package']}.neutron_library_utils")
    except ImportError:
        utils = None
    names = None
    if utils is not None:
        names = [str(target.name) for target in utils.getNeutronTargets()]
        if not utils.isNeutronTarget(request["target"]):
            return {"names": names, "target": None}
    target = module.getNeutronTarget(request["target"])
    figures = ("name", "subsystem", "numUnits", "numPipes", "numMacs", "hwVersion")
    return {"names": names, "target": {name: getattr(target, name, None) for name in figures}}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
