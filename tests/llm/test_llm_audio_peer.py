"""A model that hears on ExecuTorch's own multimodal runner, and on ours under its names."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.peer

transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("executorch", reason="the extra peer is not installed")
if not hasattr(transformers, "GlmAsrProcessor"):
    pytest.skip("models that hear need transformers 5", allow_module_level=True)

from hearing_models import hearing_checkpoint, sound  # noqa: E402
from runner_sides import both_sides  # noqa: E402

SCRIPT = """
import json, sys
import numpy as np, torch
side, model, tokenizer = sys.argv[1:]
if side == "here":
    import edgewise.compat.executorch
else:
    import executorch.extension.llm.custom_ops.custom_ops, executorch.kernels.quantized
from executorch.extension.llm.runner import (
    GenerationConfig, MultimodalRunner, make_audio_input, make_text_input, make_token_input
)
features = torch.from_numpy(np.load("features.npy"))
runner, told, counts = MultimodalRunner(model, tokenizer), [], []
greedy = GenerationConfig(max_new_tokens=10, temperature=0.0)
part = make_audio_input(features[:1])
assert part.is_audio() and not part.is_image() and repr(part) == "<MultimodalInput type=audio>"
asked = [make_text_input("What is "), part, make_text_input("here?")]
runner.generate(asked, greedy, told.append, lambda s: counts.append(s.num_prompt_tokens))
runner.reset()
asked = [make_token_input([40, 41]), *map(make_audio_input, features[:, None]), asked[-1]]
runner.generate(asked, greedy, told.append)
for wrong in (features[0], features.double()):
    try:
        make_audio_input(wrong)
    except RuntimeError:
        told.append("refused")
json.dump(["".join(told), counts], open(f"{side}.json", "w"))
"""


@pytest.mark.parametrize("quantize", ["none", "8da4w"])
def test_both_runners_write_the_same(quantize: str, tmp_path: Path) -> None:
    import numpy as np

    from edgewise.cli import main
    from edgewise.llm.audio import AudioPrompt

    checkpoint = tmp_path / "checkpoint"
    hearing_checkpoint("glmasr", checkpoint, writes_ascii=True)
    given = ["--checkpoint", str(checkpoint), "--output", str(tmp_path / "net.pte"), "--audio"]
    options = ["--quantize", quantize, "--max-context-len", "128", "--quiet"]
    assert main(["llm", "export", *given, *options]) == 0
    prompt = AudioPrompt.load(tmp_path / "net.tokenizer")
    assert prompt is not None
    windows = [features for features, _ in prompt.windows(sound(4))]
    np.save(tmp_path / "features.npy", np.concatenate(windows))
    here, there = both_sides(SCRIPT, tmp_path)
    assert here == there
    assert here[0].endswith("refusedrefused")
    assert len(here[0]) > 30
