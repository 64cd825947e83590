"""The frameworks of `llm.py`: how each makes a file and how each runs one."""

import json
import logging
import resource
import sys
import time
from pathlib import Path
from typing import Any

_PEER_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "hidden_dim",
    "vocab_size": "vocab_size",
}

_30M = {
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1408,
    "vocab_size": 4096,
    "max_position_embeddings": 2048,
}


def config_of(name: str) -> dict[str, Any]:
    """The configuration of `llm.py` of this name, or 30m."""
    from edgewise.llm.config import read_config

    return _30M if name == "30m" else read_config(name)


def prepare(framework: str, config: str, group_size: int, context: int, target: Path) -> None:
    """Write the file of a model with random weights, in this process."""
    logging.disable(logging.WARNING)
    if framework.startswith("ours"):
        dtype = framework.removeprefix("ours-") if "-" in framework else "float32"
        _prepare_ours(config, group_size, context, dtype, target)
    elif framework == "peer":
        _prepare_peer(config, group_size, context, target)
    elif framework == "openvino":
        import _llm_openvino

        _llm_openvino.prepare(config, group_size, target)
    else:
        import _llm_llamacpp

        _llm_llamacpp.prepare(config, context, target)


def _prepare_ours(config: str, group_size: int, context: int, dtype: str, target: Path) -> None:
    from edgewise.llm.export import lower_llama, quantize_llama, random_llama

    model = quantize_llama(random_llama(config_of(config)), group_size)
    sizes = {"max_context_len": context, "max_seq_len": 512}
    lower_llama(model, **sizes, kv_cache_dtype=dtype).save(target)


def _prepare_peer(config: str, group_size: int, context: int, target: Path) -> None:
    """By its own script for Llama models, with what its documentation says is fastest."""
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.config.llm_config import LlmConfig

    values = config_of(config)
    params = {_PEER_NAMES[k]: v for k, v in values.items() if k in _PEER_NAMES}
    params |= {"norm_eps": 1e-6, "rope_theta": 10000.0, "multiple_of": 1}
    described = target.with_suffix(".json")
    described.write_text(json.dumps(params))
    options = LlmConfig()
    options.base.params = str(described)
    options.base.metadata = '{"get_bos_id": 1, "get_eos_ids": [2]}'
    options.model.use_kv_cache = True
    options.model.use_sdpa_with_kv_cache = True
    options.export.max_seq_length = 128
    options.export.max_context_length = context
    options.export.output_name = str(target)
    options.quantization.qmode = "8da4w"
    options.quantization.group_size = group_size
    options.quantization.embedding_quantize = "8,0"
    options.quantization.use_hqq = False  # takes minutes, and makes the file no faster
    options.backend.xnnpack.enabled = True
    options.backend.xnnpack.extended_ops = True
    export_llama(options)


class Ours:
    """edgewise.runtime."""

    most = 512
    """Tokens of a prompt at once."""

    def __init__(self, file: str, threads: int) -> None:
        from edgewise.runtime import Runtime

        program = Runtime.get().load_program(file, threads=threads)
        self._method = program.load_method("forward")

    def run(self, tokens: Any, position: Any) -> Any:
        """The logits."""
        return self._method.execute([tokens, position])[0]

    def seek(self, position: int) -> None:
        """Nothing to do: each call says where it is."""


class Peer:
    """executorch.runtime with its kernels for quantized and language models."""

    most = 127
    """Tokens of a prompt at once: its export takes no more."""

    def __init__(self, file: str, threads: int) -> None:
        import executorch.kernels.quantized  # noqa: F401
        import torch
        from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime

        portable_lib._unsafe_reset_threadpool(threads)
        self._from_numpy = torch.from_numpy
        self._program = Runtime.get().load_program(file)
        self._method: Any = self._program.load_method("forward")

    def run(self, tokens: Any, position: Any) -> Any:
        """The logits."""
        outputs = self._method.execute([self._from_numpy(tokens), self._from_numpy(position)])
        return outputs[0].numpy()

    def seek(self, position: int) -> None:
        """Nothing to do: each call says where it is."""


def session_of(framework: str) -> Any:
    """The class of a framework's sessions."""
    if framework == "openvino":
        from _llm_openvino import OpenVino

        return OpenVino
    if framework == "llama.cpp":
        from _llm_llamacpp import LlamaCpp

        return LlamaCpp
    return Ours if framework == "ours" else Peer


class Handler:
    """Answers `llm.py`: load a file, decode a block of tokens, compute a prompt."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._session: Any = None

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        if request["do"] == "load":
            before = peak_memory()
            start = time.perf_counter()
            self._session = session_of(self._framework)(request["file"], request["threads"])
            self._session.run(np.full((1, 1), 3, np.int64), np.array([0]))
            return {"before": before, "seconds": time.perf_counter() - start}
        if request["do"] == "memory":
            return {"peak": peak_memory()}
        count, position = request["count"], request["position"]
        tokens = np.random.default_rng(position).integers(3, request["vocab"], (1, count))
        self._session.seek(position)
        if request["do"] == "prompt":
            start, most = time.perf_counter(), self._session.most
            for first in range(0, count, most):
                part = np.ascontiguousarray(tokens[:, first : first + most])
                logits = self._session.run(part, np.array([position + first]))
            taken = time.perf_counter() - start
            return {"seconds": [taken], "logits": logits.reshape(-1, request["vocab"])[-1].tolist()}
        seconds = []
        for i in range(count):
            token, place = tokens[:, i : i + 1].copy(), np.array([position + i])
            start = time.perf_counter()
            logits = self._session.run(token, place)
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds, "vocabulary": int(logits.shape[-1])}


def peak_memory() -> float:
    """Megabytes that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    prepare(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
