"""What to try where a quantized program is too far from the float model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgewise.accuracy.figures import Layer

GOOD_DB = 40.0
"""Of the worst output; what is beyond it is not worth a word."""
_FEW = 3
_MOST = 0.5
_OUTLIERS = 16.0
"""Largest value by root mean square; a normal distribution has 4 to 5."""
_MANY_BATCHES = 8


def advice(
    layers: Sequence[Layer],
    worst_output_db: float,
    settings: Mapping[str, Any],
    calibrated: int | None = None,
) -> list[str]:
    """Lines of what to try, the likeliest first; none of what `settings` has already.

    layers: of a comparison. settings: options of `edgewise.compile` that quantized the program
    ("quantize", "methods", "keep_float"). calibrated: with so many batches, if it is known.
    """
    scheme = settings.get("quantize")
    if scheme is None or worst_output_db >= GOOD_DB:
        return []
    methods = set(settings.get("methods") or ())
    kept = set(settings.get("keep_float") or ())
    noisy = sorted((x for x in layers if x.added_noise > 0), key=lambda x: -x.added_noise)
    found: list[str] = []
    if scheme == "int8" and calibrated is not None and calibrated < _MANY_BATCHES:
        found.append(
            f"more calibration data: {calibrated} batch{'es' * (calibrated != 1)} may not show the "
            f"ranges that the model has in use"
        )
    found += _outliers(noisy, scheme, methods)
    found += _few(noisy, kept, {x.module for x in layers})
    if scheme == "int8":
        rounding = {"adaround", "gptq"} & methods
        if not rounding:
            found.append("methods=[..., 'adaround']: weights are rounded for the layers' results")
        if "bias-correction" not in methods:
            found.append("methods=[..., 'bias-correction']: costs nothing at run time")
        found.append("quantize='auto' with a Budget: tries these, and says what each brings")
    elif scheme.startswith("int4"):
        if not {"gptq", "awq"} & methods:
            found.append("methods=['gptq'] or ['awq'], with calibration data")
        found.append("smaller groups (group_size=32), or quantize='int8-weight'")
    elif scheme == "int8-dynamic":
        found.append("quantize='int8-weight': activations stay in float")
    return found


def _outliers(noisy: Sequence[Layer], scheme: str, methods: set[str]) -> list[str]:
    """Of the worst layers those with a few values far from all others."""
    wide = [x for x in noisy[:5] if x.peak >= _OUTLIERS]
    if not wide or scheme != "int8":
        return []
    what = (
        f"{wide[0].operator} in {wide[0].module or 'the model'}: its largest value is "
        f"{wide[0].peak:.0f} times the root mean square"
    )
    for name, text in (
        ("smooth", "methods=[..., 'smooth'] moves outliers into weights"),
        ("percentile", "methods=[..., 'percentile'] leaves the rarest values out of the range"),
    ):
        if name not in methods:
            return [f"{text} ({what})"]
    return []


def _few(noisy: Sequence[Layer], kept: set[str], all_modules: set[str]) -> list[str]:
    """If most of the noise is a few modules' that hold no others."""
    whole = sum(x.added_noise for x in noisy)
    modules: list[str] = []
    gone = 0.0
    for layer in noisy:
        if gone >= _MOST * whole or len(modules) == _FEW:
            break
        inner = f"{layer.module}."
        if not layer.module or any(module.startswith(inner) for module in all_modules):
            continue
        gone += layer.added_noise
        if layer.module not in kept and layer.module not in modules:
            modules.append(layer.module)
    if not modules or gone < _MOST * whole:
        return []
    return [
        f"keep_float={modules}: {gone / whole:.0%} of what layers add is theirs; "
        f"edgewise.inspect.suggest measures what that costs"
    ]
