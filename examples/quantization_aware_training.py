"""Training that knows of rounding: what quantizing loses of accuracy, and how much comes back.

    pip install edgewise[export,models]
    python examples/quantization_aware_training.py
    python examples/quantization_aware_training.py --network "MTCNN P" --weight-bits 8 --steps 300

The network is quantized twice with the same quantizer: after training (PTQ: the ranges of a few
batches are observed), and by training on with simulated rounding (QAT), where the float network is
the teacher: no labels are needed. Both become files, and the files are judged.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.experimental.optimization import fuse

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

Run = Callable[..., Any]


def exported(model: nn.Module, x: Tensor) -> torch.fx.GraphModule:
    """The model's graph, for batches of any size."""
    sizes = ({0: torch.export.Dim.AUTO},)
    graph = torch.export.export(model, (x[:2],), dynamic_shapes=sizes).module(check_guards=False)
    return graph  # type: ignore[return-value]


def after_training(model: nn.Module, quantizer: Any, data: Tensor) -> torch.fx.GraphModule:
    """Quantized by the ranges that `data` have."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(exported(model, data), quantizer)
    with torch.no_grad():
        for batch in data.split(32):
            prepared(batch)
    return convert_pt2e(prepared)  # type: ignore[no-any-return]


def by_training(
    model: nn.Module, quantizer: Any, data: Tensor, steps: int, rate: float = 1e-3
) -> torch.fx.GraphModule:
    """Trained with simulated rounding, to give what the float model gives.

    Ranges are learned in the first half of the steps and then kept, so that the weights settle on
    the grid that the file will have. Batch normalizations were folded into the weights before:
    simulated ones would go by each batch's own statistics.
    """
    from torchao.quantization.pt2e import disable_observer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    with torch.no_grad():
        wanted = torch.cat([first(model(batch)) for batch in data.split(256)])
    prepared = prepare_qat_pt2e(exported(copy.deepcopy(model), data), quantizer)
    optimizer = torch.optim.Adam(prepared.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    random = torch.Generator().manual_seed(0)
    for number in range(steps):
        if number == steps // 2:
            prepared.apply(disable_observer)
        chosen = torch.randint(len(data), (64,), generator=random)
        loss = nn.functional.mse_loss(first(prepared(data[chosen])), wanted[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return convert_pt2e(prepared)  # type: ignore[no-any-return]


def first(result: Any) -> Tensor:
    """Of several results the last, which holds a detector's scores."""
    return result[-1] if isinstance(result, (tuple, list)) else result


def as_run(program: torch.fx.GraphModule | nn.Module, x: Tensor) -> Run:
    """The file that is made of the program."""
    import edgewise

    sizes = ({0: torch.export.Dim.AUTO},)
    with torch.no_grad():
        whole: ExportedProgram = torch.export.export(program, (x[:2],), dynamic_shapes=sizes)
    made = edgewise.compile(whole, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "model.pte")
        method = edgewise.load((Path(folder) / "model.pte").read_bytes())

    def run(*inputs: Tensor) -> Any:
        found = method(*(one.numpy() for one in inputs))
        several = isinstance(found, (tuple, list))
        return tuple(map(tensor, found)) if several else tensor(found)

    return run


def tensor(array: Any) -> Tensor:
    """A copy that torch may keep."""
    return torch.from_numpy(np.array(array))


def digits(epochs: int) -> tuple[nn.Module, Tensor, Callable[[Run], float]]:
    """A convolutional classifier, its training images, and its accuracy on others."""
    from examples.models.digits import DigitsCnn, load_digits, train

    images, labels, test_images, test_labels = load_digits()
    model = fuse(train(DigitsCnn(), images, labels, epochs).eval())  # without batch normalizations

    def accuracy(run: Run) -> float:
        return float((run(test_images).argmax(1) == test_labels).double().mean())

    return model, images, accuracy


def detector(name: str) -> tuple[nn.Module, Tensor, Callable[[Run], float]]:
    """A network of MTCNN with its real weights, drawn faces and other shapes, and how often a face
    has the higher score."""
    from _networks import _faces, network

    found = network(name)
    size = found.calibration[0][0].shape[-1]
    return found.model, _faces(size, 2000, 3), found.metric


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """The metric by way: float32, PTQ, QAT."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--network", default="digits", help='digits, or "MTCNN P", "MTCNN R"')
    options.add_argument("--weight-bits", type=int, default=3, help="2 to 8")
    options.add_argument("--steps", type=int, default=400, help="of training with rounding")
    options.add_argument("--epochs", type=int, default=12, help="of training without, of digits")
    chosen = options.parse_args(arguments)

    from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config

    torch.manual_seed(0)
    made = digits(chosen.epochs) if chosen.network == "digits" else detector(chosen.network)
    model, data, metric = made
    most = 2 ** (chosen.weight_bits - 1) - 1

    def quantizer(is_qat: bool) -> XNNPACKQuantizer:
        config = get_symmetric_quantization_config(
            is_per_channel=True, is_qat=is_qat, weight_qmin=-most, weight_qmax=most
        )
        return XNNPACKQuantizer().set_global(config)

    ways = {
        "float32": lambda: model,
        "PTQ": lambda: after_training(model, quantizer(False), data[:256]),
        "QAT": lambda: by_training(model, quantizer(True), data, chosen.steps),
    }
    found = {}
    print(f"{chosen.network}, weights of {chosen.weight_bits} bits, activations of 8")
    for name, make in ways.items():
        found[name] = metric(as_run(make(), data))
        print(f"  {name:8} {found[name]:.4f}", flush=True)
    return found


if __name__ == "__main__":
    main()
