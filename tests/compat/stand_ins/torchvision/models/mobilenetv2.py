from enum import Enum

import torch

from examples.models import MODELS


class MobileNet_V2_Weights(Enum):
    DEFAULT = 0


def mobilenet_v2(*, weights: MobileNet_V2_Weights) -> torch.nn.Module:
    return MODELS["mobilenet_v2"].build(weights.value)
