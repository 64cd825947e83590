"""What a model takes for the tokens of a text, where it takes vectors."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Words", "add_to_all"]


class Words(torch.nn.Module):
    """What a model takes for tokens: forward(tokens int64 [B, S]) to float32 [B, S, width].

    deep: as of `EmbeddingDecoder`; words have zeros there.
    """

    def __init__(self, model: Any, deep: int = 0) -> None:
        super().__init__()
        self.embedding = model.get_input_embeddings()
        language = getattr(model, model.base_model_prefix, model)
        self.by_layer = getattr(language, "embed_tokens_per_layer", None)
        self.layers, self.deep = model.config.num_hidden_layers, deep

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """One behind the other: the embedding, and what else there is."""
        found: torch.Tensor = self.embedding(tokens)
        if self.by_layer is not None:
            return torch.cat([found, self.by_layer(tokens)], -1)
        if self.deep:
            more = found.new_zeros(*found.shape[:2], self.deep * found.shape[-1])
            return torch.cat([found, more], -1)
        return found

    def apart(self, vectors: torch.Tensor) -> dict[str, Any]:
        """The same as arguments of the model's code."""
        width = self.embedding.embedding_dim
        given: dict[str, Any] = {"inputs_embeds": vectors[..., :width]}
        more = vectors[..., width:]
        if self.by_layer is not None:
            given["per_layer_inputs"] = more.reshape(*vectors.shape[:2], self.layers, -1)
        elif self.deep:
            given["visual_pos_masks"] = torch.ones(1, dtype=torch.bool)  # not read
            given["deepstack_visual_embeds"] = list(torch.split(more, width, -1))
        else:
            given["inputs_embeds"] = vectors
        return given


def add_to_all(hidden: torch.Tensor, masks: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """In the place of the library's, which adds to an image's tokens alone. Words have zeros."""
    return hidden + more
