"""What an export writes for prompts, beside a model's tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from edgewise.files import read_json

__all__ = ["load_settings", "save_settings"]

Settings = TypeVar("Settings")


def save_settings(settings: Any, folder: Path, kind: str) -> None:
    """Writes a dataclass to the folder of a tokenizer. kind: "images" or "audio"."""
    told = json.dumps(asdict(settings), indent=1, ensure_ascii=False)
    (folder / f"{kind}.json").write_text(told + "\n", encoding="utf-8")


def load_settings(
    folder: str | Path, kind: str, make: Callable[[dict[str, Any]], Settings]
) -> Settings | None:
    """Of the folder of a tokenizer; None if it says nothing of that kind. make: of the values.
    ValueError if the file is not as it should be."""
    path = Path(folder) / f"{kind}.json"
    if not path.is_file():
        return None
    try:
        return make(read_json(path.read_bytes()))
    except (AttributeError, KeyError, TypeError, ValueError) as failure:
        raise ValueError(
            f"[{kind}] must be what edgewise llm export wrote; got {path}: {failure}"
        ) from None
