"""Objects by their location: "file.py:name", "package.module:name", "model.pt2"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgewise.scale.task import digest


def is_exported(source: str) -> bool:
    """Whether it is a file of `torch.export.save`."""
    return source.endswith(".pt2")


def content(source: str, root: str) -> str:
    """A digest of the file that the source is in; "" for a module from elsewhere.

    FileNotFoundError with a message if there is no such file.
    """
    path = _file(source, root)
    return digest(path.read_bytes()) if path is not None else ""


def resolve(source: str, root: str) -> Any:
    """The object. ValueError if there is none of that name; what the file raises."""
    location, _, name = source.rpartition(":")
    found: Any = _module(location, source, root)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"[{source}] {location} must define {name}; got no {part!r} there")
        found = getattr(found, part)
    return found


def made_of(source: str, arguments: Mapping[str, Any], root: str) -> Any:
    """What the source's function returns, from the same seed each time; a source that is no
    function, itself."""
    import torch

    torch.manual_seed(0)
    found = resolve(source, root)
    is_made = isinstance(found, torch.nn.Module) or not callable(found)
    return found if is_made else found(**arguments)


def _module(location: str, source: str, root: str) -> Any:
    path = _file(source, root)
    if not location.endswith(".py"):
        _look_in(Path(root))
        return importlib.import_module(location)
    assert path is not None
    _look_in(path.parent)
    # Named by its content: two files `models.py` do not meet, and pickles find their classes.
    name = f"edgewise_source_{path.stem}_{digest(path.read_bytes())[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _look_in(folder: Path) -> None:
    """As Python does for a script's folder."""
    text = str(folder.resolve())
    if text not in sys.path:
        sys.path.insert(0, text)


def _file(source: str, root: str) -> Path | None:
    location = source if is_exported(source) else source.rpartition(":")[0]
    if not is_exported(source) and not location.endswith(".py"):
        path = Path(root, *location.split("."))
        files = (path.with_suffix(".py"), path / "__init__.py")
        return next((file for file in files if file.is_file()), None)
    path = Path(root, location)
    if not path.is_file():
        raise FileNotFoundError(f"[{source}] a file must be there; got none at {path}")
    return path
