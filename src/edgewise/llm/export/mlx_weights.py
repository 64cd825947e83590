"""Checkpoints that `mlx-lm` has quantized, as float weights by `transformers`' names.

Source: MLX's `mx.quantize` and `mlx_lm` 0.32. A weight [..., out, in] is 32-bit integers [...,
out, in * bits / 32], whose bits are those of the numbers, the lowest first, one after the other;
beside it are `scales` [..., out, in / group] and, of the mode `affine`, `biases` of that shape.
Experts lie in one tensor [E, out, in], filters of convolutions over time are [out, width, in].
Of models that also see, the language model is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["FP4", "MLX_FAMILIES", "mlx_problem", "mlx_weights", "text_config"]

_NAMES = """
cohere cohere2 ernie4_5 exaone4 gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text glm glm4 granite
granitemoehybrid helium hunyuan_v1_dense internlm3 lfm2 lfm2_moe llama mamba2 ministral3 mistral
mixtral nemotron olmo2 olmo3 olmoe phi phi3 qwen2 qwen2_moe qwen3 qwen3_5 qwen3_moe seed_oss smollm3
stablelm starcoder2
"""
MLX_FAMILIES = frozenset(_NAMES.split())
"""`model_type`s whose weights mlx-lm keeps under their names, or under others that are known."""

_AFFINE_BITS = (2, 3, 4, 5, 6, 8)
_MODES = {"affine": _AFFINE_BITS, "mxfp4": (4,), "nvfp4": (4,), "mxfp8": (8,)}
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP4 = torch.tensor([*_E2M1, *(-value for value in _E2M1)])
"""The numbers of four bits, a sign, two of exponent and one of mantissa."""

_EXPERTS = re.compile(
    r"(.*\.(mlp|block_sparse_moe|feed_forward))\.switch_mlp\.(gate|up|down)_proj\.weight"
)
_W = {"gate": "w1", "down": "w2", "up": "w3"}
_SEES = re.compile(
    r"(model\.)?(vision_|audio_|visual|multi_modal_projector|embed_vision|embed_audio)"
)


def mlx_problem(about: Mapping[str, Any]) -> str:
    """Why a checkpoint of this `quantization` and `model_type` cannot be read; "" if it can."""
    kind, mode, bits = about.get("model_type"), about.get("mode", "affine"), about.get("bits")
    if kind not in MLX_FAMILIES:
        return (
            f"a checkpoint of MLX must be of {', '.join(sorted(MLX_FAMILIES))}; got {kind!r}; "
            f"try the model's float checkpoint"
        )
    if bits not in _MODES.get(str(mode), ()):
        known = "; ".join(
            f"{mode} of {', '.join(map(str, of))} bits" for mode, of in _MODES.items()
        )
        return f"weights of MLX must be {known}; got {mode} of {bits} bits"
    return ""


def mlx_weights(
    stored: Mapping[str, torch.Tensor], about: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """What is stored, by name, in float32: experts one by one.

    about: config.json's `quantization`, with other settings for single layers under their names.
    ValueError if the parts of a layer do not fit each other.
    """
    found: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        layer, _, part = name.rpartition(".")
        if part in ("scales", "biases") and f"{layer}.weight" in stored:
            continue
        if _SEES.match(name):
            continue
        if part == "weight" and f"{layer}.scales" in stored:
            own = about.get(layer)
            settings = {**about, **own} if isinstance(own, dict) else about
            biases = stored.get(f"{layer}.biases")
            tensor = _dequantized(layer, tensor, stored[f"{layer}.scales"], biases, settings)
        elif tensor.is_floating_point():
            tensor = tensor.float()
        found[name.removeprefix("language_model.")] = _filter(name, tensor)
    return _OTHERWISE.get(str(about.get("model_type")), _by_expert)(found)


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json's part for the language model; all of it where there is no other."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        return dict(config)
    tied = "tie_word_embeddings"
    return {**text, tied: config[tied]} if tied in config else dict(text)


def _dequantized(
    layer: str,
    weight: torch.Tensor,
    scales: torch.Tensor,
    biases: torch.Tensor | None,
    about: Mapping[str, Any],
) -> torch.Tensor:
    mode, bits = str(about.get("mode", "affine")), int(about["bits"])
    group = int(about.get("group_size") or {"affine": 64, "nvfp4": 16}.get(mode, 32))
    count = scales.shape[-1] * group
    fits = weight.dtype == torch.uint32 and weight.shape[-1] * 32 == count * bits
    fits = fits and bits in _MODES.get(mode, ()) and (biases is None) == (mode != "affine")
    if not fits or weight.shape[:-1] != scales.shape[:-1]:
        got = f"weights {list(weight.shape)}, scales {list(scales.shape)}"
        raise ValueError(
            f"[checkpoint] the parts of {layer} must fit {mode} of {bits} bits in groups of "
            f"{group}; got {got}, {'no' if biases is None else 'with'} biases"
        )
    if mode == "mxfp8":
        numbers = weight.view(torch.float8_e4m3fn).float()
    else:
        numbers = _numbers(weight, bits)
        numbers = numbers.float() if mode == "affine" else FP4[numbers.long()]
    if mode == "nvfp4":
        factors = scales.view(torch.float8_e4m3fn).float()
    elif mode == "affine":
        factors = scales.float()
    else:
        factors = torch.exp2(scales.float() - 127)
    result = numbers.view(*scales.shape, group).mul_(factors.unsqueeze(-1))
    if biases is not None:
        result += biases.float().unsqueeze(-1)
    return result.flatten(-2)


def _numbers(words: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [..., n * 32 / bits] of uint32 [..., n]."""
    # As many bytes as bits hold eight numbers.
    octets = words.view(torch.uint8).view(*words.shape[:-1], -1, bits)
    shifts = 8 * torch.arange(bits)
    together = (octets.long() << shifts).sum(-1)
    every = [(together >> (bits * i) & ((1 << bits) - 1)).to(torch.uint8) for i in range(8)]
    return torch.stack(every, -1).flatten(-2)


def _filter(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Of a convolution over time, each channel by itself: as PyTorch has it, [out, 1, width]."""
    is_one = name.endswith(("conv.weight", "conv1d.weight")) and tensor.dim() == 3
    return tensor.transpose(1, 2) if is_one and tensor.shape[-1] == 1 else tensor


Weights = dict[str, torch.Tensor]


def _by_expert(found: Weights) -> Weights:
    made: Weights = {}
    for name, tensor in found.items():
        matched = _EXPERTS.fullmatch(name)
        if matched is None:
            made[name] = tensor
            continue
        block, part = matched[1], matched[3]
        part = f"{part}_proj" if matched[2] == "mlp" else _W[part]
        made |= {f"{block}.experts.{i}.{part}.weight": one for i, one in enumerate(tensor)}
    return made


_DENSE = re.compile(r"(?<=\.feed_forward\.)(gate|up|down)_proj(?=\.weight$)")


def _lfm2_moe(found: Weights) -> Weights:
    return _by_expert({_DENSE.sub(lambda m: _W[m[1]], k): v for k, v in found.items()})


def _granite(found: Weights) -> Weights:
    """Gates and what they are multiplied with are one tensor."""
    made: Weights = {}
    for name, tensor in found.items():
        block, matched, part = name.rpartition("mlp.")
        if not matched or part not in ("gate_proj.weight", "up_proj.weight", "down_proj.weight"):
            made[name] = tensor
            continue
        inside = (
            block.removesuffix("switch_") if block.endswith("switch_") else f"{block}shared_mlp."
        )
        if part == "down_proj.weight":
            made[f"{inside}output_linear.weight"] = tensor
        elif part == "gate_proj.weight":
            both = (tensor, found[f"{block}mlp.up_proj.weight"])
            made[f"{inside}input_linear.weight"] = torch.cat(both, -2)
    return made


_PLUS_ONE = re.compile(
    r".*\.(input_layernorm|post_attention_layernorm|q_norm|k_norm)\.weight|model\.norm\.weight"
)


def _qwen3_5(found: Weights) -> Weights:
    """MLX's norms have the one that is added to them."""
    return {k: v - 1 if _PLUS_ONE.fullmatch(k) else v for k, v in found.items()}


_OTHERWISE = {"granitemoehybrid": _granite, "lfm2_moe": _lfm2_moe, "qwen3_5": _qwen3_5}
