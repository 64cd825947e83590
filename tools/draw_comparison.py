"""Draws the pictures of docs/quantization.md: a small transformer in int8, layer by layer, and the
same with those modules in float that `suggest` names. Prints the figures that the page shows.

    python tools/draw_comparison.py        # writes docs/images/comparison*.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    import torch

    import edgewise
    from edgewise.inspect import compare, suggest
    from examples.models.digits import DigitsTransformer, load_digits, train

    torch.manual_seed(0)
    images, labels, test_images, _ = load_digits()
    model = train(DigitsTransformer(), images, labels, epochs=8)
    batches = list(images[:128].split(32))
    given = {"quantize": "int8", "calibration": batches}
    suggestion = suggest(model, batches[0], **given, limit=4)
    for name, kept in {"comparison": [], "comparison-kept": suggestion.keep_float}.items():
        program = edgewise.compile(model, batches[0], **given, keep_float=kept, verbose=False)
        found = compare(model, program, test_images[:256].split(32))
        print(name, found.table(limit=5), sep="\n")
        found.to_svg(IMAGES / f"{name}.svg")
    print(suggestion)


if __name__ == "__main__":
    main()
