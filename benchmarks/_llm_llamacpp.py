"""llama.cpp in `llm.py`, by its Python package."""

from pathlib import Path
from typing import Any


def prepare(config: str, context: int, target: Path) -> None:
    """Write a GGUF file: matrices in Q4_0 (groups of 32), embeddings in Q8_0, norms in float32."""
    import gguf

    from edgewise.llm.config import read_config
    from edgewise.llm.export import random_llama

    model = random_llama(read_config(config))
    values = model.config
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_vocab_size(values.vocab_size)
    writer.add_context_length(context)
    writer.add_embedding_length(values.hidden_size)
    writer.add_block_count(values.num_hidden_layers)
    writer.add_feed_forward_length(values.intermediate_size)
    writer.add_head_count(values.num_attention_heads)
    writer.add_head_count_kv(values.num_key_value_heads)
    writer.add_rope_dimension_count(values.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(values.rms_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, values.num_hidden_layers)
    kinds = gguf.GGMLQuantizationType
    tensors = dict(model.state_dict())
    tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
    for name, tensor in tensors.items():
        if name.endswith("inv_freq"):
            continue
        for part, heads in (
            ("q_proj", values.num_attention_heads),
            ("k_proj", values.num_key_value_heads),
        ):
            if part in name:  # llama.cpp rotates neighbours, not halves
                halves = tensor.unflatten(0, (heads, 2, values.head_dim // 2))
                tensor = halves.transpose(1, 2).flatten(0, 2)
        data = tensor.float().numpy()
        kind = kinds.F32 if data.ndim == 1 else kinds.Q8_0 if "embed" in name else kinds.Q4_0
        known = names.get_name(name, try_suffixes=(".weight",))
        assert known is not None, name
        packed = data if kind is kinds.F32 else gguf.quants.quantize(data, kind)
        writer.add_tensor(known, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """A context of llama.cpp, the number of threads given, the rest at its default."""

    most = 512
    """Tokens of a prompt at once."""

    def __init__(self, file: str, threads: int) -> None:
        from llama_cpp import Llama

        self._model = Llama(
            file, n_ctx=0, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False
        )

    def seek(self, position: int) -> None:
        """Forgets what the cache holds from a position on."""
        self._model.n_tokens = position

    def run(self, tokens: Any, position: Any) -> Any:
        """The logits of the last token."""
        import numpy as np

        self._model.eval(tokens[0].tolist())
        found = self._model._ctx.get_logits()
        return np.ctypeslib.as_array(found, shape=(1, self._model.n_vocab()))
