"""A model that sees: one file on our runtime and on ExecuTorch's, which take turns.

The shape of SmolVLM-256M with random weights: an image of 512 x 512 pixels, of which a vision
encoder makes 64 vectors, by 1,024 patches, for a language model of 30 layers in 8da4w. Each method
by itself: the image, whose linear layers have 8 bits or are float32; a prompt of its 64 vectors;
one token behind it. Milliseconds are medians; the ratio is the median of the rounds' ratios. Also
the largest difference of the results, in units of their deviation.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import report
from _two_runtimes import options_of, side_by_side

SIDE, TOKENS, WIDTH = 512, 64, 576
SMOLVLM = {
    "model_type": "smolvlm",
    "scale_factor": 4,
    "image_token_id": 49190,
    "vision_config": {
        "model_type": "smolvlm_vision",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": SIDE,
        "patch_size": 16,
    },
    "text_config": {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49280,
        "max_position_embeddings": 8192,
    },
}


def make_model(vision: str, path: Path) -> None:
    """vision: what linear layers of the part that sees hold."""
    from edgewise.llm.export import lower_model, quantize_model, random_model, text_part
    from edgewise.llm.export.quantization import quantize_encoder
    from edgewise.llm.export.vision import ImageInputs, VisionEncoder

    model = random_model(SMOLVLM, media=["images"])
    size = (SIDE, SIDE)
    inputs = ImageInputs(size, TOKENS, SMOLVLM["image_token_id"], lambda pixels: pixels)
    encoder = quantize_encoder(VisionEncoder(model, inputs), vision)
    text = quantize_model(text_part(model))
    lower_model(text, images=encoder, max_context_len=512).save(path)


def main() -> int:
    """Prints the table; the exit code says whether ours is the faster throughout."""
    options = options_of(Path(__file__), __doc__ or "", 9)
    if options is None:
        return 0
    random = np.random.default_rng(0)
    pixels = random.standard_normal((1, 3, SIDE, SIDE), np.float32)
    vectors = random.standard_normal((1, TOKENS, WIDTH), np.float32) / 20
    prompt = [vectors, np.array([0])]
    token: list[list[Any]] = [prompt, [vectors[:, :1], np.array([TOKENS])]]
    rows = []
    for what, vision, method, calls in (
        ("an image, 8da8w", "8da8w", "vision_encoder", [[pixels]]),
        ("an image, float32", "none", "vision_encoder", [[pixels]]),
        ("its 64 vectors as a prompt", "8da8w", "text_decoder", [prompt]),
        ("a token behind it", "8da8w", "text_decoder", token),
    ):
        path = options.cache / f"smolvlm-{vision}.pte"
        if not path.exists():
            make_model(vision, path)
        figures = side_by_side(Path(__file__), path, calls, options.rounds, method)
        rows.append({"what": what, **figures})
    report("A model that sees (SmolVLM-256M's shape), two threads", rows, [], options.json)
    return 0 if all(row["ratio"] < 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
