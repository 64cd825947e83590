"""One token of a language model: inputs for both runtimes, and the logits of eager PyTorch.

    python _arm_token.py CONFIG GROUP_SIZE POSITION INPUTS.npz EXPECTED.npz

The model is the one of our file of `llm.py`, quantized, in eager PyTorch. Before the token there is
nothing but a cache of zeros, as runtimes begin with, up to POSITION.
"""

import sys
from pathlib import Path

TOKEN = 1234


def main(config: str, group_size: int, position: int, inputs: Path, expected: Path) -> None:
    """Writes both files."""
    import numpy as np
    import torch
    from _llm import config_of
    from transformers import DynamicCache

    from edgewise.llm.export import quantize_llama, random_llama

    model = quantize_llama(random_llama(config_of(config)), group_size)
    tokens = torch.tensor([[TOKEN]])
    of = model.config
    width = of.hidden_size // of.num_attention_heads
    zeros = torch.zeros(1, of.num_key_value_heads, position, width)
    cache = DynamicCache()
    for layer in range(of.num_hidden_layers):
        cache.update(zeros, zeros, layer)
    with torch.no_grad():
        logits = model(
            tokens, past_key_values=cache, position_ids=torch.tensor([[position]])
        ).logits
    np.savez(inputs, tokens=tokens.numpy(), position=np.array([position]))
    np.savez(expected, logits=logits.numpy())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
