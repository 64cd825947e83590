"""What the benchmarks of NPUs share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from edgewise.quantize.quantizer import TableQuantizer

Accuracy = Callable[[Callable[[torch.Tensor], torch.Tensor]], float]


def loaded(finished: Any) -> Callable[..., torch.Tensor]:
    """A function of the inputs that runs the program on the host."""
    from edgewise.runtime import Runtime

    method = Runtime.get().load_program(finished.buffer).load_method("forward")
    return lambda *inputs: torch.from_numpy(np.array(method.execute(list(inputs))[0]))


def output_step(program: torch.export.ExportedProgram) -> float:
    """The scale of the output's quantization."""
    result = next(iter(reversed(program.graph.nodes))).args[0][0]
    return float(result.args[1])


def table(rows: Sequence[dict[str, Any]]) -> str:
    head = list(rows[0])
    lines = [head, ["---"] * len(head)]
    lines += [[_cell(row[key]) for key in head] for row in rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def sqnr(found: torch.Tensor, expected: torch.Tensor) -> float | str:
    """In dB."""
    noise = float((found - expected).double().square().sum())
    signal = float(expected.double().square().sum())
    return 10 * float(np.log10(signal / noise)) if noise else "exact"


def write(page: Path, text: str, name: str = "figures") -> None:
    """Between the marks of that name in a page."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = page.read_text().split(start)
    page.write_text(before + start + "\n" + text + "\n" + end + rest.split(end)[1])


def digits(
    count: int,
    quantizer: Callable[[], TableQuantizer],
    on_host: Callable[[torch.export.ExportedProgram, Accuracy], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Accuracy on `count` test images of classifiers that are trained here.

    on_host: further columns, of the quantized program; its second argument is the accuracy of a
    function of one image.
    """
    from edgewise.quantize.flow import quantize
    from examples.models.digits import DigitsCnn, DigitsTransformer, load_digits, train

    images, labels, test, wanted = load_digits()
    test, wanted = test[:count], wanted[:count]

    def percent(outputs: torch.Tensor) -> float:
        return 100 * float((outputs.argmax(1) == wanted).float().mean())

    def accuracy(run: Callable[[torch.Tensor], torch.Tensor]) -> float:
        return percent(torch.cat([run(x[None]) for x in test]))

    rows = []
    for name, factory in (("digits CNN", DigitsCnn), ("digits transformer", DigitsTransformer)):
        torch.manual_seed(0)
        model = train(factory(), images, labels)
        batches = [(image[None],) for image in images[:200]]
        program = quantize(
            model, batches[0], "int8", quantizer, calibration=batches, progress=False
        )
        with torch.no_grad():
            row = {
                "model": name,
                "images": count,
                "float32 %": percent(model(test)),
                "PT2E int8 %": accuracy(program.module()),
                **on_host(program, accuracy),
            }
        rows.append(row)
        print(row, file=sys.stderr)
    return rows
