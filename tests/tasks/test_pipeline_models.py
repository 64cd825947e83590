"""What a pipeline of transformers holds is compiled in one call, inputs and outputs by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import edgewise

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
IDS = torch.tensor([[5, 7, 11, 2], [9, 4, 2, 2]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def clip() -> tuple[Any, dict[str, torch.Tensor]]:
    """Both encoders, and how alike texts and pictures are."""
    text = {**SIZES, "vocab_size": 30, "max_position_embeddings": 16}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    picture = {**SIZES, "image_size": 64, "patch_size": 16}
    config = transformers.CLIPConfig(
        text_config={**text, **ends}, vision_config=picture, projection_dim=32
    )
    pictures = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    return transformers.CLIPModel(config), {
        "input_ids": IDS,
        "pixel_values": pictures,
        "attention_mask": MASK,
    }


def bert() -> tuple[Any, dict[str, torch.Tensor]]:
    """An embedder."""
    config = transformers.BertConfig(**SIZES, vocab_size=30)
    return transformers.BertModel(config), {"input_ids": IDS, "attention_mask": MASK}


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (clip, ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]),
        (bert, ["last_hidden_state", "pooler_output"]),
    ],
)
def test_outputs_are_the_models(make: Any, names: list[str]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    program = edgewise.compile(model.eval(), (), example_kwargs=inputs, verbose=False)
    got = edgewise.load(program.buffer)(**inputs)
    with torch.no_grad():
        wanted = model(**inputs)
    for name in names:
        torch.testing.assert_close(torch.as_tensor(got[name]), wanted[name], rtol=1e-4, atol=1e-5)
