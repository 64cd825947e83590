"""Checkpoints that hold no floats: quantized safetensors and GGUF, as models in float32.

What quantizes the model afterwards rounds again, to its own scales.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from edgewise.files import read_json
from edgewise.llm.export.gguf_models import GgufFile
from edgewise.llm.export.packed import PACKINGS, packing_problem

__all__ = [
    "float_weights",
    "open_gguf",
    "quantization_of",
    "save_gguf_tokenizer",
]


def quantization_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The `quantization_config` of a config.json, or of MLX's its `quantization`; None for floats.
    ValueError for a method, or a form of one, that is unknown."""
    about, of_mlx = config.get("quantization_config"), config.get("quantization")
    if isinstance(of_mlx, dict) and "quant_method" not in (about or {}):
        about = {**of_mlx, "quant_method": "mlx", "model_type": config.get("model_type")}
    if about is None:
        return None
    about = about if isinstance(about, dict) else {}
    problem = packing_problem(about)
    if problem:
        raise ValueError(f"[checkpoint] {problem}")
    return about


def float_weights(directory: Path, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All weights of a folder's safetensors in float32, by name, as a float checkpoint has them; of
    `pytorch_model*.bin` for torchao, whose tensors were pickled before.

    about: as `quantization_of` found it. FileNotFoundError without any; ValueError if a layer's
    parts do not go together.
    """
    from safetensors.torch import load_file

    method = about["quant_method"]
    files = _weight_files(directory, "model.safetensors", "*.safetensors")
    load: Callable[[Path], dict[str, torch.Tensor]] = load_file
    if not files and method == "torchao":
        files, load = (
            _weight_files(directory, "pytorch_model.bin", "pytorch_model*.bin"),
            _unpickled,
        )
    if not files:
        raise FileNotFoundError(f"[checkpoint] no *.safetensors in {directory}")
    stored: dict[str, torch.Tensor] = {}
    for file in files:
        stored.update(load(file))
    return PACKINGS[method](stored, about)


def _weight_files(directory: Path, name: str, pattern: str) -> list[Path]:
    """Those that the index of `name` lists; without one, those of the pattern."""
    index = directory / f"{name}.index.json"
    if index.is_file():
        return [directory / file for file in sorted(_files_in(index))]
    return sorted(directory.glob(pattern))


def _unpickled(path: Path) -> dict[str, torch.Tensor]:
    """Of tensors and torchao's alone: `weights_only` refuses all other classes."""
    import edgewise.quantize._torchao  # noqa: F401  (names its classes as safe)

    try:
        loaded: dict[str, torch.Tensor] = torch.load(
            path, map_location="cpu", weights_only=True, mmap=True
        )
    except (AttributeError, EOFError, ModuleNotFoundError, RuntimeError, UnpicklingError) as error:
        raise ValueError(
            f"[checkpoint] {path} must hold tensors of this torchao's classes; got "
            f"{str(error).splitlines()[0]}; try the model's safetensors, or its float checkpoint"
        ) from error
    return loaded


def _files_in(index: Path) -> set[str]:
    try:
        return {Path(name).name for name in read_json(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"[checkpoint] {index} must map weights to files: {error}") from None


def open_gguf(path: Path) -> GgufFile:
    """ModuleNotFoundError without the package gguf; ValueError if it is no such file."""
    try:
        return GgufFile(path)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "[checkpoint] a GGUF file needs the package gguf; try pip install 'edgewise[models]'",
            name="gguf",
        ) from error
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"[checkpoint] {path} must be a whole GGUF file; got {error!r}") from error


_AS_GPT2 = ("default", "gpt-2", "granite-docling", "jais", "mpt", "olmo", "phi-2", "trillion")
_DIGITS_APART = ("codeshell", "command-r", "exaone", "minerva-7b", "refact", "smollm", "starcoder")
"""Of `tokenizer.ggml.pre`: GPT-2's way of splitting a text, and with each digit by itself."""


def save_gguf_tokenizer(path: Path, folder: Path) -> Path | None:
    """Writes the tokenizer that a GGUF file holds as `tokenizer.json` and what goes with it. None
    if it holds none that `transformers` can read."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer: Any = None
    loaders: tuple[Any, ...] = AutoTokenizer, PreTrainedTokenizerFast
    for loader in loaders:  # the second one for models that the first one does not know
        try:
            tokenizer = loader.from_pretrained(
                path.parent, gguf_file=path.name, local_files_only=True
            )
            break
        except Exception:  # whatever a converter meets in a file without vocabulary
            continue
    if tokenizer is None:
        return None
    splits = open_gguf(path).tokens_are_split
    if splits in _DIGITS_APART:
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    elif splits is not None and splits not in (*_AS_GPT2, *_known_splits()):
        warnings.warn(
            f"[checkpoint] the tokenizer splits texts as {splits!r}, which is not known, and is "
            f"taken for GPT-2's; got {path}; try the model's own tokenizer.json in {folder}",
            stacklevel=2,
        )
    tokenizer.save_pretrained(folder)
    return folder


def _known_splits() -> Iterable[str]:
    """Of `transformers`; older versions have these two."""
    try:
        from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping
    except ImportError:
        return ("llama-bpe", "qwen2")
    return tuple(mapping.GGUF_PRE_TOKENIZER_SPLITS)
