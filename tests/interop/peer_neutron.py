"""ExecuTorch's own tests of NXP's Neutron, through our Neutron backend.

The peer's tests of operators quantize a net, lower it and compare NXP's simulator with its kernels.
Here they run unchanged as far as they use the harness around them, which is stood in for: each net
is quantized by our quantizer, lowered by our partitioner, run in LiteRT's reference kernels and
compared with the quantized program in eager PyTorch, in steps of the result's scale. What the peer
delegates whole shall be delegated whole. Tests that look into the peer's converter are skipped.
Those that fail want a refusal of what is delegated here. What follows the folder goes to pytest.

Run by hand, with the extras `neutron` and `peer`, and with the peer's folder `backends/nxp/tests`:

    python tests/interop/peer_neutron.py DIR
    python tests/interop/peer_neutron.py DIR --tests ir/converter/node_converter -k softmax
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from peer_arm import Watching, off, outside_of_delegates, step_of
from torch.utils._pytree import tree_flatten

import edgewise
import edgewise.compat.executorch  # installs the import paths
from edgewise.backends.neutron import (
    CustomDelegationOptions,
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.compat.exir import EdgeProgramManager
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

ROOT = "executorch.backends.nxp"
PEER = f"{ROOT}.tests"
FILES = ("models", "use_qat")
"""Of the peer's harness, what is taken as it is."""
INSIDE = (f"{ROOT}.", "executorch.examples", "executorch.extension.export_util")


@dataclass
class ModelInputSpec:
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    dim_order: torch.memory_format = torch.contiguous_format

    def example(self, low: float, high: float) -> torch.Tensor:
        values = torch.rand(self.shape) * (high - low) + low
        order = self.dim_order if len(self.shape) == 4 else torch.contiguous_format
        return values.to(self.dtype).contiguous(memory_format=order)


class RandomDatasetCreator:
    def __init__(self, *_: Any, low: float = 0.0, high: float = 1.0, **__: Any) -> None:
        self.low, self.high = low, high


class Verifier:
    """Stands for both of the peer's: what it expects outside of delegates."""

    def __init__(self, *given: Any, **options: Any) -> None:
        outside = options.get("expected_non_delegated_ops", options.get("exp_non_delegated_nodes"))
        self.outside = list(outside or (given[1] if len(given) > 1 else ()))


def specs_of(given: Any) -> tuple[ModelInputSpec, ...]:
    if isinstance(given, tuple) and all(isinstance(size, int) for size in given):
        return (ModelInputSpec(given),)
    return tuple(ModelInputSpec(x) if isinstance(x, tuple) else x for x in given)


def as_tuple(x: Any) -> tuple[torch.Tensor, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def quantized(
    model: torch.nn.Module,
    batches: Sequence[tuple[torch.Tensor, ...]],
    qat: bool = False,
    train: Callable[[Any], None] | None = None,
    quantizer: Any = None,
) -> tuple[Any, torch.export.ExportedProgram]:
    module = torch.export.export(model.eval(), batches[0]).module()
    quantizer = quantizer or NeutronQuantizer(is_qat=qat)
    prepared = (prepare_qat_pt2e if qat else prepare_pt2e)(module, quantizer)
    if train:
        train(prepared)
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
        converted = convert_pt2e(prepared)
        return converted, torch.export.export(converted, batches[0])


def lowered(program: torch.export.ExportedProgram, **options: Any) -> EdgeProgramManager:
    kept = options.pop("custom_delegation_options", None) or CustomDelegationOptions()
    spec = generate_neutron_compile_spec(
        options.pop("target", "imxrt700"), neutron_converter_flavor="reference", **options
    )
    return edgewise.to_edge_transform_and_lower(
        program, partitioner=[NeutronPartitioner(spec, kept)]
    )


SPEC_OPTIONS = ("operators_not_to_delegate", "use_neutron_for_format_conversion")


def to_quantized_edge_program(
    model: torch.nn.Module, input_spec: Any, *_: Any, **options: Any
) -> EdgeProgramManager:
    specs = specs_of(input_spec)
    given = options.get("get_calibration_inputs_fn")
    if isinstance(given, MagicMock) or given is None:
        batches = [tuple(spec.example(-2, 2) for spec in specs) for _ in range(4)]
    else:
        batches = [as_tuple(x) for x in given(specs)]
    quantizer = options["get_quantizer_fn"]() if options.get("get_quantizer_fn") else None
    _, program = quantized(
        model, batches, options.get("use_qat", False), options.get("train_fn"), quantizer
    )
    keys = (*SPEC_OPTIONS, "custom_delegation_options", "target")
    return lowered(program, **{key: options[key] for key in keys if options.get(key) is not None})


def lower_run_compare(
    model: torch.nn.Module,
    input_spec: Any,
    dlg_model_verifier: Verifier,
    request: Any = None,
    dataset_creator: Any = None,
    output_comparator: Any = None,
    *_: Any,
    **options: Any,
) -> None:
    specs = specs_of(input_spec)
    low, high = getattr(dataset_creator, "low", 0.0), getattr(dataset_creator, "high", 1.0)
    if isinstance(low, MagicMock):
        low, high = -1.0, 1.0
    batches = [tuple(spec.example(low, high) for spec in specs) for _ in range(4)]
    converted, program = quantized(
        model, batches, options.get("use_qat", False), options.get("train_fn")
    )
    edge = lowered(program, **{key: options[key] for key in SPEC_OPTIONS if options.get(key)})
    nodes = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    left = outside_of_delegates(nodes)
    report = edge.delegation_report()
    reasons = [str(r) for n in report.nodes if n.operator in left for r in n.refusals]
    model_here = edgewise.load(bytes(edge.to_executorch().buffer))
    ends = next(reversed(program.graph.nodes)).args[0]
    worst = 0.0
    watching = Watching(converted)
    for batch in batches[:2]:
        with torch.no_grad():
            wanted, _spec = tree_flatten(watching.run(*batch))
        found, _spec = tree_flatten(model_here(*batch))
        steps = [off(y, w, step_of(n)) for y, w, n in zip(found, wanted, ends, strict=True)]
        worst = max([worst, *steps])
    if left and not dlg_model_verifier.outside:
        pytest.fail(f"left: {left}: {reasons[:2]}", pytrace=False)
    if worst > 1.01 and not watching.nan:
        pytest.fail(f"off: {worst:.1f} steps", pytrace=False)


def lower_run_compare_ptq_qat(
    model: Any,
    input_spec: Any,
    verifier: Any,
    request: Any,
    train_fn: Any,
    *others: Any,
    **_: Any,
) -> None:
    lower_run_compare(model, input_spec, verifier, request, *others[:2])
    lower_run_compare(
        model, input_spec, verifier, request, *others[:2], use_qat=True, train_fn=train_fn
    )


def base(target: Any) -> str:
    """An operator's name without its overload, and without what a copy adds."""
    if str(target).endswith("call_delegate"):
        return "delegate"
    if isinstance(target, str):  # an alias, as exir_ops.edge.aten.view_copy.default
        name = target.split(".")[-2 if "edge" in target else -1]
    else:
        name = getattr(target, "__name__", str(target)).partition(".")[0]
    return name.removesuffix("_copy").removeprefix("_")


def graph_contains_any_of_ops(graph: torch.fx.Graph, ops: Iterable[Any]) -> bool:
    wanted = {base(op) for op in ops}
    return any(n.op == "call_function" and base(n.target) in wanted for n in graph.nodes)


class Mocker:
    """As much of pytest-mock as tests ask of the harness."""

    def spy(self, of: Any, name: str) -> Any:
        pytest.skip(f"looks into {of}.{name}")

    def __getattr__(self, name: str) -> Any:
        return MagicMock()


class Plugin:
    @pytest.fixture
    def mocker(self) -> Mocker:
        return Mocker()

    @pytest.fixture
    def train_fn(self) -> None:
        return None


OWN: dict[str, dict[str, Any]] = {
    "executorch_pipeline": {
        "ModelInputSpec": ModelInputSpec,
        "to_quantized_edge_program": to_quantized_edge_program,
        "to_quantized_executorch_program": lambda *a, **k: to_quantized_edge_program(
            *a, **k
        ).to_executorch(),
        "to_model_input_spec": specs_of,
        "neutron_target_spec": SimpleNamespace(),
    },
    "nsys_testing": {
        "lower_run_compare": lower_run_compare,
        "lower_run_compare_ptq_qat": lower_run_compare_ptq_qat,
    },
    "graph_verifier": {"DetailedGraphVerifier": Verifier, "BaseGraphVerifier": Verifier},
    "dataset_creator": {"RandomDatasetCreator": RandomDatasetCreator},
    "executors": {
        "graph_contains_any_of_ops": graph_contains_any_of_ops,
        "graph_contains_any": lambda graph, ask: any(map(ask, graph.nodes)),
    },
}


class Inside(MagicMock):
    """What of the peer's inside is called skips the test."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        pytest.skip(f"looks into {self._mock_name}")


class Finder:
    """The peer's files, stand-ins for its harness, and for its inside a module of anything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        own = name.removeprefix(f"{PEER}.")
        if own in FILES:
            return importlib.util.spec_from_file_location(name, self._folder / f"{own}.py")
        if (
            name == PEER
            or own in (*OWN, "ops_aliases")
            or (name.startswith(INSIDE) and not self._served(name))
        ):
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def _served(self, name: str) -> bool:
        for finder in sys.meta_path:
            if finder is not self and type(finder).__module__.startswith("edgewise"):
                try:
                    if finder.find_spec(name, None):
                        return True
                except ImportError:
                    return False
        return False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: Any = ModuleType(spec.name)
        file = spec.name.removeprefix(f"{PEER}.")
        vars(module).update(OWN.get(file, {}))
        if file == "ops_aliases":
            lines = self._folder.joinpath("ops_aliases.py").read_text()
            vars(module).update(re.findall(r"^(\w+) = ([\w.]+)$", lines, re.MULTILINE))

        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            kind = MagicMock if spec.name.startswith(PEER) else Inside
            return kind(name=f"{spec.name}.{name}")

        module.__getattr__ = attribute
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog="further arguments are pytest's"
    )
    parser.add_argument("folder", type=Path, help="the peer's folder `backends/nxp/tests`")
    parser.add_argument("--tests", default="ir/converter/node_converter", help="a folder in it")
    options, others = parser.parse_known_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        tests = Path(root, "tests")
        shutil.copytree(options.folder / options.tests, tests)
        ini = Path(root, "pytest.ini")
        ini.write_text("[pytest]\nmarkers = timeout\n")
        sys.meta_path.insert(0, Finder(options.folder.resolve()))  # type: ignore[arg-type]
        given = [str(tests), "-c", str(ini), f"--rootdir={root}", "--import-mode=importlib"]
        code = pytest.main([*given, *others], plugins=[Plugin()])
    sys.exit(code)


if __name__ == "__main__":
    main()
