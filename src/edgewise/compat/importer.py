"""Serves the paths of `table` to Python's import system."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from edgewise.compat.advice import advice
from edgewise.compat.loggers import connect, disconnect
from edgewise.compat.table import AT_IMPORT, ROOT, SERVED, paths

_MARK = "__edgewise__"
# What the installed ExecuTorch's own files are for: models, command lines and the backends of its
# tutorials, which are written in PyTorch and in names that are served.
OWN_FILES = tuple(
    f"{ROOT}.{path}"
    for path in (
        "examples",
        "exir.backend.canonical_partitioners.all_node_partitioner",
        "exir.backend.canonical_partitioners.duplicate_constant_node_pass",
        "exir.backend.canonical_partitioners.group_partitioner",
        "exir.backend.test",
        "backends.arm.scripts",
        "backends.nxp.tests",
        "extension.llm.export",
        "extension.llm.modules",
    )
)


class ServedModule(ModuleType):
    """A module of the table. Names are looked up when they are first used."""

    def __getattr__(self, name: str) -> Any:
        """The object behind a name. AttributeError, with what to use instead, for others."""
        target = SERVED.get(self.__name__, {}).get(name)
        if target is None:
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(_not_served(f"{self.__name__}.{name}"))
        if self.__name__ in AT_IMPORT:
            importlib.import_module(AT_IMPORT[self.__name__])
        home, _, attribute = target.partition(":")
        module = importlib.import_module(home)
        value = getattr(module, attribute) if attribute else module
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *SERVED.get(self.__name__, {})])


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ServedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _MARK, True)
        names = SERVED.get(module.__name__, {})
        module.__dict__["__all__"] = sorted(name for name in names if not name.startswith("_"))
        if module.__name__ in AT_IMPORT and not names:
            importlib.import_module(AT_IMPORT[module.__name__])
        module.__doc__ = f"{module.__name__}, as edgewise serves it: see docs/compat.md."


class _Finder(MetaPathFinder):
    """Answers for everything below `executorch`: of the real one come its scripts alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != ROOT and not fullname.startswith(f"{ROOT}."):
            return None
        if fullname.startswith(OWN_FILES):
            found = _script(fullname)
            if found is not None:
                # They look for what ExecuTorch's libraries define before they import these.
                importlib.import_module("edgewise.compat.quantized_operators")
                return found
        if fullname not in paths():
            # Without a name: Python would take one as "no submodule" and hide the text.
            raise ModuleNotFoundError(_not_served(fullname))
        # All are packages: `from module import name` then asks here for names that are missing.
        return ModuleSpec(fullname, _Loader(), is_package=True)


def _script(fullname: str) -> ModuleSpec | None:
    """Of the installed ExecuTorch if there is one: models, and command lines."""
    found = PathFinder.find_spec(ROOT, sys.path)
    for folder in (found and found.submodule_search_locations) or ():
        place = Path(folder).joinpath(*fullname.split(".")[1:])
        start = place / "__init__.py"
        if start.is_file():
            return _at(fullname, start, is_package=True)
        if place.with_suffix(".py").is_file():
            return _at(fullname, place.with_suffix(".py"))
        if place.is_dir():
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
    return None


def _at(fullname: str, file: Path, is_package: bool = False) -> ModuleSpec:
    folders = [str(file.parent)] if is_package else None
    spec = spec_from_file_location(fullname, file, submodule_search_locations=folders)
    assert spec is not None
    return spec


class _RemovedFinder(MetaPathFinder):
    """Modules that torch no longer has, after all others were asked."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in paths():
            return None
        return ModuleSpec(fullname, _Loader(), is_package=True)


_FINDERS = (_Finder(), _RemovedFinder())


def install() -> None:
    """Serves ExecuTorch's import paths from now on. A second call does nothing.

    ImportError if the real ExecuTorch has been imported: its objects and ours do not mix.
    """
    if _FINDERS[0] in sys.meta_path:
        return
    imported = sys.modules.get(ROOT)
    if imported is not None and not hasattr(imported, _MARK):
        raise ImportError(
            "[edgewise.compat] must be imported before ExecuTorch; got it imported from "
            f"{getattr(imported, '__path__', ['?'])[0]}; try import edgewise.compat.executorch "
            "as the first line"
        )
    connect()
    sys.meta_path.insert(0, _FINDERS[0])
    sys.meta_path.append(_FINDERS[1])


def uninstall() -> None:
    """Undoes `install`: later imports find the real ExecuTorch again."""
    disconnect()
    for finder in _FINDERS:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
    # Files of ExecuTorch's own hold what was served to them.
    ours = [n for n, m in sys.modules.items() if hasattr(m, _MARK) or n.startswith(OWN_FILES)]
    for name in ours:
        del sys.modules[name]
    for name in ("edgewise.compat.llama", "edgewise.compat.quantized_operators"):
        operators = sys.modules.pop(name, None)
        if operators is not None:
            operators.undefine()


def _not_served(path: str) -> str:
    return f"[edgewise.compat] serves what docs/compat.md lists; got {path}; {advice(path)}"
