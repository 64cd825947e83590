"""Vision Transformer, ViT-B/16.

Source: "An Image is Worth 16x16 Words", https://arxiv.org/abs/2010.11929.
Layer names and parameter shapes are those of torchvision.models.vit_b_16, whose published
checkpoint still carries older names for the two linears of an MLP; both are read.
"""

from typing import Any

import torch
from torch import Tensor, nn

_OLD_NAMES = {"linear_1": "0", "linear_2": "3"}


class Mlp(nn.Sequential):
    """Linear, GELU, linear, each linear followed by dropout."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        up, down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        super().__init__(up, nn.GELU(), nn.Dropout(dropout), down, nn.Dropout(dropout))
        for linear in (up, down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.normal_(linear.bias, std=0.02)
        self.register_load_state_dict_pre_hook(_rename_old)  # type: ignore[no-untyped-call]


def _rename_old(_: nn.Module, state: dict[str, Any], prefix: str, *__: object) -> None:
    for old, new in _OLD_NAMES.items():
        for kind in ("weight", "bias"):
            if f"{prefix}{old}.{kind}" in state:
                state[f"{prefix}{new}.{kind}"] = state.pop(f"{prefix}{old}.{kind}")


class EncoderLayer(nn.Module):
    """Self-attention and MLP, each behind a layer norm and added to its input."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, hidden, dropout)
        # torch leaves these biases at zero, where an error in them would not show.
        assert self.self_attention.in_proj_bias is not None
        nn.init.normal_(self.self_attention.in_proj_bias, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[N, tokens, width] to the same shape."""
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Encoder(nn.Module):
    """Position embedding, the layers, a last layer norm."""

    def __init__(
        self, tokens: int, width: int, depth: int, heads: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, width).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential()
        for i in range(depth):
            layer = EncoderLayer(width, heads, hidden, dropout)
            self.layers.add_module(f"encoder_layer_{i}", layer)
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """[N, tokens, width] to the same shape."""
        y: Tensor = self.ln(self.layers(self.dropout(x + self.pos_embedding)))
        return y


class VisionTransformer(nn.Module):
    """Image classifier: [N, 3, image, image] to [N, classes]."""

    def __init__(
        self,
        *,
        image: int = 224,
        patch: int = 16,
        width: int = 768,
        depth: int = 12,
        heads: int = 12,
        hidden: int = 3072,
        classes: int = 1000,
        dropout: float = 0.0,
    ) -> None:
        if image % patch:
            raise ValueError(
                f"[VisionTransformer] the image is a whole number of patches; got {image} and "
                f"{patch}; try image={image // patch * patch}"
            )
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, width).normal_(std=0.02))
        tokens = (image // patch) ** 2 + 1
        self.encoder = Encoder(tokens, width, depth, heads, hidden, dropout)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(width, classes))
        nn.init.trunc_normal_(self.conv_proj.weight, std=(3 * patch * patch) ** -0.5)
        for module in (self.conv_proj, self.heads.head):
            assert isinstance(module, (nn.Conv2d, nn.Linear))
            assert module.bias is not None
            nn.init.normal_(module.bias, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        y: Tensor = self.heads(self.encoder(x)[:, 0])
        return y


def vit_b_16(classes: int = 1000) -> VisionTransformer:
    """ViT-B/16 for 224x224 images: 86,567,656 parameters for 1000 classes."""
    return VisionTransformer(classes=classes)
