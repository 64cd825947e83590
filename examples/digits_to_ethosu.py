"""From training to a program for Arm's Ethos-U: scikit-learn's digits.

    pip install edgewise[export,ethosu] scikit-learn
    python examples/digits_to_ethosu.py --target ethos-u55-128

Trains a small convolutional network, quantizes it, compiles it with Vela, runs the NPU's
commands in the simulator on the test images, and prints accuracies and Vela's estimates.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--target", default="ethos-u55-128")
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--images", type=int, default=None, help="test images; default: all")
    options.add_argument("--output", type=Path, default=Path("build/digits.pte"))
    chosen = options.parse_args()

    import torch

    import edgewise
    from examples.models.digits import DigitsCnn, load_digits, train

    images, labels, test_images, test_labels = load_digits()
    start = time.perf_counter()
    model = train(DigitsCnn(), images, labels, chosen.epochs)
    print(f"trained on {len(images)} images in {time.perf_counter() - start:.0f} s")

    program = edgewise.compile(
        model,
        (images[:1],),
        backend=chosen.target,
        quantize="int8",
        calibration=images[:200].split(1),
    )
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    program.save(chosen.output)
    print(f"{chosen.output}: {chosen.output.stat().st_size / 1e3:.1f} kB")

    count = chosen.images or len(test_images)
    truth = test_labels[:count].numpy()
    with torch.no_grad():
        floats = model(test_images[:count]).argmax(1).numpy()
    run = edgewise.load(chosen.output)
    start = time.perf_counter()
    simulated = np.array([run(image[None].numpy()).argmax() for image in test_images[:count]])
    seconds = (time.perf_counter() - start) / count
    print(f"{count} test images, {1000 * seconds:.1f} ms each in the simulator")
    print(f"  float32, PyTorch    {100 * np.mean(floats == truth):.1f} %")
    print(f"  int8, {chosen.target:14} {100 * np.mean(simulated == truth):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
