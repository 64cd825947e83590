"""llama.cpp in `gguf_sources.py`: its converter, and its logits.

    python _gguf_llamacpp.py convert SOURCES FOLDER FILE
    python _gguf_llamacpp.py logits FILE TOKENS RESULT.npy

SOURCES: llama.cpp's, as they lie in the package llama-cpp-python.
"""

import importlib
import json
import pkgutil
import runpy
import sys
from pathlib import Path
from typing import Any


def _write_numbered_tokens(model: Any) -> None:
    """Small random models have no tokenizer: a token for each number."""
    count = model.hparams["vocab_size"]
    model.gguf_writer.add_tokenizer_model("gpt2")
    model.gguf_writer.add_tokenizer_pre("qwen2")
    model.gguf_writer.add_token_list([f"t{i}" for i in range(count)])
    model.gguf_writer.add_token_types([1] * count)
    model.gguf_writer.add_token_merges(["t 0"])


def convert(sources: str, folder: str, file: str) -> None:
    """In float32, by `convert_hf_to_gguf.py`."""
    sys.path[:0] = [f"{sources}/gguf-py", sources]
    conversion: Any = importlib.import_module("conversion")
    for module in pkgutil.iter_modules(conversion.__path__):
        importlib.import_module(f"conversion.{module.name}")
    classes = [importlib.import_module("conversion.base").TextModel]
    while classes:
        known = classes.pop()
        known.set_vocab = _write_numbered_tokens
        classes += known.__subclasses__()
    sys.argv = ["convert", folder, "--outtype", "f32", "--outfile", file]
    if json.loads(Path(folder, "config.json").read_text())["model_type"].startswith("qwen3_5"):
        sys.argv.append("--no-mtp")  # layers that guess tokens ahead, which the model lacks
    runpy.run_path(f"{sources}/convert_hf_to_gguf.py", run_name="__main__")


def logits(file: str, tokens: str, result: str) -> None:
    """After each token, [tokens, vocabulary]."""
    import numpy as np
    from llama_cpp import Llama

    model = Llama(file, n_ctx=128, logits_all=True, verbose=False, n_threads=1)
    model.eval(json.loads(tokens))
    np.save(result, np.array(model.scores[: model.n_tokens]))


if __name__ == "__main__":
    {"convert": convert, "logits": logits}[sys.argv[1]](*sys.argv[2:])
