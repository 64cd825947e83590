"""Whole architectures of `transformers`, small and random, with inputs of ordinary sizes.

Two layers, 64 to 256 channels. Weights are drawn so that every layer passes on a signal of about
the size that it gets: the libraries' own initializations leave small models with outputs near zero,
on which no error shows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

SEED = 0


@dataclass(frozen=True)
class Architecture:
    """A model class, its configuration's class, and how they are called."""

    model: str
    config: str
    options: dict[str, Any]
    inputs: Callable[[], dict[str, torch.Tensor]]
    result: str = "last_hidden_state"
    """The field of the model's output that is compared."""
    part: str = ""
    """Attribute of the model that is used instead of the whole."""

    def build(self) -> nn.Module:
        """The model in evaluation mode, weights seeded."""
        import transformers

        torch.manual_seed(SEED)
        config = getattr(transformers, self.config)(**self.options)
        model = getattr(transformers, self.model)(config)
        if self.part:
            model = model.get_submodule(self.part)
        _draw(model)
        return _Named(model, list(self.inputs()), self.result).eval()

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Seeded inputs, in the order of `inputs`."""
        torch.manual_seed(SEED)
        return tuple(self.inputs().values())


class _Named(nn.Module):
    """Positional tensors in, one tensor out."""

    def __init__(self, model: nn.Module, names: list[str], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result
        config = getattr(model, "config", None)
        self.options = {"use_cache": False} if getattr(config, "use_cache", False) else {}

    def forward(self, *inputs: torch.Tensor) -> Any:
        named = dict(zip(self.names, inputs, strict=True))
        output = self.model(**named, **self.options)
        if isinstance(output, torch.Tensor):
            return output
        found = tuple(output[field] for field in self.result.split())
        return found[0] if len(found) == 1 else found


def _draw(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(SEED)

    def normal(like: torch.Tensor, std: float) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator) * std

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("A_log", "D", "dt_bias", "dt_proj.bias")):
                continue  # of state space models: rates that must keep their signs and order
            if parameter.dim() > 1:
                fan_in = math.prod(parameter.shape[1:])
                if "embed" in name and parameter.dim() == 2:
                    fan_in = 1
                parameter.copy_(normal(parameter, 1 / math.sqrt(fan_in)))
            elif name.endswith("bias"):
                parameter.copy_(normal(parameter, 0.1))
            else:
                parameter.add_(normal(parameter, 0.1))
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.running_mean.copy_(normal(module.running_mean, 0.1))
                module.running_var.copy_(1 + normal(module.running_var, 0.1).abs())


def _tokens(length: int = 32, key: str = "input_ids") -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {key: torch.randint(3, 500, (1, length))}


def _masked(length: int = 32) -> Callable[[], dict[str, torch.Tensor]]:
    """Tokens of which the last quarter is padding."""

    def make() -> dict[str, torch.Tensor]:
        mask = torch.ones(1, length, dtype=torch.int64)
        mask[:, length - length // 4 :] = 0
        return {"input_ids": torch.randint(3, 500, (1, length)), "attention_mask": mask}

    return make


def _image(size: int) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {"pixel_values": torch.randn(1, 3, size, size)}


def _audio() -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(1, 8000)}


def _spectrogram() -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(1, 80, 200)}


def _text(**more: Any) -> dict[str, Any]:
    """Sizes of a small text model, by the names that most configurations use."""
    common = {
        "vocab_size": 512,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
    }
    return {**common, **more}


def _vision(size: int = 64, **more: Any) -> dict[str, Any]:
    common = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "image_size": size,
        "patch_size": 16,
    }
    return {**common, **more}


def _speech() -> dict[str, Any]:
    return {
        "vocab_size": 32,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "conv_dim": (64,) * 7,
        "num_conv_pos_embeddings": 32,
        "num_conv_pos_embedding_groups": 4,
    }


_KV = {"num_key_value_heads": 2}
_T5 = {"vocab_size": 512, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
_CLIP_TEXT = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256} | {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 77,
    "eos_token_id": 2,
}
_STAGES = {"embedding_size": 16, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]}

ARCHITECTURES: dict[str, Architecture] = {
    # encoders of text
    "bert": Architecture("BertModel", "BertConfig", _text(), _masked()),
    "albert": Architecture("AlbertModel", "AlbertConfig", _text(embedding_size=64), _tokens()),
    "distilbert": Architecture(
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 512, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256},
        _masked(),
    ),
    "roberta": Architecture("RobertaModel", "RobertaConfig", _text(), _tokens()),
    "electra": Architecture("ElectraModel", "ElectraConfig", _text(embedding_size=64), _tokens()),
    "mpnet": Architecture("MPNetModel", "MPNetConfig", _text(), _tokens()),
    "deberta": Architecture(
        "DebertaV2Model",
        "DebertaV2Config",
        _text(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
        _tokens(),
    ),
    "t5_encoder": Architecture("T5EncoderModel", "T5Config", _T5, _tokens()),
    # decoders of text
    "gpt2": Architecture(
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 512, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 128},
        _tokens(),
        "logits",
    ),
    "gpt_neox": Architecture("GPTNeoXForCausalLM", "GPTNeoXConfig", _text(), _tokens(), "logits"),
    "opt": Architecture(
        "OPTForCausalLM",
        "OPTConfig",
        _text(ffn_dim=256, word_embed_proj_dim=128),
        _tokens(),
        "logits",
    ),
    "llama": Architecture("LlamaForCausalLM", "LlamaConfig", _text(**_KV), _tokens(), "logits"),
    "mistral": Architecture(
        "MistralForCausalLM",
        "MistralConfig",
        _text(**_KV, sliding_window=16),
        _tokens(),
        "logits",
    ),
    "qwen2": Architecture("Qwen2ForCausalLM", "Qwen2Config", _text(**_KV), _masked(), "logits"),
    "qwen3": Architecture(
        "Qwen3ForCausalLM", "Qwen3Config", _text(**_KV, head_dim=32), _tokens(), "logits"
    ),
    "gemma": Architecture(
        "GemmaForCausalLM", "GemmaConfig", _text(**_KV, head_dim=32), _tokens(), "logits"
    ),
    "gemma2": Architecture(
        "Gemma2ForCausalLM", "Gemma2Config", _text(**_KV, head_dim=32), _tokens(), "logits"
    ),
    "olmo2": Architecture("Olmo2ForCausalLM", "Olmo2Config", _text(**_KV), _tokens(), "logits"),
    "granite": Architecture(
        "GraniteForCausalLM", "GraniteConfig", _text(**_KV), _tokens(), "logits"
    ),
    "smollm3": Architecture(
        "SmolLM3ForCausalLM", "SmolLM3Config", _text(**_KV), _tokens(), "logits"
    ),
    "phi": Architecture("PhiForCausalLM", "PhiConfig", _text(), _tokens(), "logits"),
    "mamba": Architecture(
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
        _tokens(16),
        "logits",
    ),
    # images
    "vit": Architecture("ViTModel", "ViTConfig", _vision(), _image(64)),
    "deit": Architecture("DeiTModel", "DeiTConfig", _vision(), _image(64)),
    "beit": Architecture("BeitModel", "BeitConfig", _vision(), _image(64)),
    "dinov2": Architecture("Dinov2Model", "Dinov2Config", _vision(56, patch_size=14), _image(56)),
    "swin": Architecture(
        "SwinModel",
        "SwinConfig",
        {"image_size": 112, "embed_dim": 64, "depths": [2, 2], "num_heads": [2, 4]},
        _image(112),
    ),
    "convnext": Architecture(
        "ConvNextModel",
        "ConvNextConfig",
        {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
        _image(128),
    ),
    "convnext_v2": Architecture(
        "ConvNextV2Model",
        "ConvNextV2Config",
        {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
        _image(128),
    ),
    "poolformer": Architecture(
        "PoolFormerModel",
        "PoolFormerConfig",
        {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]},
        _image(128),
    ),
    "mobilenet_v1": Architecture(
        "MobileNetV1Model",
        "MobileNetV1Config",
        {"image_size": 128, "depth_multiplier": 0.5},
        _image(128),
    ),
    "mobilevit": Architecture(
        "MobileViTModel",
        "MobileViTConfig",
        {
            "image_size": 128,
            "hidden_sizes": [64, 80, 96],
            "neck_hidden_sizes": [16, 32, 64] + [96] * 3 + [128],
        },
        _image(128),
    ),
    "segformer": Architecture(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {"hidden_sizes": [32, 64, 128, 128], "depths": [1, 1, 1, 1], "decoder_hidden_size": 64},
        _image(128),
        "logits",
    ),
    "resnet": Architecture(
        "ResNetModel", "ResNetConfig", {**_STAGES, "layer_type": "basic"}, _image(128)
    ),
    "regnet": Architecture(
        "RegNetModel", "RegNetConfig", {**_STAGES, "groups_width": 16}, _image(128)
    ),
    "mobilenet_v2": Architecture(
        "MobileNetV2Model", "MobileNetV2Config", {"image_size": 128}, _image(128)
    ),
    "efficientnet": Architecture(
        "EfficientNetModel",
        "EfficientNetConfig",
        {
            "image_size": 128,
            "width_coefficient": 0.5,
            "depth_coefficient": 0.3,
            "hidden_dim": 640,
        },
        _image(128),
    ),
    "yolos": Architecture(
        "YolosForObjectDetection",
        "YolosConfig",
        _vision(image_size=[64, 96], num_detection_tokens=20, num_labels=10),
        lambda: {"pixel_values": torch.randn(1, 3, 64, 96)},
        "logits pred_boxes",
    ),
    "detr": Architecture(
        "DetrForObjectDetection",
        "DetrConfig",
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "num_queries": 20,
            "num_labels": 10,
            "backbone_config": {"model_type": "resnet", **_STAGES, "out_features": ["stage4"]},
        },
        _image(128),
        "logits pred_boxes",
    ),
    # images and text
    "clip_text": Architecture("CLIPTextModel", "CLIPTextConfig", _CLIP_TEXT, _tokens(32)),
    "clip_vision": Architecture("CLIPVisionModel", "CLIPVisionConfig", _vision(), _image(64)),
    "siglip_vision": Architecture("SiglipVisionModel", "SiglipVisionConfig", _vision(), _image(64)),
    # sound
    "wav2vec2": Architecture("Wav2Vec2Model", "Wav2Vec2Config", _speech(), _audio),
    "hubert": Architecture("HubertModel", "HubertConfig", _speech(), _audio),
    "whisper_encoder": Architecture(
        "WhisperModel",
        "WhisperConfig",
        {
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 256,
            "decoder_ffn_dim": 256,
            "vocab_size": 512,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "max_source_positions": 100,
        },
        _spectrogram,
        part="encoder",
    ),
}
