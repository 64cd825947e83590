"""The frameworks of `whisper.py`: how each makes a file and how each runs one.

The same random weights in the shape of whisper-tiny, cut into an encoder (features to keys and
values of the audio) and a step of the decoder (a token to logits).
"""

import logging
import sys
import time
from pathlib import Path
from typing import Any

CONTEXT = 128
"""Tokens of a text, at most."""
FEATURES = (1, 80, 3000)
"""30 seconds."""


def model_of(scheme: str, embedding_bits: int) -> Any:
    """Random weights; linear layers and embeddings quantized by torchao if `scheme` is 8da4w."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from edgewise.llm.export import quantize_model
    from edgewise.llm.export.quantization import Recipe

    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(WhisperConfig()).eval().requires_grad_(False)
    return (
        model
        if scheme == "float32"
        else quantize_model(model, Recipe(scheme, embedding=embedding_bits))
    )


def _parts(model: Any, in_place: bool) -> tuple[Any, Any]:
    """Modules. The encoder: features to keys and values [1, heads, 1500, depth] of each layer. The
    step: token and position [1, 1], those of the audio and, if not `in_place`, of the text up to
    now; logits [1, vocabulary] and the text's with the token's."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    encoder, decoder = model.model.encoder, model.model.decoder
    heads = model.config.decoder_attention_heads
    depth = model.config.d_model // heads

    def by_head(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, depth)).transpose(1, 2)

    def together(x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    class Encode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder
            self.attentions = nn.ModuleList(layer.encoder_attn for layer in decoder.layers)

        def forward(self, features: Tensor) -> tuple[Tensor, ...]:
            hidden = self.encoder(features).last_hidden_state
            return tuple(
                by_head(part(hidden)) for a in self.attentions for part in (a.k_proj, a.v_proj)
            )

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder, self.head = decoder, model.proj_out
            if in_place:
                for index in range(2 * len(decoder.layers)):
                    empty = torch.zeros(1, heads, CONTEXT, depth)
                    self.register_buffer(f"cache{index}", empty, persistent=False)

        def kept(self, index: int, new: Tensor, position: Tensor, past: Any) -> Tensor:
            if not in_place:
                return torch.cat([past[index], new], 2)
            cache: Tensor = getattr(self, f"cache{index}")
            return cache.index_copy_(2, position[0], new)

        def forward(self, token: Tensor, position: Tensor, *others: Tensor) -> Any:
            count = 2 * len(self.decoder.layers)
            audio, past, present = others[:count], others[count:], []
            x = self.decoder.embed_tokens(token)
            x = x + F.embedding(position, self.decoder.embed_positions.weight)
            for index, layer in enumerate(self.decoder.layers):
                y, a = layer.self_attn_layer_norm(x), layer.self_attn
                k = self.kept(2 * index, by_head(a.k_proj(y)), position, past)
                v = self.kept(2 * index + 1, by_head(a.v_proj(y)), position, past)
                present += [k, v]
                seen = torch.arange(k.shape[2])[None, None, None] <= position[:, None, :, None]
                y = F.scaled_dot_product_attention(by_head(a.q_proj(y)), k, v, attn_mask=seen)
                x = x + a.out_proj(together(y))
                y, a = layer.encoder_attn_layer_norm(x), layer.encoder_attn
                y = F.scaled_dot_product_attention(
                    by_head(a.q_proj(y)), audio[2 * index], audio[2 * index + 1]
                )
                x = x + a.out_proj(together(y))
                x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
            logits = self.head(self.decoder.layer_norm(x[:, -1]))
            return logits if in_place else (logits, *present)

    return Encode().eval(), Step().eval()


def _example(model: Any, with_past: int) -> tuple[Any, ...]:
    import torch

    config = model.config
    heads, depth = config.decoder_attention_heads, config.d_model // config.decoder_attention_heads
    layers = config.decoder_layers
    audio = [torch.randn(1, heads, config.max_source_positions, depth) for _ in range(2 * layers)]
    past = [torch.zeros(1, heads, with_past, depth) for _ in range(2 * layers if with_past else 0)]
    return torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 1), with_past), *audio, *past


def prepare(framework: str, scheme: str, folder: Path) -> None:
    """Writes the framework's files."""
    import torch

    logging.disable(logging.WARNING)
    # The peer has no kernel for embeddings that torchao quantized.
    model = model_of(
        "float32" if framework == "openvino" else scheme, 32 if framework == "peer" else 8
    )
    if framework == "ours":
        from edgewise.llm.export.whisper import lower_whisper

        lower_whisper(model, max_context_len=CONTEXT).save(folder / "whisper.pte")
    elif framework == "peer":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        encode, step = _parts(model, in_place=True)
        examples = {"encode": (torch.randn(FEATURES),), "step": _example(model, 0)}
        for name, module in (("encode", encode), ("step", step)):
            program = torch.export.export(module, examples[name], strict=False)
            lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
            (folder / f"{name}.pte").write_bytes(lowered.to_executorch().buffer)
    else:
        _prepare_openvino(model, scheme, folder)


def _prepare_openvino(model: Any, scheme: str, folder: Path) -> None:
    import nncf
    import openvino as ov
    import torch
    from _llm_openvino import keep_state

    encode, step = _parts(model, in_place=False)
    with torch.no_grad():
        made = {"encode": ov.convert_model(encode, example_input=(torch.randn(FEATURES),))}
        example = _example(model, 3)
        shapes = [
            (tuple(x.shape), ov.Type.i64 if i < 2 else ov.Type.f32) for i, x in enumerate(example)
        ]
        count = (len(example) - 2) // 2
        for i in range(2 + count, len(shapes)):
            shapes[i] = ((*example[i].shape[:2], -1, example[i].shape[3]), ov.Type.f32)
        made["step"] = ov.convert_model(step, example_input=example, input=shapes)
    keep_state(made["step"], 2 + count, count)
    for name, part in made.items():
        if scheme != "float32":
            mode = nncf.CompressWeightsMode.INT4_SYM
            part = nncf.compress_weights(part, mode=mode, group_size=32, all_layers=True)
        ov.save_model(part, str(folder / f"{name}.xml"), compress_to_fp16=False)


class Ours:
    """edgewise.runtime."""

    def __init__(self, folder: Path, threads: int) -> None:
        from edgewise.runtime import Runtime

        session = Runtime.get().load_program(folder / "whisper.pte", threads=threads).new_session()
        self._encode, self._forward = session.load_method("encode"), session.load_method("forward")

    def encode(self, features: Any) -> None:
        self._encode.execute([features])

    def step(self, token: Any, position: int) -> Any:
        import numpy as np

        return self._forward.execute([token, np.array([position])])[0]


class Peer:
    """executorch.runtime."""

    def __init__(self, folder: Path, threads: int) -> None:
        import executorch.kernels.quantized  # noqa: F401
        import torch
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime

        portable_lib._unsafe_reset_threadpool(threads)
        self._torch = torch
        self._programs = [
            Runtime.get().load_program(folder / f"{n}.pte") for n in ("encode", "step")
        ]
        self._encode, self._step = (p.load_method("forward") for p in self._programs)
        self._audio: Any = ()

    def encode(self, features: Any) -> None:
        self._audio = self._encode.execute([self._torch.from_numpy(features)])

    def step(self, token: Any, position: int) -> Any:
        place = self._torch.full((1, 1), position)
        outputs = self._step.execute([self._torch.from_numpy(token), place, *self._audio])
        return outputs[0].numpy()


class OpenVino:
    """Two compiled models."""

    def __init__(self, folder: Path, threads: int) -> None:
        from _llm_openvino import request_of

        self._encode, self._step = (
            request_of(folder / f"{name}.xml", threads) for name in ("encode", "step")
        )
        self._audio: dict[int, Any] = {}

    def encode(self, features: Any) -> None:
        self._encode.infer({0: features}, share_inputs=True)
        outputs = range(len(self._encode.model_outputs))
        self._audio = {2 + i: self._encode.get_output_tensor(i).data for i in outputs}
        self._step.reset_state()

    def step(self, token: Any, position: int) -> Any:
        import numpy as np

        self._step.infer({0: token, 1: np.array([[position]]), **self._audio}, share_inputs=True)
        return self._step.get_output_tensor(0).data


SESSIONS = {"ours": Ours, "peer": Peer, "openvino": OpenVino}


class Handler:
    """Answers `whisper.py`: load the files, or transcribe half a minute."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._session: Any = None

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        if request["do"] == "load":
            folder = Path(request["folder"])
            self._session = SESSIONS[self._framework](folder, request["threads"])
            return {"bytes": sum(file.stat().st_size for file in folder.iterdir())}
        features = np.random.default_rng(0).standard_normal(FEATURES, np.float32)
        tokens = np.random.default_rng(1).integers(0, 50000, (request["tokens"], 1, 1))
        start = time.perf_counter()
        self._session.encode(features)
        encoded = time.perf_counter()
        for position, token in enumerate(tokens):
            logits = self._session.step(token, position)
        end = time.perf_counter()
        return {
            "encode": encoded - start,
            "decode": end - encoded,
            "logits": logits.reshape(-1).astype(float).tolist(),
        }


if __name__ == "__main__":
    prepare(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
