"""`executorch.export`'s recipes: how a model is quantized and lowered."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import nn
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_manager import PassManager

from edgewise.compat.exir import EdgeCompileConfig, EdgeProgramManager

__all__ = [
    "AOQuantizationConfig",
    "BackendRecipeProvider",
    "ExportRecipe",
    "LoweringRecipe",
    "Mode",
    "QuantizationRecipe",
    "RecipeRegistry",
    "RecipeType",
    "StageType",
    "recipe_registry",
]


class StageType(str, Enum):
    """What a session does, step by step."""

    SOURCE_TRANSFORM = "source_transform"
    QUANTIZE = "quantize"
    TORCH_EXPORT = "torch_export"
    TO_EDGE_TRANSFORM_AND_LOWER = "to_edge_transform_and_lower"
    TO_EDGE = "to_edge"
    EDGE_PROGRAM_MANAGER_TRANSFORM = "edge_program_manager_transform"
    TO_BACKEND = "to_backend"
    TO_EXECUTORCH = "to_executorch"


class RecipeType(Enum):
    """A backend's recipes, by name: each backend has an enumeration of its own."""

    @classmethod
    def get_backend_name(cls) -> str:
        """The backend, as its provider is registered."""
        raise NotImplementedError(f"[{cls.__name__}] must define get_backend_name()")


class Mode(str, Enum):
    """Of no effect here: what is found wrong is always said."""

    DEBUG = "debug"
    RELEASE = "release"


@dataclass
class AOQuantizationConfig:
    """A configuration of `torchao.quantization.quantize_`, and which modules it is for."""

    ao_base_config: Any
    filter_fn: Callable[[nn.Module, str], bool] | None = None


@dataclass
class QuantizationRecipe:
    """PT2E quantizers, one after the other; or one configuration of torchao."""

    quantizers: list[Any] | None = None
    ao_quantization_configs: list[AOQuantizationConfig] | None = None

    def get_quantizers(self) -> list[Any] | None:
        """The PT2E quantizers."""
        return self.quantizers


ProgramPasses = Callable[[str, ExportedProgram], "list[Any] | PassManager"]


@dataclass
class LoweringRecipe:
    """Partitioners; and functions that give the passes for a method, or for all of them."""

    partitioners: list[Any] | None = None
    edge_transform_passes: list[ProgramPasses] | None = None
    edge_manager_transform_passes: (
        list[Callable[[EdgeProgramManager], list[Any] | PassManager]] | None
    ) = None
    edge_compile_config: Any = None


@dataclass
class ExportRecipe:
    """All that `export` needs to know beside the model and its inputs."""

    name: str | None = None
    quantization_recipe: QuantizationRecipe | None = None
    aten_transform_passes: list[Callable[[str, ExportedProgram], ExportedProgram]] | None = None
    source_transform_in_place: bool = False
    """torchao changes the model that was given, not a copy of it."""
    lowering_recipe: LoweringRecipe | None = None
    executorch_backend_config: Any = None
    pipeline_stages: list[StageType] | None = None
    mode: Mode = Mode.RELEASE
    strict: bool = True

    @classmethod
    def get_recipe(cls, recipe: RecipeType, **kwargs: Any) -> ExportRecipe:
        """A backend's recipe. ValueError if it has none of this name."""
        if not isinstance(recipe, RecipeType):
            raise ValueError(f"[get_recipe] Invalid recipe type: {recipe!r}; try a RecipeType")
        backend = recipe.get_backend_name()
        made = recipe_registry.create_recipe(recipe, backend, **kwargs)
        if made is None:
            known = [one.value for one in recipe_registry.get_supported_recipes(backend)]
            raise ValueError(
                f"[get_recipe] Recipe '{recipe.value}' not supported by '{backend}'; "
                f"try one of {known}"
            )
        return made

    @classmethod
    def combine(cls, recipes: list[ExportRecipe], recipe_name: str | None = None) -> ExportRecipe:
        """One recipe for several backends: partitioners and quantizers in this order, the
        configurations of the first that has one. ValueError without a recipe."""
        if not recipes:
            raise ValueError("[combine] Recipes cannot be empty")
        if len(recipes) == 1:
            return recipes[0]
        lowering = [one.lowering_recipe for one in recipes if one.lowering_recipe]
        quantization = [one.quantization_recipe for one in recipes if one.quantization_recipe]
        partitioners = _joined(one.partitioners for one in lowering)
        passes = _joined(one.edge_transform_passes for one in lowering)
        quantizers = _joined(one.quantizers for one in quantization)
        weights = _joined(one.ao_quantization_configs for one in quantization)
        config = _first(one.edge_compile_config for one in lowering) or EdgeCompileConfig()
        return cls(
            name=recipe_name or "_".join(one.name for one in recipes if one.name is not None),
            quantization_recipe=(
                QuantizationRecipe(quantizers or None, weights or None)
                if quantizers or weights
                else None
            ),
            aten_transform_passes=_joined(one.aten_transform_passes for one in recipes),
            lowering_recipe=(
                LoweringRecipe(
                    partitioners or None,
                    passes or None,
                    _joined(one.edge_manager_transform_passes for one in lowering) or None,
                    config,
                )
                if partitioners or passes
                else None
            ),
            executorch_backend_config=copy.deepcopy(
                _first(one.executorch_backend_config for one in recipes)
            ),
        )


def _joined(lists: Iterable[list[Any] | None]) -> list[Any]:
    return [one for listed in lists for one in listed or ()]


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


class BackendRecipeProvider(ABC):
    """A backend's recipes."""

    @property
    @abstractmethod
    def backend_name(self) -> str:
        """What its recipes' `get_backend_name` gives."""

    @abstractmethod
    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """All that `create_recipe` can make."""

    @abstractmethod
    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """The recipe, or None if it is not supported."""

    def supports_recipe(self, recipe_type: RecipeType) -> bool:
        """Whether it is one of `get_supported_recipes`."""
        return recipe_type in self.get_supported_recipes()


class RecipeRegistry:
    """The providers, by backend: one registry in a process."""

    _instance: RecipeRegistry | None = None
    _providers: dict[str, BackendRecipeProvider]

    def __new__(cls) -> RecipeRegistry:
        """The one of this process."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._providers = {}
        return cls._instance

    def register_backend_recipe_provider(self, provider: BackendRecipeProvider) -> None:
        """Adds a provider, in the place of one with the same backend."""
        self._providers[provider.backend_name] = provider

    def create_recipe(
        self, recipe_type: RecipeType, backend: str, **kwargs: Any
    ) -> ExportRecipe | None:
        """The recipe, None if the backend has no such. ValueError without the backend."""
        return self._provider(backend).create_recipe(recipe_type, **kwargs)

    def get_supported_recipes(self, backend: str) -> Sequence[RecipeType]:
        """The backend's recipes. ValueError without the backend."""
        return self._provider(backend).get_supported_recipes()

    def list_backends(self) -> Sequence[str]:
        """Backends that have recipes."""
        return list(self._providers)

    def _provider(self, backend: str) -> BackendRecipeProvider:
        if backend not in self._providers:
            raise ValueError(
                f"[recipe_registry] Backend '{backend}' not available; "
                f"try one of {list(self._providers)}"
            )
        return self._providers[backend]


recipe_registry = RecipeRegistry()
