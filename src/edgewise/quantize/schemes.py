"""The ways to quantize that have a name: `edgewise.compile(..., quantize="int8")`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches


@dataclass(frozen=True)
class Scheme:
    """weights, activations: bits; None for float. group_size: weights that share a scale
    along the input channels; None for one scale a channel."""

    name: str
    summary: str
    weights: int = 8
    activations: int | None = 8
    is_dynamic: bool = False
    group_size: int | None = None

    @property
    def needs_calibration(self) -> bool:
        """Whether ranges of activations are found before the model runs."""
        return self.activations is not None and not self.is_dynamic

    @property
    def uses_pt2e(self) -> bool:
        """Whether torchao's PT2E flow makes it; else its `quantize_`."""
        return self.group_size is None and self.weights == 8


AUTO = "auto"
"""Instead of a scheme: one is chosen by trials."""

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("int8", "weights and activations in 8 bits; needs calibration data"),
        Scheme("int8-dynamic", "8-bit weights; activations quantized at run time", is_dynamic=True),
        Scheme("int8-weight", "8-bit weights, computing in float", activations=None),
        Scheme(
            "int4-dynamic",
            "4-bit weights of linear layers, in groups; activations in 8 bits at run time; "
            "embeddings in 8 bits",
            weights=4,
            is_dynamic=True,
            group_size=32,
        ),
        Scheme(
            "int4-weight",
            "4-bit weights of linear layers, in groups, computing in float; embeddings in 8 bits",
            weights=4,
            activations=None,
            group_size=32,
        ),
    )
}

NAMES_ELSEWHERE = {
    "8da4w": "int4-dynamic",
    "8da8w": "int8-dynamic",
    "4w": "int4-weight",
    "8w": "int8-weight",
    "w4a8": "int4-dynamic",
    "w4a16": "int4-weight",
    "w8a8": "int8",
    "w8a16": "int8-weight",
}
"""What torchao, ExecuTorch and vLLM call them: what to use instead."""


def scheme_of(scheme: str | Scheme, group_size: int | None = None) -> Scheme:
    """ValueError if there is no scheme of that name, or it has no groups; TypeError if it is
    neither a name nor a scheme."""
    if isinstance(scheme, str):
        if scheme not in SCHEMES:
            name = scheme.lower().replace("_", "-")
            same = NAMES_ELSEWHERE.get(name)
            near = [same] if same else get_close_matches(name, SCHEMES, n=2, cutoff=0.5)
            hint = f"; try {' or '.join(map(repr, near))}" if near else ""
            raise ValueError(
                f"[quantize] a scheme must be one of {', '.join(SCHEMES)}; got {scheme!r}{hint}"
            )
        scheme = SCHEMES[scheme]
    elif not isinstance(scheme, Scheme):
        raise TypeError(
            f"[quantize] a scheme must be a name, one of {', '.join(SCHEMES)}; got {scheme!r}; "
            f"try quantize='int8'"
        )
    if group_size is None:
        return scheme
    if scheme.group_size is None:
        raise ValueError(
            f"[quantize] group_size is for schemes with groups; got {group_size} for "
            f"{scheme.name}; try one of "
            f"{', '.join(s.name for s in SCHEMES.values() if s.group_size)}"
        )
    if not isinstance(group_size, int):
        raise TypeError(f"[quantize] group_size must be an int; got {group_size!r}; try 32")
    if group_size < 32 or group_size % 32:
        raise ValueError(f"[quantize] group_size must be a multiple of 32; got {group_size}")
    return replace(scheme, group_size=group_size)
