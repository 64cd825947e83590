"""The backend suite of ExecuTorch (`backends/test/suite`), with edgewise behind its import paths.

Only what the peer wrote for testing is taken from its folder `backends` (of a checkout, or of the
installed package): everything else that the suite imports is `edgewise.compat`. What follows the
folder goes to pytest; flows are marks.

    python tests/interop/peer_suite.py DIR -m flow_xnnpack
    python tests/interop/peer_suite.py DIR -m flow_xnnpack_static_int8_per_tensor -k conv
    python tests/interop/peer_suite.py DIR --tests xnnpack/test/ops

Run by hand, with the extra `peer`.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.export import ExportedProgram
from torch.testing import FileCheck

import edgewise.compat.executorch  # noqa: F401  (installs the import paths)
from edgewise.compat import exir
from edgewise.compat.exir import EdgeProgramManager

ROOT = "executorch.backends"
PEER_EXIR = "executorch.exir"
FOLDERS = ("test", "xnnpack/test", "transforms")
TAKEN = (
    f"{ROOT}.test",
    f"{ROOT}.transforms.duplicate_dynamic_quant_chain",
    f"{ROOT}.xnnpack.test",
)
PASSES = f"{ROOT}.transforms"
INSIDE = {
    "executorch.backends.xnnpack._passes": "XNNPACKPassManager",
    "executorch.backends.xnnpack.utils.utils": "get_param_tensor",
    "executorch.exir.backend.backend_api": "validation_disabled",
    "executorch.exir.passes.constant_prop_pass": "constant_prop_pass",
    "executorch.exir.passes.spec_prop_pass": "SpecPropPass",
    "executorch.exir.dim_order_utils": "get_memory_format",
    "executorch.exir.print_program": "pretty_print print_program",
    "executorch.exir.program._program": "_transform",
}
"""What the peer's harness imports of the peer's inside."""


class TestsOfThePeer(MetaPathFinder):
    """Finds the peer's test packages in its folder, before edgewise.compat says what it has not."""

    def __init__(self, backends: Path) -> None:
        self._backends = backends

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(TAKEN) and name != PASSES:
            return None
        place = self._backends.joinpath(*name.split(".")[2:])
        if place.is_dir():
            start = place / "__init__.py"
            if not start.exists() or name == PASSES:
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(place)]
                return spec
            return importlib.util.spec_from_file_location(
                name, start, submodule_search_locations=[str(place)]
            )
        return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))


def memory_format(order: Sequence[int] | None) -> torch.memory_format:
    """Of an order of dimensions; contiguous without one."""
    lying = order is not None and list(order) == [0, 2, 3, 1]
    return torch.channels_last if lying else torch.contiguous_format


REAL = {"validation_disabled": nullcontext, "get_memory_format": memory_format}
"""What the harness calls; the rest of INSIDE may be anything."""


def lowered(program: ExportedProgram, **options: Any) -> EdgeProgramManager:
    """With its programs, before delegation and behind it, where the suite looks for them."""
    made = exir.to_edge_transform_and_lower(program, **options)
    before = exir.to_edge(copy.deepcopy(program)).exported_program()
    vars(made)["_etrecord"] = SimpleNamespace(edge_dialect_program=before)
    vars(made)["_edge_programs"] = {name: made.exported_program(name) for name in made.methods}
    return made


def stand_in() -> None:
    """Serves the names of INSIDE."""
    vars(importlib.import_module(PEER_EXIR))["to_edge_transform_and_lower"] = lowered
    for path, names in INSIDE.items():
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError:
            module = sys.modules[path] = ModuleType(path)
        for name in names.split():
            setattr(module, name, REAL.get(name) or MagicMock(name=name))


class NamesHere:
    """`FileCheck` of generated code, for the names that operators have here."""

    def check(self, key: str) -> Any:
        return FileCheck().check(_name_here(key))

    def check_not(self, key: str) -> Any:
        return FileCheck().check_not(_name_here(key))

    def check_count(self, key: str, count: int, exactly: bool = False) -> Any:
        return FileCheck().check_count(_name_here(key), count, exactly=exactly)


_EDGE = "executorch_exir_dialects_edge__ops_"


def _name_here(key: str) -> str:
    if not key.startswith(_EDGE):
        return key
    namespace, _, name = key.removeprefix(_EDGE).partition("_")
    operator, _, overload = name.rpartition("_")
    return f"torch.ops.{namespace}.{operator}.{overload}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="further arguments are pytest's"
    )
    parser.add_argument("folder", type=Path, help="the peer's folder `backends`")
    parser.add_argument("--tests", default="test/suite/operators", help="a folder or file in it")
    options, others = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as root:
        # Apart from the peer's own packages around them, which pytest would import.
        backends = Path(root, *ROOT.split("."))
        for part in FOLDERS:
            shutil.copytree(options.folder / part, backends / part)
        ini = Path(root, "pytest.ini")
        ini.write_text("[pytest]\nconsider_namespace_packages = true\nmarkers = timeout\n")
        sys.meta_path.insert(0, TestsOfThePeer(backends))
        sys.path.insert(0, root)
        stand_in()
        harness: Any = importlib.import_module(f"{ROOT}.test.harness.tester")
        harness.FileCheck = NamesHere
        given = [str(backends / options.tests), "-c", str(ini), f"--rootdir={root}"]
        code = pytest.main([*given, "--import-mode=importlib", *others])
    sys.exit(code)


if __name__ == "__main__":
    main()
