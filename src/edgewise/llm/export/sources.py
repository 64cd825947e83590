"""Checkpoints that hold no floats: quantized safetensors and GGUF, as models in float32.

What quantizes the model afterwards rounds again, to its own scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from edgewise.files import read_json
from edgewise.llm.export.packed import PACKINGS, packing_problem

__all__ = ["float_weights", "load_gguf", "quantization_of", "save_gguf_tokenizer"]


def quantization_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The `quantization_config` of a config.json; None for floats. ValueError for a method, or a
    form of one, that is unknown."""
    about = config.get("quantization_config")
    if about is None:
        return None
    about = about if isinstance(about, dict) else {}
    problem = packing_problem(about)
    if problem:
        raise ValueError(f"[checkpoint] {problem}")
    return about


def float_weights(directory: Path, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All weights of a folder's safetensors in float32, by name, as a float checkpoint has them.

    about: as `quantization_of` found it. FileNotFoundError without any; ValueError if a layer's
    parts do not go together.
    """
    from safetensors.torch import load_file

    index = directory / "model.safetensors.index.json"
    if index.is_file():
        files = [directory / name for name in sorted(_files_in(index))]
    else:
        files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"[checkpoint] no *.safetensors in {directory}")
    stored: dict[str, torch.Tensor] = {}
    for file in files:
        stored.update(load_file(file))
    return PACKINGS[about["quant_method"]](stored, about)


def _files_in(index: Path) -> set[str]:
    try:
        return {Path(name).name for name in read_json(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"[checkpoint] {index} must map weights to files: {error}") from None


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
