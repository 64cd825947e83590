"""Methods by name, in the order in which they are applied: `edgewise.compile(..., methods=...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from torch.fx import GraphModule

from edgewise.quantize.config import QuantizationConfig
from edgewise.quantize.methods.activation_aware import awq
from edgewise.quantize.methods.adaptive_rounding import adaround
from edgewise.quantize.methods.bias_correction import correct_biases
from edgewise.quantize.methods.equalization import equalize
from edgewise.quantize.methods.float_sums import keep_sums_float
from edgewise.quantize.methods.gptq_rounding import gptq
from edgewise.quantize.methods.output_scales import scale_outputs
from edgewise.quantize.methods.ranges import OBSERVERS, with_ranges
from edgewise.quantize.methods.smoothing import smooth
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.schemes import Scheme

Batches = Sequence[Sequence[Any]]
Fresh = Callable[[], TableQuantizer]


@dataclass(frozen=True)
class Method:
    """A step of quantization beside rounding. Of the first four functions at most one is given.

    configure: another configuration. before: changes the graph before it has observers.
    choose: changes what the quantizer leaves alone. after: changes the calibrated graph.
    in_floats: whether it is for processors that compute in floating point, too.
    """

    name: str
    summary: str
    configure: Callable[[QuantizationConfig], QuantizationConfig] | None = None
    before: Callable[[GraphModule, Batches, Fresh], bool] | None = None
    choose: Callable[[GraphModule, TableQuantizer, Fresh], bool] | None = None
    after: Callable[[GraphModule, Batches], bool] | None = None
    in_floats: bool = False
    groups: Callable[[GraphModule, Batches, int], bool] | None = None
    """For weights in groups of a size: changes the graph before they are rounded."""
    rounds_groups: bool = False
    """Whether it rounds weights in groups, too."""


def _ranges(name: str, summary: str) -> Method:
    return Method(name, summary, configure=lambda config: with_ranges(config, name))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _ranges("minmax", "ranges of activations: all that calibration shows"),
        _ranges("mse", "ranges of least squared error (as without a method)"),
        _ranges("percentile", "ranges without the rarest values"),
        _ranges("entropy", "ranges of least divergence"),
        Method(
            "equalize",
            "weights of neighbouring layers get channels of one size",
            before=lambda model, batches, fresh: equalize(model),
        ),
        Method(
            "smooth",
            "outliers behind normalizations migrate into weights (SmoothQuant)",
            before=lambda model, batches, fresh: smooth(
                model, batches, products=fresh().computes_floats
            ),
        ),
        Method(
            "scale-outputs",
            "a scale for each channel of what floating point reads",
            before=lambda model, batches, fresh: scale_outputs(model, batches, fresh),
            in_floats=True,
        ),
        Method(
            "float-sums",
            "sums that only floating point reads are computed in it",
            choose=keep_sums_float,
            in_floats=True,
        ),
        Method("adaround", "weights rounded up or down for the least error", after=adaround),
        Method(
            "awq",
            "for 4 bits: channels with large activations get finer steps (AWQ)",
            groups=lambda model, batches, size: awq(model, batches, size),
        ),
        Method(
            "gptq",
            "weights rounded in turn, each making up for those before",
            after=gptq,
            rounds_groups=True,
        ),
        Method(
            "bias-correction",
            "biases without what rounded weights add to the mean",
            after=correct_biases,
        ),
    )
}

_ALWAYS = ("smooth",)
_WITH_FLOATS = ("smooth", "scale-outputs", "float-sums")


def default_methods(scheme: Scheme, quantizer: type[TableQuantizer]) -> tuple[str, ...]:
    """What a scheme does unless told otherwise: what costs nothing when the program runs."""
    if not scheme.needs_calibration:
        return ()
    return _WITH_FLOATS if quantizer.computes_floats else _ALWAYS


def methods_of(
    names: Sequence[str] | None, scheme: Scheme, quantizer: type[TableQuantizer]
) -> list[Method]:
    """In the order in which they are applied. ValueError for what does not exist or does not fit
    the scheme or the backend."""
    if names is None:
        names = default_methods(scheme, quantizer)
    if isinstance(names, str):
        raise TypeError(f"[quantize] methods must be a list; got {names!r}; try [{names!r}]")
    for name in names:
        if name not in METHODS:
            near = get_close_matches(str(name), METHODS, n=2, cutoff=0.5)
            hint = " or ".join(map(repr, near)) or "methods=None"
            raise ValueError(
                f"[quantize] methods must be of {', '.join(METHODS)}; got {name!r}; try {hint}"
            )
        if METHODS[name].in_floats and not quantizer.computes_floats:
            raise ValueError(
                f"[quantize] {name} is for backends that compute in floating point, too; got "
                f"{quantizer.__name__}; try without it"
            )
    if scheme.group_size is not None:
        fitting = [n for n, m in METHODS.items() if m.groups is not None or m.rounds_groups]
    elif scheme.needs_calibration:
        fitting = [n for n, m in METHODS.items() if m.groups is None]
    else:
        fitting = []
    odd = [name for name in names if name not in fitting]
    if odd:
        hint = f"{' or '.join(fitting)}" if fitting else "quantize='int8'"
        raise ValueError(
            f"[quantize] methods must fit the scheme; got {', '.join(odd)} for {scheme.name}; "
            f"try {hint}"
        )
    ranges = [name for name in names if name in OBSERVERS]
    if len(ranges) > 1:
        raise ValueError(f"[quantize] methods must name one kind of ranges; got {ranges}")
    if "adaround" in names and "gptq" in names:
        raise ValueError("[quantize] adaround and gptq both round the weights; got both; try one")
    return [method for name, method in METHODS.items() if name in names]


__all__ = ["METHODS", "Method", "default_methods", "methods_of"]
