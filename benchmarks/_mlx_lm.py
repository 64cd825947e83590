"""MLX in `mlx_sources.py`: its quantization of a checkpoint, and its logits.

python _mlx_lm.py convert FOLDER RESULT GROUP BITS MODE
python _mlx_lm.py logits FOLDER TOKENS RESULT.npy
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def convert(folder: str, result: str, group: str, bits: str, mode: str) -> None:
    """As `mlx_lm.convert` does, but for the tokenizer, which small models lack."""
    utils: Any = importlib.import_module("mlx_lm.utils")
    model, config = utils.load_model(Path(folder))
    model, config = utils.quantize_model(model, config, int(group), int(bits), mode=mode)
    Path(result).mkdir()
    utils.save_model(Path(result), model)
    utils.save_config(config, Path(result) / "config.json")


def logits(folder: str, tokens: str, result: str) -> None:
    """After each token, [tokens, vocabulary]."""
    import numpy as np

    mx: Any = importlib.import_module("mlx.core")
    utils: Any = importlib.import_module("mlx_lm.utils")
    model, _ = utils.load_model(Path(folder))
    np.save(result, np.array(model(mx.array([json.loads(tokens)])).astype(mx.float32))[0])


if __name__ == "__main__":
    {"convert": convert, "logits": logits}[sys.argv[1]](*sys.argv[2:])
