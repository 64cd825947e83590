"""From a language model of `transformers` to a file that generates."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from edgewise.edge.export import export_module
from edgewise.emit.config import ExecutorchBackendConfig, MemoryPlanningConfig
from edgewise.llm.architectures import SPEECH
from edgewise.llm.audio import AudioPrompt
from edgewise.llm.export.audio_tower import AudioTower
from edgewise.llm.export.loading import load_model, random_model, text_part
from edgewise.llm.export.model import CachedLlama
from edgewise.llm.export.parakeet import PARAKEETS, lower_parakeet
from edgewise.llm.export.prefix_methods import model_id, prefix_methods
from edgewise.llm.export.quantization import Recipe, quantize_model
from edgewise.llm.export.sources import save_gguf_tokenizer
from edgewise.llm.export.tekken import save_tekken_tokenizer
from edgewise.llm.export.vision import VisionEncoder
from edgewise.llm.images import ImagePrompt
from edgewise.lowering import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.registry import partitioner_for

__all__ = [
    "KV_CACHE_DTYPES",
    "copy_tokenizer",
    "load_llama",
    "load_model",
    "lower_llama",
    "lower_model",
    "quantize_llama",
    "quantize_model",
    "random_llama",
    "random_model",
    "text_part",
    "texts_of",
]

KV_CACHE_DTYPES = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
"""What keys and values can be kept as."""


_PIECE, _MOST_PIECES = 128, 32
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def copy_tokenizer(
    checkpoint: str | Path,
    output: str | Path,
    images: ImagePrompt | None = None,
    audio: AudioPrompt | None = None,
) -> Path | None:
    """Copies what the checkpoint's tokenizer needs to a folder beside the model's file, `x.pte` to
    `x.tokenizer`, where the commands look for it. None if the checkpoint has no tokenizer.

    images, audio: what a prompt has for an image and a sound, which goes into the same folder.
    """
    source, folder = Path(checkpoint), Path(output).with_suffix(".tokenizer")
    if source.suffix == ".gguf":
        return save_gguf_tokenizer(source, folder)
    found = [source / name for name in _TOKENIZER_FILES if (source / name).is_file()]
    if not any(file.name in _TOKENIZER_FILES[:2] for file in found):
        if not (tekken := source / "tekken.json").is_file():
            return None
        save_tekken_tokenizer(tekken, folder)
        template = source / "chat_template.jinja"
        if not (template in found or (folder / template.name).is_file()):
            warnings.warn(
                f"[checkpoint] a chat needs a template, which {tekken.name} has not; try pip "
                f"install mistral-common before the export",
                stacklevel=2,
            )
    folder.mkdir(exist_ok=True)
    for file in found:
        shutil.copyfile(file, folder / file.name)
    for prompt in (images, audio):
        if prompt is not None:
            prompt.save(folder)
    return folder


def texts_of(path: str | Path, checkpoint: str | Path) -> list[torch.Tensor]:
    """A text file in the tokens of a checkpoint's tokenizer, int64 [1, 128] each, 32 at most.

    Raises as `load_tokenizer`; ValueError if the text is shorter than one piece.
    """
    from edgewise.llm.text import load_tokenizer

    tokens = load_tokenizer(checkpoint).encode(Path(path).read_text(encoding="utf-8"))
    count = min(len(tokens) // _PIECE, _MOST_PIECES)
    if count == 0:
        raise ValueError(
            f"[calibration] a text must have {_PIECE} tokens or more; got {len(tokens)} in {path}"
        )
    pieces = torch.tensor(tokens[: count * _PIECE]).view(count, 1, _PIECE)
    return list(pieces)


def quantize_llama(model: Any, group_size: int = 32) -> Any:
    """A copy in 8da4w: linear layers with 4-bit weights, `group_size` of which share a scale, and
    activations quantized to 8 bits at run time; embeddings with 8-bit weights."""
    return quantize_model(model, Recipe(group_size=group_size))


def lower_model(
    model: Any,
    *,
    max_context_len: int = 1024,
    max_seq_len: int = 128,
    batch: int = 1,
    all_logits: bool = False,
    kv_cache_dtype: str = "float32",
    prefix: bool = False,
    int8_cache: bool = False,
    images: VisionEncoder | None = None,
    audio: AudioTower | None = None,
    audio_seconds: float | None = None,
) -> ExecutorchProgramManager:
    """The model, quantized or not, with a cache of `max_context_len` slots.

    max_seq_len: most tokens of one call; longer prompts take several. Memory is planned for it.
    batch: sequences at a time, each with positions of its own. all_logits: logits after each
    token, for speculative decoding. kv_cache_dtype: of keys and values, a name of KV_CACHE_DTYPES;
    float16 ones need this runtime. prefix: with methods `get_cache` and `set_cache`, for what a
    prompt left in the cache. int8_cache: deprecated, `kv_cache_dtype="int8"`. images, audio:
    what the model sees and hears; the program then has the methods of `media_methods` in the place
    of forward, and a call takes as many tokens as an image or a window of sound has at least.

    A Whisper becomes what `lower_whisper` makes of it, with at most its own positions, a Parakeet
    what `lower_parakeet` does, which has no context; audio_seconds is the latter's longest sound of
    one call, 30 unless told.

    The program has the method `forward(tokens, input_pos)`, see `CachedDecoder`, and constant
    methods under the names that ExecuTorch's runner reads. A context that is longer than the
    model's positions reach is made as long as they do, with a warning. ValueError if its attention
    cannot be that over a cache.
    """
    config = model.config
    if int8_cache:
        told = 'int8_cache is now kv_cache_dtype="int8"'
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        kv_cache_dtype = "int8"
    if kv_cache_dtype not in KV_CACHE_DTYPES:
        known = ", ".join(KV_CACHE_DTYPES)
        raise ValueError(f"[export] kv_cache_dtype must be one of {known}; got {kv_cache_dtype!r}")
    cache_dtype = KV_CACHE_DTYPES[kv_cache_dtype]
    is_asked_more = batch > 1 or all_logits or cache_dtype != torch.float32 or prefix
    if config.model_type in SPEECH and is_asked_more:
        raise ValueError(
            f"[export] a {SPEECH[config.model_type]} has no batch, all_logits, kv_cache_dtype "
            f"or prefix"
        )
    if config.model_type in PARAKEETS:
        return lower_parakeet(model, seconds=audio_seconds)
    if audio_seconds is not None:
        raise ValueError(
            f"[export] audio_seconds is for Parakeets; got a {config.model_type}; try "
            f"read_audio_processor for models that hear"
        )
    if config.model_type == "whisper":
        from edgewise.llm.export.whisper import lower_whisper

        context = min(max_context_len, config.max_target_positions)
        return lower_whisper(model, max_context_len=context, max_seq_len=min(max_seq_len, 16))
    most = getattr(config, "max_position_embeddings", None) or max_context_len
    if max_context_len < 1:
        raise ValueError(
            f"[export] max_context_len must be from 1 to the model's max_position_embeddings, "
            f"{most}; got {max_context_len}"
        )
    if max_context_len > most:
        warnings.warn(
            f"[export] max_context_len is at most the model's max_position_embeddings, {most}; "
            f"got {max_context_len}",
            stacklevel=2,
        )
        max_context_len = most
    if max_seq_len < 2:
        raise ValueError(f"[export] max_seq_len must be 2 or more; got {max_seq_len}")
    if batch < 1:
        raise ValueError(f"[export] batch must be 1 or more; got {batch}")
    reads_media = images is not None or audio is not None
    if reads_media:
        max_seq_len = max(max_seq_len, _media_tokens(images, audio, max_context_len, batch))
    max_seq_len = min(max_seq_len, max_context_len)
    length = torch.export.Dim("length", min=1, max=max_seq_len)
    example = torch.zeros(batch, 2, dtype=torch.int64), torch.zeros(batch, dtype=torch.int64)
    shapes = ({1: length}, None)
    constants = _constants(model, max_context_len, max_seq_len)
    decoder: torch.nn.Module
    programs: Any
    is_plain = batch == 1 and not all_logits and cache_dtype.is_floating_point
    is_plain = is_plain and not reads_media
    if config.model_type == "llama" and is_plain:
        decoder = CachedLlama(model, max_context_len, cache_dtype)
        programs = {"forward": export_module(decoder, example, shapes)}
    else:
        from edgewise.llm.export.decoder import CachedDecoder, EmbeddingDecoder
        from edgewise.llm.export.heads import move_transposes

        options: Any = {"batch": batch, "all_logits": all_logits, "kv_cache_dtype": cache_dtype}
        if images is not None:
            options["deep"] = images.deep
        made = EmbeddingDecoder if reads_media else CachedDecoder
        decoder = made(model, max_context_len, max_seq_len, **options)
        decoder.check()
        if isinstance(decoder, EmbeddingDecoder):
            from edgewise.llm.export.media_methods import media_methods

            programs = media_methods(decoder, length, images, audio)
            if images is not None and images.inputs.grid is not None:
                grids = [one.inputs.grid or () for one in images.sizes()]
                constants["get_image_grid"] = [number for grid in grids for number in grid]
        else:
            programs = {"forward": export_module(decoder, example, shapes)}
        for program in programs.values():
            move_transposes(program)
        if decoder.max_rewind is not None:
            constants["get_max_rewind"] = decoder.max_rewind
    if prefix:
        programs |= prefix_methods(decoder)
        constants["get_model_id"] = model_id(model)
    lowered = to_edge_transform_and_lower(
        programs, partitioner=[partitioner_for()], constant_methods=constants
    )
    planning = MemoryPlanningConfig(share_mutable_buffers=prefix or reads_media)
    return lowered.to_executorch(ExecutorchBackendConfig(memory_planning=planning))


def _media_tokens(
    images: VisionEncoder | None, audio: AudioTower | None, max_context_len: int, batch: int
) -> int:
    """The most of an image or a window of sound. ValueError if the context has no room for them."""
    counts = {
        "an image's": 0 if images is None else images.count,
        "a sound's": 0 if audio is None else audio.inputs.count,
    }
    if batch > 1:
        kind = "audio is" if images is None else "images are"
        raise ValueError(f"[export] {kind} for one text at a time; got batch={batch}")
    for whose, count in counts.items():
        if count >= max_context_len:
            raise ValueError(
                f"[export] max_context_len must be more than {whose} {count} tokens; "
                f"got {max_context_len}"
            )
    return max(counts.values())


def _constants(model: Any, max_context_len: int, max_seq_len: int) -> dict[str, Any]:
    """What ExecuTorch's runner reads."""
    config = model.config
    ends = config.eos_token_id
    if getattr(model, "generation_config", None) is not None:
        ends = [*_as_list(ends), *_as_list(model.generation_config.eos_token_id)]
    constants: dict[str, Any] = {
        "get_max_seq_len": max_seq_len,
        "get_max_context_len": max_context_len,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
        "get_eos_ids": list(dict.fromkeys(_as_list(ends))),
    }
    if config.bos_token_id is not None:
        constants["get_bos_id"] = config.bos_token_id
    return constants


def _as_list(tokens: Any) -> list[int]:
    if tokens is None:
        return []
    return list(tokens) if isinstance(tokens, (list, tuple)) else [tokens]


random_llama, load_llama, lower_llama = random_model, load_model, lower_model
"""Their names when Llamas were all that there was."""
