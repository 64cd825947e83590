"""A model that sees on ExecuTorch's own multimodal runner, and on ours under its names."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.peer

transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("executorch", reason="the extra peer is not installed")
if not hasattr(transformers, "Gemma3ImageProcessorPil"):
    pytest.skip("image processors of Pillow need transformers 5.24", allow_module_level=True)

from runner_sides import both_sides  # noqa: E402
from seeing_models import picture, seeing_checkpoint  # noqa: E402

# A prompt with an image; tokens; what transformers' processor makes; a text that is there already.
SCRIPT = """
import json, sys
import numpy as np, torch
side, model, tokenizer, token = sys.argv[1:]
if side == "here":
    import edgewise.compat.executorch
else:
    import executorch.extension.llm.custom_ops.custom_ops, executorch.kernels.quantized
from executorch.extension.llm.runner import (
    GenerationConfig, MultimodalRunner, make_image_input, make_text_input, make_token_input
)
from transformers.feature_extraction_utils import BatchFeature
pixels, ids = torch.from_numpy(np.load("pixels.npy")), torch.from_numpy(np.load("ids.npy"))
runner, told, counts = MultimodalRunner(model, tokenizer), [], []
greedy = GenerationConfig(max_new_tokens=10, temperature=0.0)
silent = GenerationConfig(max_new_tokens=8, temperature=0.0, echo=False)
asked = [make_text_input("What is "), make_image_input(pixels), make_text_input("here?")]
runner.generate(asked, greedy, told.append, lambda s: counts.append(s.num_prompt_tokens))
runner.reset()
told.append(runner.generate_text([make_token_input([40, 41]), *asked[1:]], silent))
runner.reset()
given = BatchFeature({"input_ids": ids, "pixel_values": pixels})
runner.generate_hf(given, silent, image_token_id=int(token), token_callback=told.append)
runner.reset()
runner.prefill(asked[:2])
runner.generate(asked[2:], silent, told.append)
json.dump(["".join(told), counts], open(f"{side}.json", "w"))
"""


CASES = {
    "llava": ("llava", ["--quantize", "none"]),
    "llava, 8da4w": ("llava", []),
    "idefics3": ("idefics3", ["--quantize", "none"]),
}


@pytest.mark.parametrize("case", CASES)
def test_both_runners_write_the_same(case: str, tmp_path: Path) -> None:
    kind, options = CASES[case]
    import numpy as np

    from edgewise.cli import main
    from edgewise.llm.images import ImagePrompt
    from edgewise.pictures import array

    checkpoint = tmp_path / "checkpoint"
    seeing_checkpoint(kind, checkpoint, writes_ascii=True)
    given = ["--checkpoint", str(checkpoint), "--output", str(tmp_path / "net.pte"), "--images"]
    assert main(["llm", "export", *given, *options, "--max-context-len", "128", "--quiet"]) == 0
    prompt = ImagePrompt.load(tmp_path / "net.tokenizer")
    assert prompt is not None
    np.save(tmp_path / "pixels.npy", array(picture(60, 70), prompt.picture))
    np.save(tmp_path / "ids.npy", np.array([[0, 50, 51, *[prompt.token] * prompt.count, 60, 61]]))
    here, there = both_sides(SCRIPT, tmp_path, str(prompt.token))
    assert here == there
    assert len(here[0]) > 30
