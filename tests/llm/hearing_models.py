"""Checkpoints of small models that hear, with random weights, each with its own processor."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from seeing_models import CONFIGS as SEEING_CONFIGS
from seeing_models import TEMPLATE, TEXT, gemma4_processor, tokenizer_with, write_ascii

RATE = 16_000
FRAMES = 200
"""Of a window of models whose positions are learned: two seconds."""
WHISPER: dict[str, Any] = {
    "num_mel_bins": 16,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "max_source_positions": FRAMES // 2,
}
LONG = {**TEXT, "max_position_embeddings": 1024, "tie_word_embeddings": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma4": {
        **SEEING_CONFIGS["gemma4"],
        "audio_config": {
            "model_type": "gemma4_audio",
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "subsampling_conv_channels": [128, 4],
            "output_proj_dims": 48,
        },
    },
    "glmasr": {
        "text_config": LONG,
        "tie_word_embeddings": False,
        "audio_config": {
            "model_type": "glmasr_encoder",
            "num_mel_bins": 16,
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": FRAMES // 2,
        },
    },
    "audioflamingo3": {
        "text_config": {**LONG, "model_type": "qwen2"},
        "audio_config": {**WHISPER, "model_type": "audioflamingo3_encoder"},
    },
    "qwen2_audio": {
        "text_config": {**LONG, "model_type": "qwen2"},
        "audio_config": {**WHISPER, "model_type": "qwen2_audio_encoder"},
    },
    "voxtral": {
        "text_config": {**LONG, "vocab_size": 290},
        "audio_config": {
            "model_type": "voxtral_encoder",
            "num_mel_bins": 16,
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_source_positions": FRAMES // 2,
        },
    },
}
CLASSES = {
    "gemma4": "Gemma4ForConditionalGeneration",
    "glmasr": "GlmAsrForConditionalGeneration",
    "audioflamingo3": "AudioFlamingo3ForConditionalGeneration",
    "qwen2_audio": "Qwen2AudioForConditionalGeneration",
    "voxtral": "VoxtralForConditionalGeneration",
}


def hearing_checkpoint(kind: str, folder: Path, *, writes_ascii: bool = False) -> Any:
    """Writes it as `save_pretrained` does; the model's processor. writes_ascii: see
    `write_ascii`."""
    processor = _processor(kind)
    values = {**CONFIGS[kind], "audio_token_id": processor.audio_token_id}
    if kind == "gemma4":
        values["image_token_id"] = processor.image_token_id
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **values)
    model = getattr(transformers, CLASSES[kind])(config).float().eval()
    for name, weight in model.named_parameters():
        hears = any(part in name for part in ("audio_tower", "projector", "embed_audio"))
        if not weight.any() or (hears and weight.ndim > 1):  # what a sound tells must matter
            torch.nn.init.normal_(weight, 0, 0.2 if hears else 0.1)
    if writes_ascii:
        write_ascii(model, processor)
    model.generation_config.eos_token_id = 2 if kind == "voxtral" else 1
    model.save_pretrained(folder)
    processor.chat_template = TEMPLATE.replace(
        "{% else %}{{ part['text'] }}",
        "{% elif part['type'] == 'audio' %}SOUND{% else %}{{ part['text'] }}",
    )
    processor.chat_template = processor.chat_template.replace("SOUND", processor.audio_token)
    processor.chat_template = processor.chat_template.replace(
        "PLACEHOLDER", getattr(processor, "image_token", "")
    )
    if kind == "voxtral":
        processor.feature_extractor.save_pretrained(folder)
        (folder / "tekken.json").write_text(json.dumps(TEKKEN))
    elif kind == "gemma4":  # without its part for videos
        told = {
            "processor_class": "Gemma4Processor",
            "image_seq_length": 70,
            "feature_extractor": {"feature_extractor_type": "Gemma4AudioFeatureExtractor"},
            "image_processor": json.loads(processor.image_processor.to_json_string()),
        }
        (folder / "processor_config.json").write_text(json.dumps(told))
        processor.tokenizer.save_pretrained(folder)
    else:
        processor.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(processor.chat_template)
    return processor


def sound(seconds: float, seed: int = 0) -> Any:
    """A tone that swells, and a little noise: float32 [samples]."""
    random = np.random.default_rng(seed)
    times = np.arange(round(seconds * RATE)) / RATE
    swells = np.interp(times, np.arange(0, 20, 0.2), random.uniform(0, 0.9, 100))
    tone = np.sin(times * 2 * np.pi * random.uniform(100, 3000)) * swells
    return (tone + 0.003 * random.standard_normal(len(times))).astype(np.float32)


_SPECIAL = ["<unk>", "<s>", "</s>", *(f"<SPECIAL_{n}>" for n in range(3, 24))]
_SPECIAL += ["[AUDIO]", "[BEGIN_AUDIO]", "<|user|>", "<|assistant|>"]
TEKKEN: dict[str, Any] = {
    "config": {
        "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
        "default_vocab_size": 290,
        "default_num_special_tokens": 30,
    },
    "vocab": [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode()}
        for rank, token in enumerate(
            [*(bytes([byte]) for byte in range(256)), b"ha", b"at", b"hat"]
        )
    ],
    "special_tokens": [{"rank": rank, "token_str": text} for rank, text in enumerate(_SPECIAL)],
}
"""Mistral's tokens: bytes, and three that are longer."""


class Voxtral:
    """What `VoxtralProcessor` makes, which asks the package mistral-common for texts: those are
    tiktoken's here, of the same tokens."""

    audio_token, audio_token_id = "[AUDIO]", 24

    def __init__(self, feature_extractor: Any) -> None:
        tiktoken = pytest.importorskip("tiktoken")
        self.feature_extractor = feature_extractor
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer_with("[AUDIO]").backend_tokenizer, bos_token="<s>"
        )
        special = TEKKEN["config"]["default_num_special_tokens"]
        self._encoding = tiktoken.Encoding(
            "tekken",
            pat_str=TEKKEN["config"]["pattern"],
            mergeable_ranks={
                base64.b64decode(one["token_bytes"]): one["rank"] + special
                for one in TEKKEN["vocab"]
            },
            special_tokens={one["token_str"]: one["rank"] for one in TEKKEN["special_tokens"]},
        )

    def __call__(self, text: Any, audio: Any, **options: Any) -> Any:
        options = {**options, "padding": True, "truncation": False, "pad_to_multiple_of": 32_000}
        known = transformers.VoxtralProcessor._retrieve_input_features
        features = known(self, audio, max_source_positions=FRAMES, **options)
        words = [f"[BEGIN_AUDIO]{'[AUDIO]' * (25 * -(-len(one) // 32_000))}" for one in audio]
        first, *behind = text[0].split("[AUDIO]")
        written = first + "".join(word + more for word, more in zip(words, behind, strict=True))
        tokens = self._encoding.encode(written, allowed_special="all")
        return {"input_ids": torch.tensor([tokens]), "input_features": features}


def _processor(kind: str) -> Any:
    t = transformers
    if kind == "gemma4":
        return gemma4_processor(t.Gemma4AudioFeatureExtractor())
    heard = t.WhisperFeatureExtractor(
        feature_size=16, chunk_length=FRAMES * 160 // RATE, padding_side="right"
    )
    if kind == "voxtral":
        return Voxtral(heard)
    if kind == "glmasr":
        return t.GlmAsrProcessor(heard, tokenizer_with("<|audio|>"), audio_token="<|audio|>")
    if kind == "audioflamingo3":
        return t.AudioFlamingo3Processor(heard, tokenizer_with("<sound>"))
    tokens = tokenizer_with("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
    return t.Qwen2AudioProcessor(heard, tokens)
