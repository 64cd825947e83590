"""Checkpoints whose weights are integers: GPTQ, AWQ and GGUF, as models in float32.

Their integers are expanded; what quantizes the model afterwards rounds again, to its own scales.

GPTQ's and AWQ's linear layers are `qweight`, `qzeros` and `scales` for a weight [out, in], with
groups of inputs that share a scale. Sources: AutoGPTQ's and GPTQModel's `pack`, AutoAWQ's
`WQLinear_GEMM`, for the order of bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["float_weights", "load_gguf", "quantization_of", "save_gguf_tokenizer"]

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in 32 bits AWQ puts 4-bit columns 0 to 7."""


def quantization_of(config: Mapping[str, Any]) -> str | None:
    """The `quant_method` of a config.json; None for floats. ValueError for one that is unknown."""
    about = config.get("quantization_config")
    if about is None:
        return None
    method = about.get("quant_method") if isinstance(about, dict) else None
    if method not in ("gptq", "awq"):
        raise ValueError(
            f"[checkpoint] a quantized checkpoint must be of gptq, awq or GGUF; got {method!r}; "
            f"try the model's float checkpoint"
        )
    bits, version = int(about.get("bits", 4)), str(about.get("version", "gemm")).lower()
    if bits not in (4, 8) or (method == "awq" and (bits, version) != (4, "gemm")):
        raise ValueError(
            f"[checkpoint] must be gptq of 4 or 8 bits, or awq of 4 in the form gemm; got {method} "
            f"of {bits} bits, {version}"
        )
    return str(method)


def float_weights(directory: Path, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All weights of a folder's safetensors in float32, by name, as the float model has them.

    FileNotFoundError without any; ValueError if a layer's parts do not go together.
    """
    from safetensors.torch import load_file

    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"[checkpoint] no *.safetensors in {directory}")
    stored: dict[str, torch.Tensor] = {}
    for file in files:
        stored.update(load_file(file))
    about = config["quantization_config"]
    method = quantization_of(config)
    found: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        layer, _, part = name.rpartition(".")
        if part == "qweight":
            parts = {p: stored.get(f"{layer}.{p}") for p in ("qweight", "qzeros", "scales")}
            missing = [p for p, t in parts.items() if t is None]
            if missing:
                raise ValueError(f"[checkpoint] {layer} must have {' and '.join(missing)}")
            if method == "awq":
                weight = _awq(parts)
            else:
                order = stored.get(f"{layer}.g_idx")
                is_v2 = about.get("checkpoint_format") == "gptq_v2"
                weight = _gptq(parts, order, int(about.get("bits", 4)), 0 if is_v2 else 1)
            found[f"{layer}.weight"] = weight
        elif part not in ("qzeros", "scales", "g_idx"):
            found[name] = tensor.float() if tensor.is_floating_point() else tensor
    return found


def _unpacked(packed: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """int32, of which each holds 32 / bits numbers along `dim`, the first in the lowest bits."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    shape = [1] * (packed.dim() + 1)
    shape[dim + 1] = len(shifts)
    wide = (packed.unsqueeze(dim + 1) >> shifts.view(shape)) & ((1 << bits) - 1)
    return wide.flatten(dim, dim + 1)


def _gptq(
    parts: Mapping[str, Any], order: torch.Tensor | None, bits: int, more: int
) -> torch.Tensor:
    """qweight [in / n, out], qzeros [groups, out / n], which are less by `more`; scales
    [groups, out]; order [in], the group of each input."""
    integers = _unpacked(parts["qweight"], bits, 0)
    zeros = (_unpacked(parts["qzeros"], bits, 1) + more) & ((1 << bits) - 1)
    scales = parts["scales"].float()
    inputs, groups = integers.shape[0], scales.shape[0]
    if order is None:
        order = torch.arange(inputs) // (inputs // groups)
    if integers.shape[1] != scales.shape[1] or len(order) != inputs or int(order.max()) >= groups:
        raise ValueError(
            f"[checkpoint] a layer's weights, scales and groups must fit; got "
            f"{list(integers.shape)}, {list(scales.shape)} and {len(order)} inputs"
        )
    rows = order.long()
    weight: torch.Tensor = (integers - zeros[rows]).float() * scales[rows]
    return weight.t().contiguous()


def _awq(parts: Mapping[str, Any]) -> torch.Tensor:
    """qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]."""

    def in_order(packed: torch.Tensor) -> torch.Tensor:
        columns = _unpacked(packed, 4, 1).view(packed.shape[0], -1, 8)
        return columns[:, :, list(_AWQ_ORDER)].flatten(1)

    integers, zeros = in_order(parts["qweight"]), in_order(parts["qzeros"])
    scales = parts["scales"].float()
    if integers.shape[1] != scales.shape[1] or integers.shape[0] % scales.shape[0]:
        raise ValueError(
            f"[checkpoint] a layer's weights and scales must fit; got {list(integers.shape)} and "
            f"{list(scales.shape)}"
        )
    times = integers.shape[0] // scales.shape[0]
    zeros, scales = (t.repeat_interleave(times, 0) for t in (zeros, scales))
    return ((integers - zeros).float() * scales).t().contiguous()


def load_gguf(path: Path) -> Any:
    """The model of a GGUF file, whatever its types of tensors, by `transformers` and `gguf`.

    ModuleNotFoundError without gguf; ValueError if they cannot read it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        import gguf  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "[checkpoint] a GGUF file needs the package gguf; try pip install 'edgewise[models]'",
            name="gguf",
        ) from None
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config_loader: Any = AutoConfig
    maker: Any = AutoModelForCausalLM
    read: Any = load_gguf_checkpoint
    try:
        # Its own `from_pretrained` would ask for the package accelerate.
        config = config_loader.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True
        )
        model = maker.from_config(config).float()
        weights = read(str(path), return_tensors=True, model_to_load=model)["tensors"]
        report = model.load_state_dict(weights, strict=False)
    except (ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError(f"[checkpoint] no model in {path}: {error}") from error
    model.tie_weights()
    missing = set(report.missing_keys)
    if "lm_head.weight" in missing and config.tie_word_embeddings:
        missing.discard("lm_head.weight")
    if missing:
        raise ValueError(
            f"[checkpoint] must hold all weights; got none for {', '.join(sorted(missing)[:5])} "
            f"in {path}"
        )
    return model.eval()


def save_gguf_tokenizer(path: Path, folder: Path) -> Path | None:
    """Writes the tokenizer that a GGUF file holds as `tokenizer.json` and what goes with it. None
    if it holds none that `transformers` can read."""
    from transformers import AutoTokenizer

    loader: Any = AutoTokenizer
    try:
        tokenizer = loader.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except Exception:  # whatever a converter meets in a file without vocabulary
        return None
    tokenizer.save_pretrained(folder)
    return folder
