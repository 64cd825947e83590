"""Example models in plain torch, with the layer names of the checkpoints people have.

`MODELS["mobilenet_v2"].build(seed=0)` is a model in evaluation mode with seeded weights, and
`MODELS["mobilenet_v2"].example_inputs(0)` a tuple of tensors to export and run it with.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .bert import BERT_BASE, Bert, BertConfig
from .layers import randomize_batch_norm, randomize_layer_norm
from .mlperf_tiny import AutoEncoder, DsCnn, MobileNetV1, ResNet8
from .mobilenet_v2 import mobilenet_v2
from .mobilenet_v3 import mobilenet_v3_large, mobilenet_v3_small
from .resnet import resnet18, resnet50
from .tiny import TinyCnn, TinyMlp
from .vit import vit_b_16

__all__ = [
    "BERT_BASE",
    "MODELS",
    "Bert",
    "BertConfig",
    "ModelSpec",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "randomize_batch_norm",
    "randomize_layer_norm",
    "resnet18",
    "resnet50",
    "vit_b_16",
]


@dataclass(frozen=True)
class ModelSpec:
    """A model by name: how to make it and what to feed it."""

    name: str
    factory: Callable[[], nn.Module]
    example_inputs: Callable[[int], tuple[Tensor, ...]]
    note: str

    def build(self, seed: int = 0) -> nn.Module:
        """The model in evaluation mode, a function of `seed` alone.

        Norm layers get random statistics and affine parts, so that none of them is an identity.
        torch's global random state is left as it was.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.factory().eval()
        randomize_batch_norm(model, seed, self.example_inputs(seed + 1000))
        return randomize_layer_norm(model, seed)


def _normal(*shape: int) -> Callable[[int], tuple[Tensor, ...]]:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)),)

    return inputs


def _tokens(vocabulary: int, length: int) -> Callable[[int], tuple[Tensor, ...]]:
    """Ids, a mask whose last quarter is padding, token types that change half-way."""

    def inputs(seed: int) -> tuple[Tensor, ...]:
        random = torch.Generator().manual_seed(seed)
        ids = torch.randint(1, vocabulary, (1, length), generator=random)
        place = torch.arange(length).unsqueeze(0)
        mask = (place < length - length // 4).to(torch.int64)
        return ids * mask, mask, (place >= length // 2).to(torch.int64)

    return inputs


def _image(seed: int) -> tuple[Tensor, ...]:
    """One 224x224 image of standard deviation near one: coarse patches under fine noise."""
    random = torch.Generator().manual_seed(seed)
    patches = torch.randn(1, 3, 14, 14, generator=random)
    noise = torch.randn(1, 3, 224, 224, generator=random)
    return (nn.functional.interpolate(patches, scale_factor=16.0) + 0.3 * noise,)


MODELS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        ModelSpec("mobilenet_v2", mobilenet_v2, _image, "depthwise convolutions, ReLU6"),
        ModelSpec("mobilenet_v3_small", mobilenet_v3_small, _image, "hardswish, squeeze-excite"),
        ModelSpec("mobilenet_v3_large", mobilenet_v3_large, _image, "as small, twice the size"),
        ModelSpec("resnet18", resnet18, _image, "3x3 convolutions, residuals"),
        ModelSpec("resnet50", resnet50, _image, "1x1 and 3x3 convolutions, 25 million weights"),
        ModelSpec("vit_b_16", vit_b_16, _image, "attention, layer norm, GELU"),
        ModelSpec("bert_small", Bert, _tokens(1000, 32), "embeddings, a mask, two layers"),
        ModelSpec("resnet8", ResNet8, _normal(1, 3, 32, 32), "MLPerf Tiny: images"),
        ModelSpec("ds_cnn", DsCnn, _normal(1, 1, 49, 10), "MLPerf Tiny: keywords"),
        ModelSpec("mobilenet_v1_025", MobileNetV1, _normal(1, 3, 96, 96), "MLPerf Tiny: persons"),
        ModelSpec("autoencoder", AutoEncoder, _normal(1, 640), "MLPerf Tiny: anomalies"),
        ModelSpec("tiny_mlp", TinyMlp, _normal(1, 16), "two linear layers"),
        ModelSpec("tiny_cnn", TinyCnn, _normal(1, 3, 32, 32), "two convolutions, one batch norm"),
    )
}
