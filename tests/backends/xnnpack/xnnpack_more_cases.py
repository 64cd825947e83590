"""More cases of the operator table: those of each family of operators, together."""

from __future__ import annotations

from typing import Any

import xnnpack_activation_cases
import xnnpack_choice_cases
import xnnpack_reduction_cases
import xnnpack_window_cases

_FAMILIES: tuple[Any, ...] = (
    xnnpack_activation_cases,
    xnnpack_choice_cases,
    xnnpack_reduction_cases,
    xnnpack_window_cases,
)

ACCEPTED = {row: cases for family in _FAMILIES for row, cases in family.ACCEPTED.items()}
REFUSED = {row: cases for family in _FAMILIES for row, cases in family.REFUSED.items()}
ASKED = {name: case for family in _FAMILIES for name, case in family.ASKED.items()}

SYMBOLIC = "see test_xnnpack_static_rules"

# Rules that no program of static shapes reaches, with the reason.
UNREACHED = {
    **{
        (row, "the reduced sizes are static"): SYMBOLIC
        for row in (
            *("sum", "amax", "amin", "max_dim", "min_dim", "var", "std", "var_mean", "std_mean"),
            *("linalg_vector_norm", "logsumexp", "log_softmax"),
        )
    },
    **{
        (row, "a static number of channels"): "channels are as many as there are weights"
        for row in ("group_norm", "native_group_norm", "instance_norm")
    },
    **{
        (row, "a batch of sequences of static length, at most 1024"): SYMBOLIC
        for row in ("lstm", "gru")
    },
    ("gru", "no projection"): "only an LSTM has projections",
    ("avg_pool2d", "ceil_mode=False, or static sizes"): SYMBOLIC,
    ("avg_pool3d", "static sizes"): SYMBOLIC,
    ("max_pool2d", "ceil_mode=False, or static sizes"): SYMBOLIC,
    ("max_pool3d", "static sizes"): SYMBOLIC,
    ("max_pool3d_with_indices", "static sizes"): SYMBOLIC,
    ("max_pool2d_with_indices", "ceil_mode=False, or static sizes"): SYMBOLIC,
    ("upsample_bilinear2d", "static sizes"): SYMBOLIC,
    ("upsample_linear1d", "static sizes"): SYMBOLIC,
    ("upsample_trilinear3d", "static sizes"): SYMBOLIC,
    ("upsample_nearest", "static sizes"): SYMBOLIC,
    ("roll", "static sizes and shifts"): SYMBOLIC,
    ("slice_scatter", "a static range of a static size"): SYMBOLIC,
    ("select_scatter", "the size along dim is static"): SYMBOLIC,
    ("select_scatter", "at most one symbolic size"): SYMBOLIC,
    ("clamp_tensor", "operands of one data type"): "other types are refused before",
    ("where", "constant condition"): "a computed one is boolean, which is refused before",
}
