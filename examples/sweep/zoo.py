"""Models and data for the plans beside this file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `examples` is not installed

Inputs = tuple[Tensor, ...]


def model(name: str, seed: int = 0) -> tuple[nn.Module, Inputs]:
    """One of `examples.models`, with seeded weights."""
    from examples.models import MODELS

    return MODELS[name].build(seed), MODELS[name].example_inputs(seed)


def batches(name: str, count: int = 8) -> Iterator[Inputs]:
    """Inputs to calibrate it with."""
    from examples.models import MODELS

    yield from (MODELS[name].example_inputs(100 + seed) for seed in range(count))


def samples(name: str, count: int = 8) -> Iterator[tuple[Inputs, None]]:
    """Other inputs, to compare it with the float model."""
    from examples.models import MODELS

    yield from ((MODELS[name].example_inputs(200 + seed), None) for seed in range(count))


def digits(kind: str, epochs: int = 30) -> tuple[nn.Module, Inputs]:
    """A classifier of handwritten digits, "cnn" or "transformer", trained in seconds."""
    from examples.models.digits import DigitsCnn, DigitsTransformer, load_digits, train

    images, labels, _, _ = load_digits()
    torch.manual_seed(0)
    made = {"cnn": DigitsCnn, "transformer": DigitsTransformer}[kind]()
    return train(made, images, labels, epochs), (images[:1],)


def digit_images() -> Iterator[Tensor]:
    """Training images, one at a time."""
    from examples.models.digits import load_digits

    yield from load_digits()[0].split(1)


def labelled_digits() -> Iterator[tuple[Tensor, Tensor]]:
    """Test images and their labels, one at a time."""
    from examples.models.digits import load_digits

    _, _, images, labels = load_digits()
    yield from zip(images.split(1), labels.split(1), strict=True)
