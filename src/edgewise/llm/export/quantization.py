"""Which parts of a language model have how many bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from edgewise.llm.export.experts import with_linear_experts
from edgewise.llm.export.parakeet import PARAKEETS, head_of, with_linear_convolutions
from edgewise.quantize._torchao import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    PerAxis,
    PerGroup,
    quantize_,
)
from edgewise.quantize.flow import with_integer_weights
from edgewise.quantize.methods.registry import METHODS
from edgewise.quantize.schemes import scheme_of
from edgewise.quantize.selection import is_within

__all__ = ["LINEAR", "Recipe", "quantize_encoder", "quantize_model"]

LINEAR = {
    "8da4w": "4-bit weights in groups, activations in 8 bits at run time",
    "8da8w": "8-bit weights, a scale per channel, activations in 8 bits at run time",
    "4w": "4-bit weights, a scale per channel, computing in float",
    "8w": "8-bit weights, a scale per channel, computing in float",
    "none": "float32",
}
"""What linear layers can be."""

_METHODS = ("awq", "gptq")
_EMBEDDING_BITS = (2, 4, 8, 32)


@dataclass(frozen=True)
class Recipe:
    """linear: one of `LINEAR`. group_size: weights that share a scale, for 8da4w. head: as
    `linear`, for the layer that makes logits; None for the same. embedding: bits of the embedding's
    weights, 8, 4 or 2, or 32 for float32. keep_float: names of modules, as in `named_modules`.

    ValueError if a value is not one of these.
    """

    linear: str = "8da4w"
    group_size: int = 32
    head: str | None = None
    embedding: int = 8
    keep_float: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("linear", "head"):
            value = getattr(self, name)
            if value not in LINEAR and not (name == "head" and value is None):
                raise ValueError(
                    f"[quantize] {name} must be one of {', '.join(LINEAR)}; got {value!r}"
                )
        if self.embedding not in _EMBEDDING_BITS:
            raise ValueError(
                f"[quantize] embedding must be one of {', '.join(map(str, _EMBEDDING_BITS))} bits; "
                f"got {self.embedding}"
            )
        scheme_of("int4-dynamic", self.group_size)  # refuses sizes that are none

    @property
    def is_default(self) -> bool:
        """Whether `edgewise.compile` has a scheme for it."""
        same = self.head in (None, self.linear) and self.embedding == 8
        return self.linear == "8da4w" and same


def quantize_model(
    model: Any,
    recipe: Recipe = Recipe(),
    *,
    methods: Sequence[str] = (),
    calibration: Sequence[torch.Tensor] = (),
) -> Any:
    """A copy whose layers hold integers as the recipe says.

    methods: "gptq" rounds weights input by input, for 8da4w with 8-bit embeddings; "awq" (see
    `edgewise.quantize.methods`) acts behind norms of one operator alone, which few of these models
    have. calibration: for methods, texts of one length, int64 [1, S].

    Linear layers with fewer inputs than a group stay in floating point, with a warning. ValueError
    if a name is not one of the model's, the group size does not divide the input features of
    another linear layer, or methods and calibration do not fit.
    """
    _check_methods(recipe, methods, calibration)
    is_parakeet = model.config.model_type in PARAKEETS
    if is_parakeet:
        if methods:
            raise ValueError(
                f"[quantize] methods are for models of texts; got a {model.config.model_type}"
            )
        model = with_linear_convolutions(model)
    model = with_linear_experts(model)
    known = {name for name, _ in model.named_modules()}
    unknown = [name for name in recipe.keep_float if name not in known]
    if unknown:
        raise ValueError(
            f"[quantize] keep_float must name modules of the model; got {', '.join(unknown)}; "
            f"try one such as {sorted(known - {''})[-1]}"
        )
    scheme = scheme_of("int4-dynamic", recipe.group_size)
    kept = [*recipe.keep_float, *_indexed_tables(model)]
    kept_from_groups = [*kept, *_narrower_than_a_group(model, recipe, kept)]
    if methods:
        batches = [(tokens,) for tokens in calibration]
        steps = [METHODS[name] for name in METHODS if name in methods]
        with _without_cache(model):
            return with_integer_weights(
                model, scheme, kept_from_groups, methods=steps, inputs=batches[0], studied=batches
            )
    if recipe.is_default:
        return with_integer_weights(model, scheme, kept_from_groups)
    head = head_of(model) if is_parakeet else model.get_output_embeddings()
    heads = [name for name, module in model.named_modules() if module is head]
    linear = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    rows = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Embedding)]
    for names, kind in ((heads, recipe.head or recipe.linear), (linear, recipe.linear)):
        chosen = [n for n in names if n not in heads or names is heads]
        if kind == "8da4w":
            others = [n for n in (*linear, *rows) if n not in chosen]
            model = with_integer_weights(model, scheme, [*kept_from_groups, *others])
        elif kind != "none":
            model = _quantized(model, chosen, kept, _CONFIGS[kind])
    if recipe.embedding != 32:
        bits = getattr(torch, f"int{recipe.embedding}")
        config = IntxWeightOnlyConfig(weight_dtype=bits, granularity=PerGroup(32))
        if recipe.embedding == 8:
            config = IntxWeightOnlyConfig(weight_dtype=bits, granularity=PerAxis(0))
        model = _quantized(model, rows, kept, config)
    return model


def quantize_encoder(encoder: Any, linear: str, group_size: int = 32) -> Any:
    """A copy of what sees or hears whose linear layers hold integers: one of `LINEAR`, groups for
    8da4w. Its convolutions stay in floating point."""
    if linear == "none":
        return encoder
    # Not those in torch.nn.MultiheadAttention, which reads their weights by other ways.
    names = [n for n, m in encoder.named_modules() if type(m) is torch.nn.Linear]
    if linear != "8da4w":
        return _quantized(encoder, names, [], _CONFIGS[linear])
    others = (torch.nn.Embedding, torch.nn.Linear)
    kept = [n for n, m in encoder.named_modules() if isinstance(m, others) and n not in names]
    kept += _narrower_than_a_group(encoder, Recipe(linear, group_size=group_size), kept)
    return with_integer_weights(encoder, scheme_of("int4-dynamic", group_size), kept)


def _check_methods(
    recipe: Recipe, methods: Sequence[str], calibration: Sequence[torch.Tensor]
) -> None:
    unknown = [name for name in methods if name not in _METHODS]
    if unknown:
        raise ValueError(
            f"[quantize] methods must be of {', '.join(_METHODS)}; got {', '.join(unknown)}"
        )
    if methods and not recipe.is_default:
        raise ValueError("[quantize] methods are for 8da4w with a head like it, 8-bit embeddings")
    sizes = {tuple(tokens.shape) for tokens in calibration}
    if bool(methods) != bool(calibration) or len(sizes) > 1:
        raise ValueError(
            f"[quantize] methods must come with calibration, texts of one length; got "
            f"{len(methods)} methods and texts of {sorted(sizes)}"
        )


@contextmanager
def _without_cache(model: Any) -> Iterator[None]:
    """The model's results have no cache in them."""
    before, model.config.use_cache = model.config.use_cache, False
    try:
        yield
    finally:
        model.config.use_cache = before


def _indexed_tables(model: Any) -> list[str]:
    """Embeddings that may read their weight by other ways than those of the words do, such as those
    of Whisper's positions."""
    if model.config.model_type in PARAKEETS:
        return []
    words = model.get_input_embeddings()
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding)
        and type(module) not in (torch.nn.Embedding, type(words))
    ]


def _narrower_than_a_group(model: Any, recipe: Recipe, kept: Sequence[str]) -> list[str]:
    """Linear layers with fewer inputs than weights share a scale; a warning names them.

    Gemma 3n mixes its streams by such ones: there is nothing to gain of four numbers.
    """
    if "8da4w" not in (recipe.linear, recipe.head):
        return []
    found = {
        name: module.in_features
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module.in_features < recipe.group_size
        and not any(is_within(name, one) for one in kept)
    }
    if found:
        names = [f"{name} ({count})" for name, count in found.items()]
        more = f" and {len(names) - 3} others" if len(names) > 3 else ""
        warnings.warn(
            f"[quantize] linear layers with fewer inputs than a group has, {recipe.group_size}, "
            f"stay in floating point: {', '.join(names[:3])}{more}",
            stacklevel=3,
        )
    return list(found)


_CONFIGS: dict[str, Any] = {
    "8da8w": Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int8, weight_granularity=PerAxis(0)
    ),
    "4w": IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, "int4"),  # noqa: B009  (no stub has it)
        granularity=PerAxis(0),
    ),
    "8w": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
}


def _quantized(model: Any, names: Sequence[str], kept: Sequence[str], config: Any) -> Any:
    import copy

    def chosen(module: torch.nn.Module, name: str) -> bool:
        return name in names and not any(is_within(name, one) for one in kept)

    model = copy.deepcopy(model).eval()
    quantize_(model, config, chosen)
    return model
