"""OpenVINO in `llm.py`: its model with a stateful cache, 4-bit weights by NNCF."""

from pathlib import Path
from typing import Any


def prepare(config: str, group_size: int, target: Path) -> None:
    """Write `target` (.xml) and its weights beside it: the same random model as the others'.

    All weight matrices are symmetric integers of 4 bits in groups, the embeddings too; the rest is
    at its default (keys and values in 8 bits, activations quantized at run time).
    """
    import nncf
    import openvino as ov
    import torch

    from edgewise.llm.config import read_config
    from edgewise.llm.export import random_llama

    model = random_llama(read_config(config))
    values = model.config
    heads, size = values.num_key_value_heads, values.head_dim
    step = _step(model)
    empty = [torch.zeros(1, heads, 3, size) for _ in range(2 * values.num_hidden_layers)]
    with torch.no_grad():
        example = (torch.zeros(1, 2, dtype=torch.int64), torch.arange(3, 5)[None], *empty)
        made = ov.convert_model(
            step,
            example_input=example,
            input=[((1, -1), ov.Type.i64)] * 2 + [((1, heads, -1, size), ov.Type.f32)] * len(empty),
        )
    keep_state(made, 2, len(empty))
    mode = nncf.CompressWeightsMode.INT4_SYM
    made = nncf.compress_weights(made, mode=mode, group_size=group_size, all_layers=True)
    ov.save_model(made, str(target))


def keep_state(made: Any, first: int, count: int) -> None:
    """`count` inputs from the `first` on become state, which outputs 1 and on replace."""
    from openvino._offline_transformations import apply_make_stateful_transformation

    cache = {}
    for index in range(count):
        made.inputs[first + index].set_names({f"past{index}"})
        made.outputs[1 + index].set_names({f"present{index}"})
        cache[f"past{index}"] = f"present{index}"
    apply_make_stateful_transformation(made, cache)


def request_of(file: Any, threads: int) -> Any:
    """Of a model compiled for the CPU, everything but the number of threads at its default."""
    import openvino as ov

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    return ov.Core().compile_model(file, "CPU", options).create_infer_request()


def _step(model: Any) -> Any:
    """A module: tokens and positions [1, N], keys and values of each layer [1, heads, S, size];
    logits of the last token [1, vocabulary], and the keys and values with the new ones."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    decoder, heads = model.model, model.config.num_attention_heads
    shared = heads // model.config.num_key_value_heads
    frequencies = decoder.rotary_emb.inv_freq

    def rotated(x: Tensor, angles: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Tensor, positions: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
            angles = positions[:, None, :, None].float() * torch.cat([frequencies] * 2)
            x, present = decoder.embed_tokens(tokens), []
            for index, layer in enumerate(decoder.layers):
                y, attention = layer.input_layernorm(x), layer.self_attn
                q, k, v = (
                    part(y).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
                    for part in (attention.q_proj, attention.k_proj, attention.v_proj)
                )
                k = torch.cat([past[2 * index], rotated(k, angles)], 2)
                v = torch.cat([past[2 * index + 1], v], 2)
                present += [k, v]
                seen = torch.arange(k.shape[2])[None, None, None] <= positions[:, None, :, None]
                k, v = (z[:, :, None].expand(-1, -1, shared, -1, -1).flatten(1, 2) for z in (k, v))
                y = F.scaled_dot_product_attention(rotated(q, angles), k, v, attn_mask=seen)
                x = x + attention.o_proj(y.transpose(1, 2).flatten(2))
                x = x + layer.mlp(layer.post_attention_layernorm(x))
            return (model.lm_head(decoder.norm(x[:, -1])), *present)

    return Step().eval()


class OpenVino:
    """A compiled model."""

    most = 512
    """Tokens of a prompt at once."""

    def __init__(self, file: str, threads: int) -> None:
        import openvino as ov

        self._request, self._tensor = request_of(file, threads), ov.Tensor
        self._filled = 0

    def seek(self, position: int) -> None:
        """Forgets what the cache holds from a position on."""
        import numpy as np

        if position == self._filled:
            return
        for state in self._request.query_state():
            state.state = self._tensor(np.ascontiguousarray(state.state.data[:, :, :position]))
        self._filled = position

    def run(self, tokens: Any, position: Any) -> Any:
        """The logits."""
        import numpy as np

        count = tokens.shape[1]
        places = np.arange(count)[None] + position
        self._request.infer({0: tokens, 1: places}, share_inputs=True)
        self._filled += count
        return self._request.get_output_tensor(0).data
