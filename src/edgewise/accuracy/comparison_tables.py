"""A comparison as tables: for text, for notebooks, for the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from edgewise.accuracy.figures import Earlier, Layer, Line, Output
from edgewise.accuracy.tables import location, short_db, short_share

Table = tuple[str, list[str], list[tuple[str, ...]]]
"""Title, headings (as `edgewise.cli.tables.table` takes them), rows."""

_DRAWN = 5


def tables(
    outputs: Sequence[Output],
    worst: Sequence[Layer],
    count: int,
    lines: Sequence[Line],
    before: Earlier | None,
) -> list[Table]:
    """Outputs; layers that add most noise, of so many; their values; lines of several layers."""
    heads = [*([f">{before.label} dB"] if before else []), ">SQNR dB", ">cosine", ">largest error"]
    old = before.outputs if before else None
    made: list[Table] = [("", ["output", *heads], [(o.name, *_row(o, old)) for o in outputs])]
    if not worst:
        return made
    old = before.layers if before else None
    rows = [
        (
            short_share(one.added_noise),
            *_row(one, old),
            one.operator,
            one.module or "-",
            os.path.basename(location(one.source)),
        )
        for one in worst
    ]
    columns = [">adds", *heads, "operator", "module", "source"]
    title = f"layers that add most noise ({len(worst)} of {count}; all: to_json, to_svg)"
    made.append((title, columns, rows))
    rows = [
        (
            f"{one.histogram.low:.3g}",
            one.histogram.bars(),
            f"{one.histogram.high:.3g}",
            f"{one.peak:.1f}",
            one.operator,
            one.module or "-",
        )
        for one in worst[:_DRAWN]
        if one.histogram is not None
    ]
    if rows:
        columns = [">lowest", "!values", "highest", ">largest / RMS", "operator", "module"]
        made.append(("how the values of the worst are distributed", columns, rows))
    if any(line.layers > 1 for line in lines):
        columns = [">of the noise added", ">layers", "operators", "source"]
        rows = [
            (
                f"{line.share:.0%}",
                str(line.layers),
                "; ".join(line.operators),
                location(line.source),
            )
            for line in lines
        ]
        made.append(("by source line", columns, rows))
    return made


def _row(one: Output | Layer, old: Mapping[str, float] | None) -> tuple[str, ...]:
    """The figures; first those of the program before, if there is one."""
    was = () if old is None else (short_db(old[one.name]) if one.name in old else "-",)
    return (*was, short_db(one.sqnr_db), f"{one.cosine:.6f}", f"{one.max_error:.3g}")
