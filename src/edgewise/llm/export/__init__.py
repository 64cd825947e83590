"""From a Llama of `transformers` to a file that generates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from edgewise.edge.export import export_module
from edgewise.llm.export.model import CachedLlama
from edgewise.lowering import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.quantize.flow import with_integer_weights
from edgewise.quantize.schemes import scheme_of
from edgewise.registry import partitioner_for

__all__ = ["load_llama", "lower_llama", "quantize_llama", "random_llama"]


def random_llama(config: dict[str, Any], seed: int = 0) -> Any:
    """A `LlamaForCausalLM` with random weights, in float32. ValueError if the values do not go
    together."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    try:
        model: Any = LlamaForCausalLM(LlamaConfig(**config))
        return model.float().eval()
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as failure:
        raise ValueError(f"[config] no Llama can be made of it: {failure}") from failure


def load_llama(checkpoint: str | Path) -> Any:
    """The `LlamaForCausalLM` of a local directory as `save_pretrained` writes it, in float32.

    FileNotFoundError without a config.json or weights in it; ValueError if it is another model or
    weights are missing.
    """
    from transformers import LlamaForCausalLM

    from edgewise.llm.config import read_config

    directory = Path(checkpoint)
    if not (directory / "config.json").is_file():
        raise FileNotFoundError(
            f"[checkpoint] must be a directory with config.json and weights; got {checkpoint}"
        )
    read_config(str(directory))
    try:
        loaded: Any = LlamaForCausalLM.from_pretrained(
            directory, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except OSError as failure:
        raise FileNotFoundError(f"[checkpoint] no weights in {checkpoint}: {failure}") from None
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"[checkpoint] must hold all weights; got none for {', '.join(missing[:5])}"
            f"{' and others' if len(missing) > 5 else ''} in {checkpoint}"
        )
    return model.eval()


def quantize_llama(model: Any, group_size: int = 32) -> Any:
    """A copy in 8da4w: linear layers with 4-bit weights, `group_size` of which share a scale, and
    activations quantized to 8 bits at run time; embeddings with 8-bit weights."""
    return with_integer_weights(model, scheme_of("int4-dynamic", group_size))


def lower_llama(
    model: Any, *, max_context_len: int = 1024, max_seq_len: int = 128
) -> ExecutorchProgramManager:
    """The model, quantized or not, with a cache of `max_context_len` positions.

    max_seq_len: most tokens of one call; longer prompts take several. Memory is planned for it.
    The program has the method `forward(tokens, input_pos)`, see `CachedLlama`, and constant
    methods under the names that ExecuTorch's runner reads. ValueError if the model's positions
    do not reach so far.
    """
    config = model.config
    if not 1 <= max_context_len <= config.max_position_embeddings:
        raise ValueError(
            f"[export] max_context_len must be from 1 to the model's max_position_embeddings, "
            f"{config.max_position_embeddings}; got {max_context_len}"
        )
    if max_seq_len < 2:
        raise ValueError(f"[export] max_seq_len must be 2 or more; got {max_seq_len}")
    max_seq_len = min(max_seq_len, max_context_len)
    length = torch.export.Dim("length", min=1, max=max_seq_len)
    example = torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    program = export_module(CachedLlama(model, max_context_len), example, ({1: length}, None))
    constants: dict[str, Any] = {
        "get_max_seq_len": max_seq_len,
        "get_max_context_len": max_context_len,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
        "get_eos_ids": _as_list(config.eos_token_id),
    }
    if config.bos_token_id is not None:
        constants["get_bos_id"] = config.bos_token_id
    lowered = to_edge_transform_and_lower(
        program, partitioner=[partitioner_for()], constant_methods=constants
    )
    return lowered.to_executorch()


def _as_list(tokens: Any) -> list[int]:
    if tokens is None:
        return []
    return list(tokens) if isinstance(tokens, (list, tuple)) else [tokens]
