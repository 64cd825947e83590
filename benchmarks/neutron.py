"""Whole models on Neutron, in the flavor "reference": LiteRT's kernels instead of the NPU.

Columns: the share of multiply-accumulates and the number of delegates on the NPU; bytes of the
file; the largest difference of an operator's results to those of the quantized program in eager
PyTorch, both from the same integers, in steps, and the percentage of results that differ; the
same of the whole program's outputs, and their SQNR.

Weights are random, but for the digits: these are trained here. A network of random weights
enlarges the one step by which a layer may round differently. No times: the kernels that run
here are there to be read, not to be fast, and the NPU is not simulated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "backends" / "neutron")]

from _npu import Accuracy, digits, loaded, output_step, sqnr, table, write  # noqa: E402
from neutron_reference import Difference, by_operator, parts  # noqa: E402

import edgewise  # noqa: E402
from edgewise.backends.neutron import (  # noqa: E402
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.edge.program import Constants  # noqa: E402
from edgewise.quantize.flow import quantize  # noqa: E402
from examples.models import MODELS  # noqa: E402

NAMES = ("resnet8", "ds_cnn", "mobilenet_v1_025", "autoencoder", "mobilenet_v2")
DOCUMENT = ROOT / "docs" / "neutron.md"
TARGET = "imxrt700"


def partitioner() -> NeutronPartitioner:
    return NeutronPartitioner(
        generate_neutron_compile_spec(TARGET, neutron_converter_flavor="reference")
    )


def lowered(program: torch.export.ExportedProgram) -> Any:
    return edgewise.to_edge_transform_and_lower(
        program, partitioner=[partitioner()]
    ).to_executorch()


def integers(part: torch.export.ExportedProgram) -> list[np.ndarray[Any, Any]]:
    """Inputs of a partition."""
    constants, rng = Constants(part), np.random.default_rng(0)
    shapes = [
        tuple(n.meta["val"].shape)
        for n in part.graph.nodes
        if n.op == "placeholder" and n not in constants
    ]
    return [np.clip(rng.normal(0, 40, s), -128, 127).astype(np.int8) for s in shapes]


def operators(program: torch.export.ExportedProgram) -> dict[str, Difference]:
    found: dict[str, Difference] = {}
    for part in parts(program, partitioner()):
        for name, one in by_operator(part, integers(part)).items():
            total = found.setdefault(name, Difference())
            total.steps = max(total.steps, one.steps)
            total.different += one.different
            total.elements += one.elements
    return found


def whole_models(names: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """By model, and by model and operator."""
    rows, single = [], []
    for name in names:
        spec = MODELS[name]
        inputs = spec.example_inputs(1)
        batches = [spec.example_inputs(seed) for seed in (1, 2, 3)]
        program = quantize(
            spec.build(0), inputs, "int8", NeutronQuantizer, calibration=batches, progress=False
        )
        with torch.no_grad():
            expected = program.module()(*inputs)
        finished = lowered(program)
        found = loaded(finished)(*inputs)
        report = finished.delegation_report()
        off = (found - expected).double()
        by_name = operators(program)
        for operator, one in by_name.items():
            single.append(
                {
                    "model": name,
                    "operator": operator,
                    "steps": one.steps,
                    "different %": 100 * one.different / one.elements,
                    "results": str(one.elements),
                }
            )
        elements = sum(d.elements for d in by_name.values())
        rows.append(
            {
                "model": name,
                "MACs %": 100 * report.share("macs"),
                "delegates": len(report.delegates),
                "bytes": len(bytes(finished.buffer)),
                "steps of an operator": max(d.steps for d in by_name.values()),
                "different %": 100 * sum(d.different for d in by_name.values()) / elements,
                "steps of the outputs": round(float(off.abs().max()) / output_step(program)),
                "SQNR dB": sqnr(found, expected),
            }
        )
        print(rows[-1], file=sys.stderr)
    return rows, single


def _on_host(program: torch.export.ExportedProgram, accuracy: Accuracy) -> dict[str, Any]:
    finished = lowered(program)
    return {
        "reference flavor %": accuracy(loaded(finished)),
        "MACs %": 100 * finished.delegation_report().share("macs"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=NAMES, help="names of examples.models")
    parser.add_argument("--images", type=int, default=359, help="test images of digits; 0: none")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    options = parser.parse_args()
    pieces = [table(rows) for rows in whole_models(options.models)] if options.models else []
    if options.images:
        pieces.append(table(digits(options.images, NeutronQuantizer, _on_host)))
    text = "\n".join(pieces)
    print(text)
    if options.write:
        write(DOCUMENT, text)


if __name__ == "__main__":
    main()
