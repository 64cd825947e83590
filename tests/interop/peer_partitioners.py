"""The nets of ExecuTorch's operator suite (`backends/test/suite/operators`), lowered for one of its
backends by its own lowering and by ours.

Both sides ask the same partitioner and backend of the installed ExecuTorch. Compared are the
delegates and the operators that are left, and for XNNPACK what ExecuTorch's runtime computes.

Run by hand, with the extra `peer`, and with the peer's folder `backends` (of a checkout, or of the
installed package). What follows the folder goes to pytest; each line of --json is a case:

    python tests/interop/peer_partitioners.py DIR --backend vulkan --json vulkan.jsonl
    python tests/interop/peer_partitioners.py DIR --backend xnnpack -k conv
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

import edgewise
from edgewise.edge.graph import calls, is_getitem
from edgewise.registry import partitioner_for

DELEGATE = "executorch_call_delegate"


def partitioner(backend: str) -> Any:
    """A new one of ExecuTorch's; of XNNPACK, too, which is also a backend of ours."""
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return XnnpackPartitioner()
    made: Any = partitioner_for(backend)
    return made.wrapped


def sides() -> dict[str, Callable[..., Any]]:
    """What lowers, by side."""
    from executorch.exir import to_edge_transform_and_lower

    return {"here": edgewise.to_edge_transform_and_lower, "peer": to_edge_transform_and_lower}


def named(node: torch.fx.Node) -> str:
    """The operator, by the name that both sides have for it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(node.target)
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


@contextmanager
def quiet() -> Iterator[None]:
    """Backends print what they do."""
    logging.disable(logging.WARNING)  # they set levels of their own
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Cases:
    """A plugin of pytest: the suite's `test_runner`, which notes what becomes of each net."""

    def __init__(self, backend: str, lines: Path | None) -> None:
        self.backend, self.lines = backend, lines
        self.rows: list[dict[str, Any]] = []

    @pytest.fixture
    def test_runner(self, request: pytest.FixtureRequest) -> Any:
        """Called with a module and inputs, as the suite's."""

        def compared(
            model: torch.nn.Module, inputs: Any, dynamic_shapes: Any = None, **ignored: Any
        ) -> None:
            del ignored
            self.compare(request.node.name, model.eval(), inputs, dynamic_shapes)

        flow = SimpleNamespace(is_delegated=True, quantize=False, name=self.backend)
        return SimpleNamespace(lower_and_run_model=compared, _flow=flow, is_quantized=lambda: False)

    def compare(self, name: str, model: torch.nn.Module, inputs: Any, shapes: Any) -> None:
        """Adds a row."""
        row: dict[str, Any] = {"name": name}
        for side, lower in sides().items():
            program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
            try:
                with quiet():
                    edge = lower(program, partitioner=[partitioner(self.backend)])
                    row[side] = self.seen(edge.exported_program())  # emitting changes it there
                    pte = bytes(edge.to_executorch().buffer)
                if self.backend == "xnnpack":
                    row[side]["error"] = error(pte, model, inputs)
            except Exception as failure:  # whatever a backend raises is an outcome
                row[side] = {"raises": f"{type(failure).__name__}: {failure}"[-300:]}
        self.rows.append(row)
        if self.lines is not None:
            with self.lines.open("a") as file:
                file.write(json.dumps(row) + "\n")

    @staticmethod
    def seen(program: ExportedProgram) -> dict[str, Any]:
        """The delegates, and what is left beside them."""
        found = Counter(named(n) for n in calls(program.graph) if not is_getitem(n))
        delegates = found.pop(DELEGATE, 0)
        return {"delegates": delegates, "left": dict(found)}


def error(pte: bytes, model: torch.nn.Module, inputs: Any) -> float:
    """The greatest distance to eager PyTorch, on ExecuTorch's runtime. What has no kernel there
    counts as right: it is the same on both sides."""
    from executorch.runtime import Runtime

    with torch.no_grad():
        wanted = tree_leaves(model(*copy.deepcopy(inputs)))
    try:
        method = Runtime.get().load_program(pte).load_method("forward")
        got = method.execute(tree_leaves(copy.deepcopy(inputs)))
    except RuntimeError:
        return 0.0
    pairs = [(a, b) for a, b in zip(got, wanted, strict=True) if b.numel()]
    return max((float((a.double() - b.double()).abs().max()) for a, b in pairs), default=0.0)


def outcome(row: dict[str, Any]) -> str:
    """One of a few."""
    here, peer = row["here"], row["peer"]
    if "raises" in here:
        return "both raise" if "raises" in peer else "only here raises"
    if "raises" in peer:
        return "only ExecuTorch raises"
    if here.get("error", 0) > 10 * max(peer.get("error", 0), 1e-6):
        return "further from PyTorch here"
    left = [(sum(side["left"].values()), side["delegates"]) for side in (here, peer)]
    if left[0] == left[1]:
        return "the same"
    return "less left, or fewer delegates here" if left[0] < left[1] else "more left here"


def main() -> int:
    """Prints how many nets have each outcome, and the nets of the bad ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backends", type=Path, metavar="DIR")
    parser.add_argument("--backend", default="vulkan")
    parser.add_argument("--json", type=Path)
    given, rest = parser.parse_known_args()
    cases = Cases(given.backend, given.json)
    with tempfile.TemporaryDirectory() as folder:
        for path in (given.backends / "test/suite/operators").glob("test_*.py"):
            shutil.copy(path, folder)  # without the suite's own `conftest.py`
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        pytest.main([folder, "-q", "-p", "no:cacheprovider", *rest], plugins=[cases])
    for name, count in Counter(map(outcome, cases.rows)).most_common():
        print(f"{count:5d}  {name}")
    for row in cases.rows:
        if outcome(row) in ("only here raises", "more left here", "further from PyTorch here"):
            print(outcome(row), json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
