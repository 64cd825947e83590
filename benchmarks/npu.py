"""Whole models on Ethos-U: Vela's estimates, and what the simulator computes.

Columns: the share of multiply-accumulates and the number of delegates on the NPU; Vela's
cycles and inferences per second (estimates of the compiler, nothing is measured on a
device); the largest difference between the simulator's outputs and those of the quantized
program in eager PyTorch (PT2E), in steps of the output, and its SQNR; for comparison the SQNR
of the quantized program against the float32 model, and against itself where a thousandth of its
inputs (at least one) are a step larger; seconds of lowering, and of Vela in it;
seconds of the first simulated inference, which decodes the weights, and of the next.

Weights are random, but for the digits: these are trained here. A network of random weights
enlarges the one step by which a layer may round differently.

`--speed` prints only how long MobileNetV2 for Ethos-U55 takes, against its limits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from _npu import Accuracy, digits, loaded, output_step, sqnr, table, write  # noqa: E402

import edgewise  # noqa: E402
from edgewise.backends.ethosu import (  # noqa: E402
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
)
from edgewise.backends.ethosu.lowering import vela  # noqa: E402
from edgewise.quantize.flow import quantize  # noqa: E402
from examples.models import MODELS  # noqa: E402

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
NAMES = ("resnet8", "ds_cnn", "mobilenet_v1_025", "autoencoder", "mobilenet_v2")
DOCUMENT = ROOT / "docs" / "ethosu.md"


class _Clock:
    """Seconds that Vela takes of a lowering."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._compile = vela.compile_tosa

    def __enter__(self) -> _Clock:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return self._compile(*args, **options)
            finally:
                self.seconds += time.perf_counter() - start

        vela.compile_tosa = timed
        return self

    def __exit__(self, *_: object) -> None:
        vela.compile_tosa = self._compile


def lowered(program: torch.export.ExportedProgram, target: str) -> tuple[Any, float, float]:
    """The finished program, seconds of lowering, seconds of Vela in them."""
    with _Clock() as clock:
        start = time.perf_counter()
        partitioner = EthosUPartitioner(EthosUCompileSpec(target))
        edge = edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner])
        finished = edge.to_executorch()
        return finished, time.perf_counter() - start, clock.seconds


def timed(function: Any, *inputs: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*inputs)
    return result, time.perf_counter() - start


def quantized(name: str) -> tuple[torch.export.ExportedProgram, tuple[torch.Tensor, ...], Any]:
    """The int8 program, inputs, and what the model computes of them in float32."""
    spec = MODELS[name]
    inputs = spec.example_inputs(1)
    batches = [spec.example_inputs(seed) for seed in (1, 2, 3)]
    model = spec.build(0)
    with torch.no_grad():
        real = model(*inputs)
    program = quantize(model, inputs, "int8", EthosUQuantizer, calibration=batches, progress=False)
    return program, inputs, real


def nudged(inputs: Sequence[torch.Tensor], step: float) -> list[torch.Tensor]:
    """A thousandth of the elements, and at least one, larger by `step`."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for x in inputs:
        chosen = torch.randperm(x.numel(), generator=generator)[: -(-x.numel() // 1000)]
        y = x.clone().reshape(-1)
        y[chosen] += step
        made.append(y.reshape(x.shape))
    return made


def input_step(program: torch.export.ExportedProgram) -> float:
    """The scale of the first quantization."""
    node = next(n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target))
    return float(node.args[1])


def whole_models(names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        program, inputs, real = quantized(name)
        with torch.no_grad():
            expected = program.module()(*inputs)
            other = program.module()(*nudged(inputs, input_step(program)))
        step = output_step(program)
        for target in TARGETS:
            finished, seconds, in_vela = lowered(program, target)
            simulate = loaded(finished)
            found, first = timed(simulate, *inputs)
            again = min(timed(simulate, *inputs)[1] for _ in range(3))
            off = (found - expected).double()
            report = finished.delegation_report()
            figures = [e.figures for e in report.estimates.values()]
            cycles = sum(f["cycles"] for f in figures)
            rows.append(
                {
                    "model": name,
                    "target": target,
                    "MACs %": 100 * report.share("macs"),
                    "delegates": len(report.delegates),
                    "cycles": int(cycles),
                    "inferences/s": 1 / sum(1 / f["inferences per second"] for f in figures),
                    "steps": round(float(off.abs().max()) / step),
                    "SQNR dB": sqnr(found, expected),
                    "PT2E to float32 dB": sqnr(expected, real),
                    "PT2E nudged dB": sqnr(other, expected),
                    "lowering s": seconds,
                    "Vela s": in_vela,
                    "simulated s": first,
                    "again s": again,
                }
            )
            print(rows[-1], file=sys.stderr)
    return rows


def _on_host(program: torch.export.ExportedProgram, accuracy: Accuracy) -> dict[str, Any]:
    return {f"{t} %": accuracy(loaded(lowered(program, t)[0])) for t in TARGETS}


def speed(name: str = "mobilenet_v2", target: str = TARGETS[0], repeats: int = 5) -> str:
    """Minima of several runs, and the limits: 1.3 times Vela and 3 s; 1 s."""
    program, inputs, _ = quantized(name)
    lowering, in_vela, first, again = [], [], [], []
    for _ in range(repeats):
        finished, seconds, vela_seconds = lowered(program, target)
        simulate = loaded(finished)
        lowering.append(seconds)
        in_vela.append(vela_seconds)
        first.append(timed(simulate, *inputs)[1])
        again.append(timed(simulate, *inputs)[1])
    limit = 1.3 * min(in_vela) + 3
    return (
        f"{name}, {target}, minima of {repeats}:\n"
        f"lowering {min(lowering):.2f} s, Vela {min(in_vela):.2f} s of it "
        f"({min(lowering) / min(in_vela):.2f} x); limit {limit:.2f} s\n"
        f"simulation {min(first):.2f} s the first time, then {min(again):.2f} s; limit 1 s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=NAMES, help="names of examples.models")
    parser.add_argument("--images", type=int, default=359, help="test images of digits; 0: none")
    parser.add_argument(
        "--write", action="store_true", help=f"write the tables into {DOCUMENT.name}"
    )
    parser.add_argument("--speed", action="store_true", help="times against limits, no more")
    options = parser.parse_args()
    if options.speed:
        print(speed())
        return
    tables = {}
    if options.models:
        tables["models"] = table(whole_models(options.models))
    if options.images:
        tables["digits"] = table(digits(options.images, EthosUQuantizer, _on_host))
    print("\n".join(tables.values()))
    if options.write:
        for name, text in tables.items():
            write(DOCUMENT, text, name)


if __name__ == "__main__":
    main()
