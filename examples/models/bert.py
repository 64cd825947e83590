"""BERT encoder.

Source: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
https://arxiv.org/abs/1810.04805.
Parameter names and shapes are those of Hugging Face's BertModel with its pooler.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT; the defaults are a small one. Field names are Hugging Face's."""

    vocab_size: int = 1000
    hidden_size: int = 128
    num_hidden_layers: int = 2
    num_attention_heads: int = 2
    intermediate_size: int = 512
    max_position_embeddings: int = 128
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"[BertConfig] hidden_size is a multiple of num_attention_heads; got "
                f"{self.hidden_size} and {self.num_attention_heads}"
            )


BERT_BASE = BertConfig(
    vocab_size=30522,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    max_position_embeddings=512,
)


class BertEmbeddings(nn.Module):
    """Sum of word, position and token type embeddings, normalised."""

    position_ids: Tensor

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=0)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        positions = torch.arange(config.max_position_embeddings).unsqueeze(0)
        self.register_buffer("position_ids", positions, persistent=False)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        """Two int64 [N, tokens] to [N, tokens, hidden_size]."""
        positions = self.position_ids[:, : input_ids.shape[1]]
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        y: Tensor = self.dropout(self.LayerNorm(x + self.position_embeddings(positions)))
        return y


class BertSelfAttention(nn.Module):
    """Multi-head attention without its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`x`: [N, tokens, hidden]; `mask`: [N, 1, 1, tokens], added to the scores."""
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return y.transpose(1, 2).flatten(2)


class BertResidual(nn.Module):
    """Linear, added to the residual, normalised."""

    def __init__(self, config: BertConfig, in_features: int) -> None:
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """[N, tokens, in_features] and [N, tokens, hidden] to [N, tokens, hidden]."""
        y: Tensor = self.LayerNorm(self.dropout(self.dense(x)) + residual)
        return y


class BertLayer(nn.Module):
    """Attention and a feed-forward part, each normalised after its residual."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "self": BertSelfAttention(config),
                "output": BertResidual(config, config.hidden_size),
            }
        )
        self.intermediate = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output = BertResidual(config, config.intermediate_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[N, tokens, hidden] to the same shape."""
        x = self.attention["output"](self.attention["self"](x, mask), x)
        y: Tensor = self.output(nn.functional.gelu(self.intermediate["dense"](x)), x)
        return y


class Bert(nn.Module):
    """Token ids to hidden states and the pooled first token."""

    def __init__(self, config: BertConfig | None = None) -> None:
        super().__init__()
        config = config or BertConfig()
        self.config = config
        self.embeddings = BertEmbeddings(config)
        layers = [BertLayer(config) for _ in range(config.num_hidden_layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.hidden_size)})
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.bias, std=config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encode; all three are int64 [N, tokens], the mask 1 for a token and 0 for padding.

        Returns the last hidden state [N, tokens, hidden] and the pooled output [N, hidden].
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        x = self.embeddings(input_ids, token_type_ids)
        lowest = torch.finfo(x.dtype).min
        mask = torch.where(attention_mask[:, None, None, :] > 0, 0.0, lowest)
        layers = self.encoder["layer"]
        assert isinstance(layers, nn.ModuleList)
        for layer in layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler["dense"](x[:, 0]))
