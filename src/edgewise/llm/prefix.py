"""What a prompt left in a model's cache, as a file: a system prompt that is computed once.

The file is NumPy's `.npz`: `tokens` int64, `end`, the caches by number, and `key`, a hash of what
the model's file holds, so that no other model takes it.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.runtime import Program, Session

__all__ = ["load", "save"]

_METHODS = ("get_cache", "set_cache", "get_model_id")


def save(program: Program, session: Session, tokens: list[int], end: int, path: str | Path) -> None:
    """Writes it. ValueError if the program cannot tell what its cache holds, or it is empty."""
    _check(program)
    if not tokens:
        raise ValueError("[prefix] a prompt must be in the cache; got none; try load(prompt)")
    caches = session.load_method("get_cache").execute([])
    held = {str(number): cache for number, cache in enumerate(caches)}
    about: Any = {"tokens": np.array(tokens), "end": np.array(end), "key": _key(program)}
    with Path(path).open("wb") as file:
        np.savez(file, **about, **held)


def load(program: Program, session: Session, path: str | Path) -> tuple[list[int], int]:
    """Fills the session's cache; the tokens it holds, and the positions that were written.

    FileNotFoundError without a file, ValueError if it is none of `save`, or of another model.
    """
    _check(program)
    inputs = program.metadata("set_cache").num_inputs()
    try:
        with np.load(path, allow_pickle=False) as saved:
            tokens, end, key = saved["tokens"], int(saved["end"]), saved["key"]
            caches = [saved[str(number)] for number in range(inputs)]
    except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as failure:
        raise ValueError(f"[prefix] must be a file of save_prefix; got {path}: {failure}") from None
    if tokens.ndim != 1 or tokens.dtype.kind != "i" or key.tobytes() != _key(program).tobytes():
        raise ValueError(f"[prefix] must be of the same model's file; got {path}")
    session.load_method("set_cache").execute(caches)
    return tokens.tolist(), end


def _check(program: Program) -> None:
    missing = [name for name in _METHODS if name not in program.method_names]
    if missing:
        raise ValueError(
            f"[prefix] a model's file must have methods for its cache; got none of "
            f"{', '.join(missing)}; try edgewise llm export --prefix"
        )


def _key(program: Program) -> Any:
    """Of the model's weights, and the sizes and types of its caches."""
    (number,) = program.load_method("get_model_id").execute([])
    meta = program.metadata("set_cache")
    caches = [meta.input_tensor_meta(i) for i in range(meta.num_inputs())]
    kinds = [(list(cache.sizes()), cache.dtype_name) for cache in caches]
    told = repr((int(number), kinds)).encode()
    return np.frombuffer(hashlib.sha256(told).digest(), dtype=np.uint8)
