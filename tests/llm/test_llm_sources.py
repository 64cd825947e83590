"""Checkpoints whose weights are integers: what is read is what the format's own library makes of
them, or what they were packed from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.llm.config import read_config
from edgewise.llm.export import load_model, random_model

pytest.importorskip("transformers")
OPTIONS = {**read_config("tiny"), "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 256}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def packed(integers: Any, bits: int, dim: int, order: Any = None) -> torch.Tensor:
    """Numbers along `dim` in 32-bit integers. order: which are in the lowest bits, the next, ..."""
    per = 32 // bits
    moved = np.moveaxis(np.asarray(integers, dtype=np.uint64), dim, -1)
    parts = moved.reshape(*moved.shape[:-1], -1, per)
    if order is not None:
        parts = parts[..., list(order)]
    shifts = np.arange(per, dtype=np.uint64) * np.uint64(bits)
    words = (parts << shifts).sum(-1).astype(np.uint32).view(np.int32)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(words, -1, dim)))


def write_checkpoint(folder: Path, method: str, bits: int, act_order: bool = False) -> Any:
    """A model whose linear layers are packed. Returns it with the weights that these stand for."""
    from safetensors.torch import save_file

    model = random_model({**OPTIONS, "tie_word_embeddings": False})
    generator = np.random.default_rng(0)
    tensors: dict[str, torch.Tensor] = {}
    group = 32
    for name, weight in model.state_dict().items():
        layer, _, part = name.rpartition(".")
        if not layer.endswith(LINEAR):
            tensors[name] = weight.clone()
            continue
        assert part == "weight"
        outputs, inputs = weight.shape
        integers = generator.integers(0, 1 << bits, (inputs, outputs))
        zeros = generator.integers(1, (1 << bits) - 1, (inputs // group, outputs))
        scales = generator.random((inputs // group, outputs), dtype=np.float32) * 0.01
        scales = scales.astype(np.float16)
        rows = np.arange(inputs) // group
        if act_order:
            generator.shuffle(rows)
        want = (integers - zeros[rows]) * scales[rows].astype(np.float32)
        weight.copy_(torch.from_numpy(want.T.astype(np.float32)))
        if method == "awq":
            # Columns 0 2 4 6 1 3 5 7, from the lowest bits.
            order = (0, 2, 4, 6, 1, 3, 5, 7)
            tensors[f"{layer}.qweight"] = packed(integers, bits, 1, order)
            tensors[f"{layer}.qzeros"] = packed(zeros, bits, 1, order)
        else:
            tensors[f"{layer}.qweight"] = packed(integers, bits, 0)
            tensors[f"{layer}.qzeros"] = packed(zeros - 1, bits, 1)
            tensors[f"{layer}.g_idx"] = torch.from_numpy(rows.astype(np.int32))
        tensors[f"{layer}.scales"] = torch.from_numpy(scales)
    save_file(tensors, folder / "model.safetensors")
    about = {"quant_method": method, "bits": bits, "group_size": group}
    config = {**model.config.to_dict(), "quantization_config": about}
    (folder / "config.json").write_text(json.dumps(config))
    return model


@pytest.mark.parametrize(
    ("method", "bits", "act_order"),
    [("gptq", 4, False), ("gptq", 4, True), ("gptq", 8, False), ("awq", 4, False)],
)
def test_packed_checkpoints(method: str, bits: int, act_order: bool, tmp_path: Path) -> None:
    want = write_checkpoint(tmp_path, method, bits, act_order).state_dict()
    found = load_model(tmp_path).state_dict()
    assert want.keys() == found.keys()
    for name, weight in want.items():
        assert torch.equal(weight, found[name]), name


def test_packed_checkpoints_that_are_refused(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path, "gptq", 4)
    config = json.loads((tmp_path / "config.json").read_text())
    for about, message in (
        ({"quant_method": "bitsandbytes"}, "gptq, awq or GGUF; got 'bitsandbytes'"),
        ({"quant_method": "gptq", "bits": 3}, "4 or 8 bits"),
        ({"quant_method": "awq", "version": "gemv"}, "in the form gemm"),
    ):
        config["quantization_config"] = about
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=message):
            load_model(tmp_path)
    del model


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16"])
def test_gguf(kind: str, tmp_path: Path) -> None:
    """Written by the package gguf; its types that it cannot quantize to are random blocks."""
    gguf = pytest.importorskip("gguf", reason="the extra models is not installed")

    config = {**OPTIONS, "hidden_size": 256, "intermediate_size": 512, "tie_word_embeddings": False}
    model = random_model({**config, "num_hidden_layers": 1})
    path = tmp_path / "model.gguf"
    want = write_gguf(gguf, path, model, gguf.GGMLQuantizationType[kind])
    found = load_model(path)
    assert type(found) is type(model)
    assert found.config.num_key_value_heads == model.config.num_key_value_heads
    state = found.state_dict()
    assert want.keys() == state.keys()
    for name, weight in want.items():
        np.testing.assert_array_equal(state[name].numpy(), weight, err_msg=name)


_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(gguf: Any, path: Path, model: Any, kind: Any) -> dict[str, Any]:
    """As llama.cpp lays out a Llama: rows of queries and keys with the halves of a head's positions
    side by side. Returns the weights that the file stands for, in transformers' order."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    generator, want = np.random.default_rng(0), {}
    for name, weight in model.state_dict().items():
        stem = name.removesuffix(".weight")
        block = ""
        if stem.startswith("model.layers."):
            number, _, stem = stem.removeprefix("model.layers.").partition(".")
            block = f"blk.{number}."
        target = f"{block}{_NAMES[stem]}.weight"
        values = weight.numpy()
        if values.ndim == 1:
            writer.add_tensor(target, values)
            want[name] = values
            continue
        size, bytes_ = gguf.GGML_QUANT_SIZES[kind]
        if kind == gguf.GGMLQuantizationType.F16:
            stored = values.astype(np.float16)
        elif kind.name.endswith("_K"):
            rows = generator.integers(0, 256, (values.size // size, bytes_), dtype=np.uint8)
            half = np.float16(0.01).tobytes()
            spots = (0, 2) if kind.name == "Q4_K" else (bytes_ - 2,)  # scales, in float16
            for spot in spots:
                rows[:, spot : spot + 2] = np.frombuffer(half, dtype=np.uint8)
            stored = rows.reshape(values.shape[0], -1)
        else:
            stored = gguf.quantize(values, kind)
        writer.add_tensor(target, stored, raw_dtype=kind)
        numbers = gguf.dequantize(stored, kind).astype(np.float32)
        if stem.endswith(("q_proj", "k_proj")):
            heads = numbers.shape[0] // config.head_dim
            pairs = numbers.reshape(heads, config.head_dim // 2, 2, -1)
            numbers = pairs.transpose(0, 2, 1, 3).reshape(numbers.shape)
        want[name] = numbers
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return want


def test_the_tokenizer_of_a_gguf(tmp_path: Path) -> None:
    """With its chat template, in the folder that the commands look for."""
    gguf = pytest.importorskip("gguf", reason="the extra models is not installed")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from edgewise.llm.chat import Chat
    from edgewise.llm.export import copy_tokenizer
    from edgewise.llm.text import load_tokenizer

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["a tokenizer is trained on some text"] * 3, trainer)
    learned = json.loads(made.to_str())["model"]
    tokens = sorted(learned["vocab"], key=learned["vocab"].get)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(pair) for pair in learned["merges"]])
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0].content }}<|end|>")
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = copy_tokenizer(path, tmp_path / "small.pte")
    assert folder == tmp_path / "small.tokenizer"
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("a trained text") == made.encode("a trained text").ids
    chat = Chat(tokenizer, folder)
    assert chat.text([{"role": "user", "content": "Hi"}]) == "Hi<|end|>"
    assert chat.eos_ids == {1}
