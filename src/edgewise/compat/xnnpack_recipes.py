"""`executorch.backends.xnnpack.recipes`: XNNPACK's recipes for `executorch.export`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from edgewise.backends.xnnpack import (
    XnnpackPartitioner,
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from edgewise.compat.recipes import (
    AOQuantizationConfig,
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    recipe_registry,
)
from edgewise.compat.xnnpack import (
    get_xnnpack_edge_compile_config,
    get_xnnpack_executorch_backend_config,
)

__all__ = ["XNNPACKRecipeProvider", "XNNPackRecipeType"]

_GROUP_SIZE = 32


class XNNPackRecipeType(RecipeType):
    """In floating point; in 8 bits by PT2E; with weights of 4 bits by torchao."""

    FP32 = "xnnpack_fp32"
    PT2E_INT8_DYNAMIC_PER_CHANNEL = "xnnpack_pt2e_int8_dynamic_per_channel"
    PT2E_INT8_STATIC_PER_CHANNEL = "xnnpack_pt2e_int8_static_per_channel"
    PT2E_INT8_STATIC_PER_TENSOR = "xnnpack_pt2e_int8_static_per_tensor"
    TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL = "xnnpack_torchao_int8da_int4w_per_channel"
    TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR = "xnnpack_torchao_int8da_int4w_per_tensor"
    """In groups: `group_size`, 32 without it."""

    @classmethod
    def get_backend_name(cls) -> str:
        """ "xnnpack"."""
        return "xnnpack"


_PT2E = {
    XNNPackRecipeType.PT2E_INT8_DYNAMIC_PER_CHANNEL: {"is_per_channel": True, "is_dynamic": True},
    XNNPackRecipeType.PT2E_INT8_STATIC_PER_CHANNEL: {"is_per_channel": True, "is_dynamic": False},
    XNNPackRecipeType.PT2E_INT8_STATIC_PER_TENSOR: {"is_per_channel": False, "is_dynamic": False},
}


class XNNPACKRecipeProvider(BackendRecipeProvider):
    """Makes the recipes of `XNNPackRecipeType`."""

    @property
    def backend_name(self) -> str:
        """ "xnnpack"."""
        return "xnnpack"

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """All of `XNNPackRecipeType`."""
        return list(XNNPackRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """The recipe; options that it has not are a warning. ValueError for a group_size that is
        no integer."""
        if not isinstance(recipe_type, XNNPackRecipeType):
            return None
        is_by_group = (
            recipe_type is XNNPackRecipeType.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR
        )
        group_size = kwargs.pop("group_size", _GROUP_SIZE) if is_by_group else _GROUP_SIZE
        if not isinstance(group_size, int):
            raise ValueError(
                f"[{recipe_type.value}] Parameter 'group_size' must be an integer, "
                f"got {type(group_size).__name__}: {group_size}; try {_GROUP_SIZE}"
            )
        if kwargs:
            logging.getLogger(__name__).warning(
                "[%s] has no such options: they are left out; got %s; try %s",
                recipe_type.value,
                sorted(kwargs),
                "group_size" if is_by_group else "none",
            )
        quantization = None
        if recipe_type in _PT2E:
            config = get_symmetric_quantization_config(**_PT2E[recipe_type])
            quantization = QuantizationRecipe([XNNPACKQuantizer().set_global(config)])
        elif recipe_type is not XNNPackRecipeType.FP32:
            quantization = _weights_of_4_bits(group_size if is_by_group else None)
        return ExportRecipe(
            name=recipe_type.value,
            quantization_recipe=quantization,
            lowering_recipe=LoweringRecipe(
                # What is not quantized is delegated too, in floating point.
                partitioners=[XnnpackPartitioner()],
                edge_compile_config=get_xnnpack_edge_compile_config(),
            ),
            executorch_backend_config=get_xnnpack_executorch_backend_config(),
        )


def _weights_of_4_bits(group_size: int | None) -> QuantizationRecipe:
    """Activations in 8 bits by token; weights by group, or by channel without one."""
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4,  # type: ignore[attr-defined]
        weight_granularity=PerAxis(0) if group_size is None else PerGroup(group_size),
    )
    return QuantizationRecipe(ao_quantization_configs=[AOQuantizationConfig(config)])


recipe_registry.register_backend_recipe_provider(XNNPACKRecipeProvider())
