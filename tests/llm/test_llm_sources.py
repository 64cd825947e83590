"""Checkpoints whose weights are integers: what is read is what the format's own library makes of
them, or what they were packed from."""

from __future__ import annotations

import json
from collections.abc import Callable
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


Parts = dict[str, torch.Tensor]
Packed = tuple[Parts, torch.Tensor]
"""What is stored beside a layer's name, and the weight that it stands for."""


def fp4_numbers(nibbles: torch.Tensor) -> torch.Tensor:
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    return torch.tensor([*values, *(-value for value in values)])[nibbles]


def spread(scales: torch.Tensor, rows: int, columns: int, shape: torch.Size) -> torch.Tensor:
    """A scale for each block of so many rows and columns, the last ones cut."""
    wide = scales.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    return wide[: shape[0], : shape[1]]


def blocks_of_fp8(weight: torch.Tensor) -> Packed:
    stored = (weight * 30).to(torch.float8_e4m3fn)
    out, in_ = weight.shape
    scales = torch.rand(-(-out // 48), -(-in_ // 48)) / 100
    want = stored.float() * spread(scales, 48, 48, weight.shape)
    return {"weight": stored, "weight_scale_inv": scales, "activation_scale": torch.ones(1)}, want


def one_fp8(weight: torch.Tensor) -> Packed:
    stored, scale = (weight * 30).to(torch.float8_e4m3fn), torch.tensor(0.03)
    return {"weight": stored, "weight_scale_inv": scale}, stored.float() * scale


def rows_of_fp8(weight: torch.Tensor) -> Packed:
    stored, scales = (weight * 30).to(torch.float8_e4m3fn), torch.rand(len(weight), 1)
    return {"weight": stored, "weight_scale": scales.bfloat16()}, stored.float() * scales.bfloat16()


def rows_of_int8(weight: torch.Tensor) -> Packed:
    stored = torch.randint(-128, 128, weight.shape, dtype=torch.int8)
    zeros = torch.randint(-9, 9, (len(weight), 1), dtype=torch.int8)
    scales = torch.rand(len(weight), 1)
    parts = {"weight": stored, "weight_scale": scales, "weight_zero_point": zeros}
    return parts, (stored.float() - zeros.float()) * scales


def groups_of_int4(weight: torch.Tensor) -> Packed:
    """With zero points, in the order of activations."""
    out, in_ = weight.shape
    integers = torch.randint(0, 16, weight.shape)
    zeros = torch.randint(0, 16, (out, in_ // 32))
    scales, order = torch.rand(out, in_ // 32), torch.randperm(in_) // 32
    parts = {
        "weight_packed": packed(integers, 4, 1),
        "weight_zero_point": packed(zeros, 4, 0),
        "weight_scale": scales,
        "weight_shape": torch.tensor(weight.shape),
        "weight_g_idx": order.int(),
    }
    return parts, (integers - zeros[:, order]).float() * scales[:, order]


def nvfp4(weight: torch.Tensor) -> Packed:
    nibbles = torch.randint(0, 16, weight.shape)
    scales = (torch.rand(len(weight), weight.shape[1] // 16) * 400).to(torch.float8_e4m3fn)
    bytes_ = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).byte()
    total = torch.tensor([1000.0])
    parts = {"weight_packed": bytes_, "weight_scale": scales, "weight_global_scale": total}
    return parts, fp4_numbers(nibbles) * spread(scales.float() / total, 1, 16, weight.shape)


def nf4(weight: torch.Tensor) -> Packed:
    """Blocks of 64, whose scales are bytes in blocks of 256."""
    nibbles = torch.randint(0, 16, (weight.numel(),))
    numbers, steps = torch.randn(16).sort().values, torch.linspace(-1, 1, 256)
    count = weight.numel() // 64
    bytes_, largest = torch.randint(0, 256, (count,)), torch.rand(-(-count // 256))
    state = {"quant_type": "nf4", "blocksize": 64, "shape": list(weight.shape)}
    state |= {"dtype": "float32", "nested_blocksize": 256, "nested_offset": 0.5}
    parts = {
        "weight": (nibbles[::2] << 4 | nibbles[1::2]).byte().unsqueeze(-1),
        "weight.absmax": bytes_.byte(),
        "weight.quant_map": numbers,
        "weight.nested_absmax": largest,
        "weight.nested_quant_map": steps,
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(
            list(json.dumps(state).encode()), dtype=torch.uint8
        ),
    }
    scales = steps[bytes_] * largest.repeat_interleave(256)[:count] + 0.5
    return parts, (numbers[nibbles] * scales.repeat_interleave(64)).view(weight.shape)


def llm_int8(weight: torch.Tensor) -> Packed:
    stored = torch.randint(-127, 128, weight.shape, dtype=torch.int8)
    largest = torch.rand(len(weight))
    parts = {"weight": stored, "SCB": largest, "weight_format": torch.tensor(0)}
    return parts, stored.float() * (largest / 127).unsqueeze(-1)


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    about = {"quant_method": "compressed-tensors", "format": form}
    return {**about, "config_groups": {"group_0": group}}


BNB = {"quant_method": "bitsandbytes"}
FORMS = {
    "fp8 blocks": ({"quant_method": "fp8", "weight_block_size": [48, 48]}, blocks_of_fp8),
    "fp8": ({"quant_method": "fp8", "weight_block_size": None}, one_fp8),
    "compressed fp8": (compressed("float-quantized", num_bits=8, type="float"), rows_of_fp8),
    "compressed int8": (compressed("int-quantized", num_bits=8, type="int"), rows_of_int8),
    "compressed int4": (compressed("pack-quantized", num_bits=4, group_size=32), groups_of_int4),
    "compressed nvfp4": (compressed("nvfp4-pack-quantized", num_bits=4, type="float"), nvfp4),
    "nf4": ({**BNB, "load_in_4bit": True}, nf4),
    "int8": ({**BNB, "load_in_8bit": True}, llm_int8),
}


@pytest.mark.parametrize("form", FORMS)
def test_other_packed_checkpoints(form: str, tmp_path: Path) -> None:
    """What these libraries themselves write was read alike: compressed-tensors 0.20.0,
    bitsandbytes 0.50.2."""
    from safetensors.torch import save_file

    about, pack = FORMS[form]
    torch.manual_seed(0)
    model = random_model({**OPTIONS, "tie_word_embeddings": False})
    tensors, want = {}, {}
    for name, weight in model.state_dict().items():
        layer = name.rpartition(".")[0]
        parts: Parts = {"weight": weight.bfloat16()}
        want[name] = weight.bfloat16().float()
        if layer.endswith(LINEAR):
            parts, want[name] = pack(weight)
        tensors |= {f"{layer}.{part}": value.contiguous() for part, value in parts.items()}
    # Another file that is not named in the index, as Mistral's folders have one.
    save_file(
        {"layers.0.attention.wq.weight": torch.ones(1)}, tmp_path / "consolidated.safetensors"
    )
    save_file(tensors, tmp_path / "model.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {**model.config.to_dict(), "quantization_config": about}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    loaded = load_model(tmp_path)
    assert loaded.generation_config.eos_token_id == [2, 7]
    found = loaded.state_dict()
    assert want.keys() == found.keys()
    for name, weight in want.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=0, msg=name)


def test_experts_in_four_bits(tmp_path: Path) -> None:
    """gpt-oss's, by what `transformers` makes of the same bytes."""
    from safetensors.torch import save_file
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    from edgewise.llm.architectures import architecture_of

    row = architecture_of("gpt_oss")
    assert row is not None
    model = random_model({**OPTIONS, **row.small, "model_type": "gpt_oss"})
    tensors, want = {}, dict(model.state_dict())
    for name, weight in list(want.items()):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = weight.clone()
            continue
        experts, in_, out = weight.shape
        blocks = torch.randint(0, 256, (experts, out, in_ // 32, 16), dtype=torch.uint8)
        scales = torch.randint(110, 125, (experts, out, in_ // 32), dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        want[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    about = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    config = {**model.config.to_dict(), "quantization_config": about}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = load_model(tmp_path).state_dict()
    assert want.keys() == found.keys()
    for name, weight in want.items():
        assert torch.equal(weight, found[name]), name


MLX = [("affine", bits, 32) for bits in (2, 3, 4, 5, 6, 8)]
MLX += [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)]


def of_mlx(shape: torch.Size, mode: str, bits: int, group: int) -> Packed:
    """Random numbers, as `mx.quantize` packs them: bit after bit, the lowest first."""
    generator = np.random.default_rng(0)
    integers = generator.integers(0, 1 << bits, shape)
    if mode == "mxfp8":
        integers = np.where(integers % 128 == 127, 1, integers)  # no NaN
    each = (integers[..., None] >> np.arange(bits)) & 1
    words = np.packbits(each.reshape(shape[0], -1).astype(np.uint8), axis=-1, bitorder="little")
    parts: Parts = {"weight": torch.from_numpy(words.view(np.uint32))}
    held = torch.from_numpy(integers)
    groups = (shape[0], shape[1] // group)
    if mode == "affine":
        numbers = held.float()
        parts["scales"] = torch.rand(groups).half() / 100
        parts["biases"] = -parts["scales"] * 3
        factors, added = parts["scales"].float(), parts["biases"].float()
    else:
        eights = held.to(torch.uint8).view(torch.float8_e4m3fn)
        numbers = eights.float() if mode == "mxfp8" else fp4_numbers(held)
        if mode == "nvfp4":
            factors = (torch.rand(groups) / 8).to(torch.float8_e4m3fn)
            parts["scales"] = factors.view(torch.uint8)
        else:
            parts["scales"] = torch.randint(115, 122, groups, dtype=torch.uint8)
            factors = torch.ldexp(torch.ones(groups), parts["scales"].int() - 127)
        factors, added = factors.float(), torch.zeros(groups)
    spread = [x.repeat_interleave(group, -1) for x in (factors, added)]
    return parts, numbers * spread[0] + spread[1]


@pytest.mark.parametrize(("mode", "bits", "group"), MLX)
def test_checkpoints_of_mlx(mode: str, bits: int, group: int, tmp_path: Path) -> None:
    """What mlx-lm 0.32.2 itself writes was read alike: benchmarks/mlx_sources.py."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = random_model({**OPTIONS, "tie_word_embeddings": False})
    tensors, want = {}, {}
    other = "model.layers.0.self_attn.q_proj"  # has settings of its own
    for name, weight in model.state_dict().items():
        layer = name.rpartition(".")[0]
        parts: Parts = {"weight": weight}
        want[name] = weight
        if layer.endswith((*LINEAR, "embed_tokens", "lm_head")):
            form = ("affine", 8, 64) if layer == other else (mode, bits, group)
            parts, want[name] = of_mlx(weight.shape, *form)
        tensors |= {f"{layer}.{part}": value.contiguous() for part, value in parts.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    about: dict[str, Any] = {"group_size": group, "bits": bits, "mode": mode}
    about[other] = {"group_size": 64, "bits": 8, "mode": "affine"}
    config = {**model.config.to_dict(), "quantization": about, "quantization_config": about}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = load_model(tmp_path).state_dict()
    assert want.keys() == found.keys()
    for name, weight in want.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
def test_experts_of_mlx(kind: str, tmp_path: Path) -> None:
    """Which lie in one tensor, under other names."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    from edgewise.llm.architectures import architecture_of

    row = architecture_of(kind)
    assert row is not None
    named: Any = AutoConfig
    made = named.for_model(kind, **{**OPTIONS, **row.small, "tie_word_embeddings": False})
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(made).float()
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    experts: dict[str, dict[int, torch.Tensor]] = {}
    tensors: Parts = {}
    for name, weight in stored.items():
        before, found, after = name.partition(".experts.")
        if not found:
            tensors[name] = weight
            continue
        index, part, _ = after.split(".")
        joined = f"{before}.switch_mlp.{names.get(part, part)}.weight"
        experts.setdefault(joined, {})[int(index)] = weight
    assert experts
    for name, each in experts.items():
        tensors[name] = torch.stack([each[i] for i in range(len(each))])
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization"] = {"group_size": 64, "bits": 4}  # of no layer here
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = load_model(tmp_path).state_dict()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0, msg=name)


def _of_granite(tensors: Parts) -> Parts:
    made: Parts = {}
    for name, weight in tensors.items():
        block, is_input, _ = name.partition("shared_mlp.input_linear.")
        if is_input:
            gate, up = weight.chunk(2)
            made |= {f"{block}mlp.gate_proj.weight": gate, f"{block}mlp.up_proj.weight": up}
        else:
            made[name.replace("shared_mlp.output_linear", "mlp.down_proj")] = weight
    return made


def _of_lfm2_moe(tensors: Parts) -> Parts:
    made: Parts = {}
    experts: dict[str, dict[int, torch.Tensor]] = {}
    for name, weight in tensors.items():
        for old, new in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
            name = name.replace(f".{old}.weight", f".{new}.weight")
        before, is_expert, after = name.partition(".experts.")
        if not is_expert:
            made[name] = weight
            continue
        index, part = after.split(".", 1)
        experts.setdefault(f"{before}.switch_mlp.{part}", {})[int(index)] = weight
    for name, each in experts.items():
        made[name] = torch.stack([each[i] for i in range(len(each))])
    return made


def _of_qwen3_5(tensors: Parts) -> Parts:
    added = ("layernorm.weight", "q_norm.weight", "k_norm.weight", "model.norm.weight")
    tensors = {k: v + 1 if k.endswith(added) else v for k, v in tensors.items()}
    return {f"language_model.{k}": v for k, v in tensors.items()}


def _beside_a_tower(tensors: Parts) -> Parts:
    seen = {"vision_tower.encoder.weight": torch.ones(2), "multi_modal_projector.x": torch.ones(2)}
    return {f"language_model.{k}": v for k, v in tensors.items()} | seen


MLX_NAMES: dict[str, tuple[str, Callable[[Parts], Parts]]] = {
    "gemma3": ("gemma3_text", _beside_a_tower),
    "gemma4": ("gemma4_text", _beside_a_tower),
    "granitemoehybrid": ("granitemoehybrid", _of_granite),
    "lfm2": ("lfm2", lambda tensors: tensors),
    "lfm2_moe": ("lfm2_moe", _of_lfm2_moe),
    "mamba2": ("mamba2", lambda tensors: tensors),
    "qwen3_5": ("qwen3_5_text", _of_qwen3_5),
}


@pytest.mark.parametrize("kind", MLX_NAMES)
def test_names_of_mlx(kind: str, tmp_path: Path) -> None:
    """Other names, parts of a tensor, filters that lie otherwise, models that also see: as mlx-lm
    writes them, whose own files benchmarks/mlx_sources.py reads."""
    from safetensors.torch import load_file, save_file

    from edgewise.llm.architectures import architecture_of

    text_kind, renamed = MLX_NAMES[kind]
    row = architecture_of(text_kind)
    assert row is not None
    torch.manual_seed(0)
    model = random_model({**OPTIONS, **row.small, "model_type": text_kind})
    model.save_pretrained(tmp_path)
    tensors = renamed(load_file(tmp_path / "model.safetensors"))
    for name, weight in tensors.items():
        if name.endswith(("conv.weight", "conv1d.weight")):
            tensors[name] = weight.transpose(1, 2)
    tensors = {name: weight.contiguous() for name, weight in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    values = json.loads((tmp_path / "config.json").read_text())
    if kind != text_kind:
        values = {"model_type": kind, "text_config": values}
    values["quantization"] = {"group_size": 64, "bits": 4}  # of no layer here
    (tmp_path / "config.json").write_text(json.dumps(values))
    found, want = load_model(tmp_path).state_dict(), model.state_dict()
    assert found.keys() == want.keys()
    for name, weight in want.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=2e-7, msg=name)


REFUSED_OF_MLX = {
    "family": ({}, {"model_type": "qwen3_next"}, "MLX must be of cohere, .*; got 'qwen3_next'"),
    "mode": ({"mode": "mxfp4", "bits": 8}, {}, "mxfp4 of 4 bits; .* got mxfp4 of 8 bits"),
    "parts": ({"bits": 8}, {}, "the parts of .* must fit affine of 8 bits in groups of 32; got"),
}


@pytest.mark.parametrize("case", REFUSED_OF_MLX)
def test_checkpoints_of_mlx_that_are_refused(case: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    changes, others, message = REFUSED_OF_MLX[case]
    layer = "model.layers.0.self_attn.q_proj"
    parts, _ = of_mlx(torch.Size((64, 64)), "affine", 4, 32)
    save_file({f"{layer}.{part}": x for part, x in parts.items()}, tmp_path / "model.safetensors")
    about = {"group_size": 32, "bits": 4} | changes
    config = {**OPTIONS, "model_type": "llama", "quantization": about} | others
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", ["qwen3_moe", "gemma3"])
def test_names_in_packed_checkpoints(kind: str, tmp_path: Path) -> None:
    """That are not those of the modules: each expert's own layers, and the language model in one
    that also sees."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    from edgewise.llm.architectures import architecture_of

    row = architecture_of("gemma3_text" if kind == "gemma3" else kind)
    assert row is not None
    config: dict[str, Any] = {**OPTIONS, **row.small, "tie_word_embeddings": False}
    if kind == "gemma3":
        vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
        config = {"text_config": config, "vision_config": vision, "mm_tokens_per_image": 4}
    named: Any = AutoConfig
    model: Any = AutoModelForCausalLM.from_config(named.for_model(kind, **config)).float()
    model.save_pretrained(tmp_path)
    want = load_model(tmp_path).state_dict()
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name in [n for n in tensors if n.endswith(("q_proj.weight", "down_proj.weight"))]:
        parts, _ = llm_int8(tensors[name])
        layer = name.removesuffix(".weight")
        tensors |= {f"{layer}.{part}": value for part, value in parts.items()}
    save_file(tensors, file, {"format": "pt"})
    values = json.loads((tmp_path / "config.json").read_text())
    values["quantization_config"] = {**BNB, "load_in_8bit": True}
    (tmp_path / "config.json").write_text(json.dumps(values))
    found = load_model(tmp_path).state_dict()
    assert want.keys() == found.keys()
    changed = [name for name in want if not torch.equal(want[name], found[name])]
    assert len(changed) == 4, changed
    assert all("q_proj" in name or "down_proj" in name for name in changed), changed


TORCHAO = {"quant_method": "torchao", "quant_type": {"default": {}}}


def _torchao_configs() -> dict[str, Any]:
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig

    from edgewise.quantize._torchao import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        PerAxis,
        PerGroup,
    )

    return {
        "8da4w": Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(32)
        ),
        "a scale for each row": IntxWeightOnlyConfig(
            weight_dtype=torch.int8, granularity=PerAxis(0)
        ),
        "int8": Int8WeightOnlyConfig(),
        "float8": Float8WeightOnlyConfig(),
    }


TORCHAO_CASES = ("8da4w", "a scale for each row", "int8", "float8")


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "bin"])
@pytest.mark.parametrize("case", TORCHAO_CASES)
def test_checkpoints_of_torchao(case: str, pickled: bool, tmp_path: Path) -> None:
    """The numbers that torchao's own tensors stand for; named in safetensors as its own writer does
    (`torchao.prototype.safetensors`, 0.18)."""
    from safetensors.torch import save_file

    from edgewise.quantize._torchao import quantize_

    model = random_model({**OPTIONS, "tie_word_embeddings": False})
    quantize_(model, _torchao_configs()[case])
    tensors, want = {}, {}
    for name, value in model.state_dict().items():
        parts = [part for part in ("qdata", "scale", "zero_point") if hasattr(value, part)]
        want[name] = value.dequantize() if parts else value
        layer, _, last = name.rpartition(".")
        for part in parts:
            tensors[f"{layer}._{last}_{part}"] = getattr(value, part)
        if not parts:
            tensors[name] = value
    assert len(tensors) > len(want)
    if pickled:
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    else:
        save_file(tensors, tmp_path / "model.safetensors")
    config = {**model.config.to_dict(), "quantization_config": TORCHAO}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = load_model(tmp_path).state_dict()
    assert want.keys() == found.keys()
    for name, weight in want.items():
        torch.testing.assert_close(found[name], weight.float(), rtol=1e-6, atol=0, msg=name)


class _Other:
    """What no checkpoint may hold."""


def test_checkpoints_of_torchao_that_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    write_checkpoint(tmp_path, "gptq", 4)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": TORCHAO}))
    layer = "model.layers.0.self_attn.q_proj._weight"
    parts = {
        f"{layer}_qdata": torch.ones(64, 32, dtype=torch.int8),
        f"{layer}_scale": torch.ones(1),
    }
    for changes, told in (
        ({f"{layer}_qdata": torch.ones(64, 32, dtype=torch.uint8)}, "got torch.uint8 with qdata"),
        ({f"{layer}_act_pre_scale": torch.ones(64)}, "with act_pre_scale, qdata, scale"),
        ({f"{layer}_scale": torch.ones(64, 5)}, "the parts of .* must fit"),
    ):
        save_file({**parts, **changes}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=told):
            load_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no \*.safetensors"):
        load_model(tmp_path)
    torch.save({"weight": _Other()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="must hold tensors of this torchao's classes"):
        load_model(tmp_path)


REFUSED = {
    "unknown": ({"quant_method": "hqq"}, "mxfp4, fp8, .* or GGUF; got 'hqq'"),
    "no method": ({"bits": 4}, "got None"),
    "bits": ({"quant_method": "gptq", "bits": 3}, "4 or 8 bits"),
    "form": ({"quant_method": "awq", "version": "gemv"}, "in the form gemm"),
    "sparse": (
        {**compressed("dense"), "sparsity_config": {"format": "sparse-24-bitmask"}},
        "compressed-tensors must be .*; got sparse-24-bitmask",
    ),
    "parts": ({"quant_method": "awq"}, "the parts of .* must fit each other; got weights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_packed_checkpoints_that_are_refused(case: str, tmp_path: Path) -> None:
    about, message = REFUSED[case]
    write_checkpoint(tmp_path, "gptq", 4)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = about
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)
