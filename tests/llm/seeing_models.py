"""Checkpoints of small models that see, with random weights, each with its own processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

TEXT: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 280,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}
QWEN_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
}
AXES = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "llava": {
        "text_config": TEXT,
        "vision_config": {"model_type": "clip_vision_model", "projection_dim": 32, **VISION},
    },
    "vipllava": {
        "text_config": TEXT,
        "vision_config": {"model_type": "clip_vision_model", "projection_dim": 32, **VISION},
        "vision_feature_layers": [-2, -1],
    },
    "gemma3": {
        "text_config": {
            **TEXT,
            "model_type": "gemma3_text",
            "head_dim": 16,
            "sliding_window": 24,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "vision_config": {"model_type": "siglip_vision_model", **VISION},
        "mm_tokens_per_image": 4,
    },
    "gemma4": {
        "text_config": {
            **TEXT,
            "model_type": "gemma4_text",
            "head_dim": 16,
            "global_head_dim": 16,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": 280,
            "num_hidden_layers": 4,
            "num_kv_shared_layers": 2,
            "sliding_window": 24,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "pad_token_id": 1,
        },
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "global_head_dim": 16,
            "patch_size": 4,
            "pooling_kernel_size": 3,
        },
    },
    "idefics3": {
        "text_config": TEXT,
        "vision_config": {"model_type": "idefics3_vision", **VISION},
        "scale_factor": 2,
    },
    "smolvlm": {
        "text_config": TEXT,
        "vision_config": {"model_type": "smolvlm_vision", **VISION},
        "scale_factor": 2,
    },
    "internvl": {
        "text_config": {**TEXT, "model_type": "qwen2"},
        "vision_config": {
            **VISION,
            "model_type": "internvl_vision",
            "image_size": [56, 56],
            "patch_size": [14, 14],
        },
        "downsample_ratio": 0.5,
        "image_seq_length": 4,
    },
    "qwen2_vl": {
        "text_config": {**TEXT, "model_type": "qwen2_vl_text", "rope_parameters": AXES},
        "vision_config": {
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 64,
            "mlp_ratio": 2,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
        },
    },
    "qwen2_5_vl": {
        "text_config": {**TEXT, "model_type": "qwen2_5_vl_text", "rope_parameters": AXES},
        "vision_config": {
            **QWEN_VISION,
            "out_hidden_size": 64,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
    },
    "qwen3_vl": {
        "text_config": {
            **TEXT,
            "model_type": "qwen3_vl_text",
            "head_dim": 16,
            "rope_parameters": {**AXES, "mrope_interleaved": True},
        },
        "vision_config": {
            **QWEN_VISION,
            "out_hidden_size": 64,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0, 1],
        },
    },
    "qwen3_5": {
        "text_config": {
            **TEXT,
            "model_type": "qwen3_5_text",
            "head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
        "vision_config": {**QWEN_VISION, "out_hidden_size": 64, "num_position_embeddings": 16},
    },
}
SIZED = [kind for kind in CONFIGS if kind.startswith("qwen")]
"""Take images of any size."""
IMAGE_TOKENS = {"gemma3": "<image_soft_token>", "internvl": "<IMG_CONTEXT>"}
"""By model, the token that a vector of the image takes the place of; else as in a prompt."""
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>"
    "{% for part in m['content'] %}{% if part['type'] == 'image' %}PLACEHOLDER"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def seeing_checkpoint(kind: str, folder: Path, *, writes_ascii: bool = False) -> Any:
    """Writes it as `save_pretrained` does; the model's processor. writes_ascii: what it is most
    likely to write are letters of ASCII, each a text by itself."""
    processor = _processor(kind)
    token = IMAGE_TOKENS.get(kind) or processor.image_token
    number = processor.tokenizer.convert_tokens_to_ids(token)
    values = {**CONFIGS[kind], "image_token_id": number}
    if kind in ("llava", "vipllava"):
        values["image_token_index"] = number
    if kind.startswith("qwen"):
        for end in ("start", "end"):
            name = f"vision_{end}_token_id"
            values[name] = processor.tokenizer.convert_tokens_to_ids(f"<|vision_{end}|>")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **values)
    model = transformers.AutoModelForImageTextToText.from_config(config).float().eval()
    for weight in model.parameters():
        if not weight.any():  # what an image tells must matter
            torch.nn.init.normal_(weight, 0, 0.1)
        elif weight.dim() > 1:
            with torch.no_grad():
                weight.mul_(3)
    if writes_ascii:
        write_ascii(model, processor)
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    placeholder = processor.boi_token if kind == "gemma3" else processor.image_token
    if kind in SIZED:
        placeholder = f"<|vision_start|>{placeholder}<|vision_end|>"
    processor.chat_template = TEMPLATE.replace("PLACEHOLDER", placeholder)
    if kind == "gemma4":  # as many checkpoints have it: each part in a file of its own
        processor.image_processor.save_pretrained(folder)
        processor.tokenizer.save_pretrained(folder)
        told = {"processor_class": "Gemma4Processor", "image_seq_length": 70}
        (folder / "processor_config.json").write_text(json.dumps(told))
    else:
        processor.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(processor.chat_template)
    return processor


def write_ascii(model: Any, processor: Any) -> None:
    """What it is most likely to write are letters of ASCII, each a text by itself."""
    vocabulary = processor.tokenizer.get_vocab()
    letters = [number for text, number in vocabulary.items() if text.isascii() and text.isalpha()]
    others = torch.ones(TEXT["vocab_size"], dtype=torch.bool)
    others[letters] = False
    with torch.no_grad():
        model.get_output_embeddings().weight[others] = 0


def picture(height: int, width: int, seed: int = 0) -> Any:
    """One of Pillow's, without edges."""
    from PIL import Image

    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def tokenizer_with(*tokens: str, **named: str) -> Any:
    """Of bytes, and special tokens behind them; some under names that a processor asks for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bare = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bare,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        extra_special_tokens=named,
    )
    made.add_tokens([*tokens, "<|user|>", "<|assistant|>"], special_tokens=True)
    return made


def _processor(kind: str) -> Any:
    t = transformers
    square = {"size": {"height": 56, "width": 56}}
    if kind in ("llava", "vipllava"):
        images = t.CLIPImageProcessorPil(
            size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
        )
        options = {"patch_size": 14, "vision_feature_select_strategy": "default"}
        return t.LlavaProcessor(
            images, tokenizer_with("<image>"), **options, num_additional_image_tokens=1
        )
    if kind == "gemma3":
        tokens = tokenizer_with(
            image_token="<image_soft_token>",
            boi_token="<start_of_image>",
            eoi_token="<end_of_image>",
        )
        return t.Gemma3Processor(t.Gemma3ImageProcessorPil(**square), tokens, image_seq_length=4)
    if kind == "gemma4":
        return gemma4_processor(None)
    if kind in ("idefics3", "smolvlm"):
        tokens = tokenizer_with(
            "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"
        )
        name = {"idefics3": "Idefics3", "smolvlm": "SmolVLM"}[kind]
        sizes = {"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 56}}
        images = getattr(t, f"{name}ImageProcessorPil")(**sizes)
        made = _without_videos(getattr(t, f"{name}Processor"))
        return made(images, tokens, *([None] if kind == "smolvlm" else []), image_seq_len=4)
    if kind == "internvl":
        tokens = tokenizer_with(
            start_image_token="<img>",
            end_image_token="</img>",
            context_image_token="<IMG_CONTEXT>",
            video_token="<video>",
        )
        images = t.GotOcr2ImageProcessorPil(**square)
        return _without_videos(t.InternVLProcessor)(images, tokens, None, image_seq_length=4)
    tokens = tokenizer_with("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    images = t.Qwen2VLImageProcessorPil(
        size={"shortest_edge": 56 * 56, "longest_edge": 4 * 56 * 56}, patch_size=14
    )
    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL"}.get(kind, "Qwen3VL")
    return _without_videos(getattr(t, f"{name}Processor"))(images, tokens)


def _without_videos(known: Any) -> Any:
    """Its part for videos wants torchvision."""

    def attributes(cls: Any) -> list[str]:
        return [name for name in known.get_attributes() if name != "video_processor"]

    return type(known.__name__, (known,), {"get_attributes": classmethod(attributes)})


def gemma4_processor(feature_extractor: Any) -> Any:
    """feature_extractor: of sounds; None for none."""
    tokens = tokenizer_with(
        "<|video|>",
        "<|audio|>",
        image_token="<|image|>",
        boi_token="<|image>",
        eoi_token="<image|>",
        audio_token="<|audio|>",
        boa_token="<|audio>",
        eoa_token="<audio|>",
    )
    images = transformers.Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70)
    made = _with_missing_parts(transformers.Gemma4Processor)
    return made(feature_extractor, images, tokens, None)


def _with_missing_parts(known: Any) -> Any:
    """Takes None for a part."""

    def check(self: Any, name: str, value: Any) -> Any:
        return None if value is None else known.check_argument_for_proper_class(self, name, value)

    return type(known.__name__, (known,), {"check_argument_for_proper_class": check})
