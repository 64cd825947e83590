"""Configurations of language models: names, files, directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgewise.files import read_json

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 192,
        "vocab_size": 512,
        "max_position_embeddings": 2048,
    },
    # 315,933,696 parameters.
    "300m": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 2816,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
    # 1,235,814,400 parameters.
    "1.2b": {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 128256,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
}
"""What is not said is as in `transformers.LlamaConfig`."""


def _numbers(value: Any) -> Any:
    """With infinities and NaN, which `transformers` 5 writes as {"__float__": "Infinity"}."""
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__float__"} and isinstance(value["__float__"], str):
        return float(value["__float__"])
    return {key: _numbers(one) for key, one in value.items()}


def processor_settings(folder: Path) -> dict[str, Any] | None:
    """Of what reads a folder's pictures or sounds, which transformers 5 keeps among a processor's;
    None if the folder says nothing of it. ValueError for a file that cannot be read."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = folder / name
        if not file.is_file():
            continue
        try:
            told = read_json(file.read_bytes())
            if name.startswith("pre"):
                return dict(told)
            parts = (told.get(part) for part in ("feature_extractor", "image_processor"))
            return next((dict(part) for part in parts if part), None)
        except (AttributeError, TypeError, ValueError) as failure:
            raise ValueError(
                f"[checkpoint] {name} must hold settings as JSON; got {failure}"
            ) from None
    return None


def read_config(name: str) -> dict[str, Any]:
    """The values of a preset, of a JSON file, or of a directory's config.json.

    `model_type` says whose they are; without it they are a Llama's. FileNotFoundError if it is
    none of these, ValueError if the file is no configuration.
    """
    if name in PRESETS:
        return dict(PRESETS[name])
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"[config] must be one of {', '.join(PRESETS)}, or a config.json; got {name}"
        )
    try:
        values = _numbers(read_json(path.read_bytes()))
    except ValueError as failure:
        raise ValueError(f"[config] must be JSON; got {path}: {failure}") from None
    if not isinstance(values, dict):
        raise ValueError(
            f"[config] must be a model's values by name; got {type(values).__name__} in {path}"
        )
    kind = values.get("model_type", "llama")
    if not isinstance(kind, str):
        raise ValueError(f"[config] model_type must be a name; got {kind!r} in {path}")
    return dict(values)
