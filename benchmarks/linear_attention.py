"""Linear attention: one file on our runtime and on ExecuTorch's, which take turns.

- operator: `llama::gated_delta_rule` with 16 heads of 128 x 128, a state that is kept.
- model: the shape of Qwen3.5-0.8B (24 layers, of which every fourth has full attention) with random
  weights in 8da4w and a small vocabulary.

Each for a prompt of 128 tokens and for one token behind it. Milliseconds are medians; the ratio is
the median of the rounds' ratios. Also the largest difference of the results, in units of their
deviation.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import report
from _two_runtimes import options_of, side_by_side

PROMPT = 128
HEADS, DEPTH = 16, 128
QWEN = {
    "model_type": "qwen3_5_text",
    "vocab_size": 32000,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}


def make_operator(tokens: int, path: Path) -> None:
    """A file with `forward(query, key, value, decay, beta)`."""
    import torch

    import edgewise
    import edgewise.edge.cache_operators  # (defines torch.ops.edgewise)

    class Rule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(1, HEADS, DEPTH, DEPTH))

        def forward(self, *inputs: Any) -> Any:
            ops: Any = torch.ops.edgewise
            result, state = ops.gated_delta_rule(*inputs, self.state)
            self.state.copy_(state)
            return result

    inputs = tuple(torch.from_numpy(x) for x in operator_inputs(tokens))
    edgewise.to_edge(torch.export.export(Rule(), inputs)).to_executorch().save(path)


def make_model(path: Path) -> None:
    """A file with `forward(tokens, input_pos)`."""
    from edgewise.llm.export import lower_model, quantize_model, random_model

    lower_model(quantize_model(random_model(QWEN)), max_context_len=512).save(path)


def operator_inputs(tokens: int) -> list[Any]:
    """Queries, keys, values, decays and rates, float32."""
    generator = np.random.default_rng(0)
    query, key, value = (
        generator.standard_normal((1, HEADS, tokens, DEPTH), np.float32) for _ in range(3)
    )
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    decay, beta = (1 - generator.random((1, HEADS, tokens), np.float32) / 5 for _ in range(2))
    return [query, key, value, decay, beta]


def main() -> int:
    """Prints the table; the exit code says whether ours is the faster throughout."""
    options = options_of(Path(__file__), __doc__ or "", 15)
    if options is None:
        return 0
    prompt = np.random.default_rng(1).integers(0, 32000, (1, PROMPT))
    first = [prompt, np.array([0])]
    rows = []
    for name, tokens, calls in (
        ("operator", PROMPT, [operator_inputs(PROMPT)]),
        ("operator", 1, [operator_inputs(1)]),
        ("model", PROMPT, [first]),
        ("model", 1, [first, [prompt[:, :1], np.array([PROMPT])]]),
    ):
        path = options.cache / f"linear-attention-{name}{tokens if name == 'operator' else ''}.pte"
        if not path.exists():
            make_model(path) if name == "model" else make_operator(tokens, path)
        figures = side_by_side(Path(__file__), path, calls, options.rounds)
        rows.append({"what": name, "tokens": tokens, **figures})
    report("Linear attention (gated delta rule), two threads", rows, [], options.json)
    return 0 if all(row["ratio"] < 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
