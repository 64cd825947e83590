"""Checkpoints of MLX that `edgewise llm export` reads, against MLX itself.

A small model of each family with random weights is quantized by mlx-lm on this CPU; the folder is
read.

- weights: largest difference of a weight that was read from the model's own, in steps of 8 bits
  over that weight's range (a group's steps are no larger); biases and norms must be equal.
- logits: largest difference between the model that was read and MLX's, in units of the largest,
  and for how many tokens both choose the same next one. MLX computes some families otherwise:
  Gemma 2 without windows, Gemma and StarCoder with another GELU; and it reads positions of Gemma 3
  and GLM by other names in config.json than `transformers` 5 writes.

The exit code is 0 if all weights are within one step, and all forms of quantization (Llama) within
1e-5 of MLX's logits.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import add_cache_options, report
from _environments import python_of
from gguf_sources import MODELS, model_of, run
from llm_architectures import prompt_of

FORMS = [
    *((64, bits, "affine") for bits in (2, 3, 4, 5, 6, 8)),
    (32, 4, "mxfp4"),
    (16, 4, "nvfp4"),
    (32, 8, "mxfp8"),
]
_SEEING: dict[str, Callable[[str], str]] = {  # names of weights
    "gemma3": "language_model.{}".format,
    "gemma4": lambda name: re.sub(r"^model\.", "model.language_model.", name),
    "qwen3_5": lambda name: re.sub(r"^model\.", "model.language_model.", name),
}
_SMALL: dict[str, dict[str, Any]] = {  # where the defaults are large
    "helium": {"head_dim": 16, "num_key_value_heads": 2},
    "internlm3": {"head_dim": 16},
    "lfm2": {"tie_word_embeddings": True},
    "qwen3_5": {"layer_types": ["linear_attention"] * 3 + ["full_attention"]},
}
_GEMMA_3 = {
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "sliding_window_pattern": 6,
}
_CONFIG: dict[str, dict[str, Any]] = {  # which published ones have
    "exaone4": {
        "head_dim": 16,
        "rope_scaling": {"rope_type": "default"},
        "sliding_window_pattern": "LG",
    },
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "gemma4": {"global_head_dim": 32},
    "gemma4_text": {"global_head_dim": 32},
    "glm4": {"partial_rotary_factor": 0.5},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"]},
    "lfm2": {
        "block_dim": 64,
        "block_ff_dim": 192,
        "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": True,
    },
    "olmo3": {"rope_theta": 500000.0},
    "phi": {"partial_rotary_factor": 0.5},
    "qwen3_moe": {"num_experts": 4, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "stablelm": {"partial_rotary_factor": 0.25},
}


def row_of(kind: str, form: tuple[int, int, str], python: str, **more: Any) -> dict[str, Any]:
    """Of the table that the script prints."""
    from edgewise.llm.export import load_model

    text_kind = f"{kind}_text" if kind in _SEEING else kind
    values = next((values for name, values in MODELS.values() if name == text_kind), {})
    model = model_of(text_kind, {**values, **_SMALL.get(kind, {}), **more})
    worker = [python, str(Path(__file__).with_name("_mlx_lm.py"))]
    group, bits, mode = form
    row: dict[str, Any] = {"family": kind, "form": f"{mode}, {bits} bits, groups of {group}"}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/float")
        path = Path(folder, "float", "config.json")
        config = json.loads(path.read_text()) | _CONFIG.get(kind, {})
        theta = (config.get("rope_parameters") or {}).get("rope_theta")
        path.write_text(json.dumps(config | ({"rope_theta": theta} if theta else {})))
        if kind in _SEEING:
            _put_into_another(Path(folder, "float"), kind)
        run([*worker, "convert", f"{folder}/float", f"{folder}/mlx", *map(str, form)])
        found = load_model(f"{folder}/mlx")
        row["weights"] = _steps(found.state_dict(), model.state_dict())
        text = prompt_of(model)
        with torch.no_grad():
            ours = found(torch.tensor([text]), use_cache=False).logits[0].numpy()
        run([*worker, "logits", f"{folder}/mlx", json.dumps(text), f"{folder}/logits.npy"])
        theirs = np.load(f"{folder}/logits.npy")
    row["logits"] = float(np.abs(ours - theirs).max() / np.abs(ours).max())
    row["next tokens"] = f"{int((ours.argmax(-1) == theirs.argmax(-1)).sum())} of {len(text)}"
    return row


def _put_into_another(folder: Path, kind: str) -> None:
    """The model becomes the language model of one that also sees, as that is published."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    to = _SEEING[kind]
    save_file({to(name): weight for name, weight in weights.items()}, folder / "model.safetensors")
    text = json.loads((folder / "config.json").read_text())
    config = {"model_type": kind, "text_config": text}
    config |= {key: text[key] for key in ("tie_word_embeddings", "vocab_size")}
    (folder / "config.json").write_text(json.dumps(config))


def _steps(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """Infinite if a weight is missing, or one differs that is not quantized."""
    if found.keys() != wanted.keys():
        return float("inf")
    most = 0.0
    for name, weight in wanted.items():
        off = float((found[name] - weight).abs().max())
        step = float(weight.max() - weight.min()) / 255 if weight.dim() > 1 else 0.0
        off = 0.0 if off <= 1e-6 else off  # Qwen3.5's norms have one added
        most = max(most, off / step if off and step else 0.0 if not off else float("inf"))
    return most


def main() -> int:
    """Prints the table."""
    from edgewise.llm.export.mlx_weights import MLX_FAMILIES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="model types; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser, refresh=False)
    options = parser.parse_args()
    python = python_of("mlx", options.cache)
    cases = [(kind, (32, 8, "affine")) for kind in options.names or sorted(MLX_FAMILIES)]
    rows = []
    for kind, form in cases:
        rows.append(row_of(kind, form, python))
        print(rows[-1], file=sys.stderr, flush=True)
    families = len(rows)
    if not options.names:
        rows += [row_of("llama", form, python, hidden_size=128) for form in FORMS]
    report("MLX: what is read, and what MLX computes", rows, [], options.json)
    wrong = any(row["weights"] > 1 for row in rows[:families])
    return int(wrong or any(row["logits"] > 1e-5 for row in rows[families:]))


if __name__ == "__main__":
    sys.exit(main())
