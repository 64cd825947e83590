"""Building blocks that several of the example models share.

The order of the children decides the names in the state dict, and those names are torchvision's.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
Norm = Callable[[int], nn.Module]

RELU: Activation = partial(nn.ReLU, inplace=True)
RELU6: Activation = partial(nn.ReLU6, inplace=True)
HARDSWISH: Activation = partial(nn.Hardswish, inplace=True)


class ConvNormActivation(nn.Sequential):
    """Convolution ("0"), batch norm ("1") and, unless it is None, an activation ("2").

    The padding keeps the spatial size for stride 1 and an odd kernel. The convolution has no bias.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        groups: int = 1,
        norm: Norm = nn.BatchNorm2d,
        activation: Activation | None = RELU,
    ) -> None:
        conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel,
            stride,
            padding=kernel // 2,
            groups=groups,
            bias=False,
        )
        parts: list[nn.Module] = [conv, norm(out_channels)]
        if activation is not None:
            parts.append(activation())
        super().__init__(*parts)


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate in [0, 1] computed from the channel means.

    Source: "Squeeze-and-Excitation Networks", https://arxiv.org/abs/1709.01507.
    """

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Gate `x`, of shape [N, channels, H, W]; the result has the same shape."""
        gate: Tensor = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        gate = self.scale_activation(gate)
        return gate * x


def round_channels(channels: float, divisor: int = 8) -> int:
    """Round to the nearest multiple of `divisor`, but never lose more than a tenth."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor


def initialise_convolutions(model: nn.Module) -> None:
    """Kaiming-normal convolutions, normal linears, unit batch norms, zero biases.

    Fan in, not fan out as torchvision: without training, depthwise convolutions would otherwise
    shrink the signal until the output no longer depends on the image.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)) and module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def randomize_batch_norm(
    model: nn.Module, seed: int, inputs: tuple[Tensor, ...] | None = None
) -> nn.Module:
    """Give every batch norm random statistics and a random affine part; return `model`.

    A fresh batch norm is the identity, so a compiler could drop it unnoticed. Here each one counts:
    scale 0.75 to 1.25, shift around 0 (deviation 0.2), and a mean and a variance that miss those of
    its input by as much. The input is taken to be of mean 0 and variance 1; with `inputs` it is
    measured, which keeps activations of order one all the way through a deep untrained model.
    """
    random = torch.Generator().manual_seed(seed)
    norms = [m for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for norm in norms:
        if norm.affine:
            norm.weight.uniform_(0.75, 1.25, generator=random)
            norm.bias.normal_(0.0, 0.2, generator=random)
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.normal_(0.0, 0.2, generator=random)
            norm.running_var.uniform_(0.75, 1.25, generator=random)
    if inputs is not None:
        handles = [norm.register_forward_pre_hook(_measure) for norm in norms]
        model(*inputs)
        for handle in handles:
            handle.remove()
    return model


def _measure(norm: nn.Module, args: tuple[Tensor]) -> None:
    """Take the statistics in `norm` as relative to those of its input, and make them absolute."""
    assert isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d))
    if norm.running_mean is None or norm.running_var is None:
        return
    # A vector has one number a channel: what is measured is that of all channels.
    dims = (0, 2, 3) if args[0].dim() == 4 else None
    var, mean = torch.var_mean(args[0], dims, correction=0)
    var = var + 1e-3 * var.mean()  # a channel that is all zero here may not be elsewhere
    norm.running_mean.mul_(var.sqrt()).add_(mean)
    norm.running_var.mul_(var)


@torch.no_grad()
def randomize_layer_norm(model: nn.Module, seed: int) -> nn.Module:
    """Give every layer norm a random scale (0.5 to 1.5) and shift; return `model`."""
    random = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm) and module.elementwise_affine:
            module.weight.uniform_(0.5, 1.5, generator=random)
            module.bias.normal_(0.0, 0.2, generator=random)
    return model
