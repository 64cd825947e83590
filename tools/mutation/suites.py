"""Which tests a developer runs for a file, as a table of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Suite:
    """Files of one kind and their tests, the quick ones first.

    files: glob patterns. programs: names of native tests. tests: files and folders for pytest.
    native: whether the sources are compiled, so that they are built before the tests run.
    """

    files: Sequence[str]
    tests: Sequence[str]
    programs: Sequence[str] = field(default=())
    native: bool = False

    def paths(self) -> list[Path]:
        """The files, relative to the project's root, in the order of their names."""
        found = {p for pattern in self.files for p in ROOT.glob(pattern)}
        return sorted(p.relative_to(ROOT) for p in found if p.name != "__init__.py")


_ETHOSU = "tests/backends/ethosu/test_ethosu_"
_XNNPACK = "tests/backends/xnnpack/test_xnnpack_"
_TABLES = "tests/docs/test_generated_docs.py"  # a row's accuracy is what its tests take it to be

SUITES = {
    "xnnpack rows": Suite(
        ["src/edgewise/backends/xnnpack/operators/*.py"],
        [
            _TABLES,
            *[
                f"{_XNNPACK}{name}.py"
                for name in ("rows", "quantized_rows", "static_rules", "quantized", "dynamic")
            ],
            *[f"{_XNNPACK}{name}.py" for name in ("half", "special_values")],
        ],
    ),
    "npu rows": Suite(
        [
            "src/edgewise/backends/ethosu/operators/*.py",
            "src/edgewise/backends/neutron/operators/*.py",
        ],
        [
            _TABLES,
            f"{_ETHOSU}rows.py",
            "tests/backends/neutron/test_neutron_rows.py",
            f"{_ETHOSU}partitioner.py",
            "tests/backends/neutron/test_neutron_partitioner.py",
            *[
                f"{_ETHOSU}{name}.py"
                for name in ("fallback", "quantizer", "reach", "nets", "whole")
            ],
            *[f"tests/quantize/test_quantize_{name}.py" for name in ("resampling", "masks")],
        ],
    ),
    "passes": Suite(
        ["src/edgewise/backends/xnnpack/passes/*.py", "src/edgewise/edge/canonicalize/*.py"],
        [
            f"{_XNNPACK}passes.py",
            "tests/test_passes.py",
            f"{_XNNPACK}rows.py",  # a spelling whose sizes are wrong is noticed where it is lowered
            "tests/edge",
            *[f"{_XNNPACK}{name}.py" for name in ("quantized", "quantized_rows", "dynamic")],
            *[f"{_XNNPACK}{name}.py" for name in ("asked_for", "weight_only", "half")],
            "tests/inspect/test_inspect_needs.py",
        ],
    ),
    "kernels": Suite(
        ["native/kernels/*.cpp"],
        [
            "tests/runtime/test_runtime_schemas.py",
            "tests/runtime/test_runtime_wide_loops.py",
            "tests/quantize/test_quantized_embeddings.py",
            "tests/llm/test_llm_attention.py",
            "tests/conformance",
        ],
        ["edgewise_kernels_cases_test", "edgewise_kernels_types_test"],
        native=True,
    ),
    "loader": Suite(
        [f"native/core/{name}.cpp" for name in ("program", "pte_*", "read_*", "data_file")],
        [
            "tests/runtime/test_runtime_bad_files.py",
            "tests/runtime/test_runtime_loading.py",
            "tests/interop/test_interop_data_files.py",
            "tests/profiling",
        ],
        [
            f"edgewise_core_{name}_test"
            for name in ("load", "damage", "plan", "execute", "data_file")
        ],
        native=True,
    ),
}
