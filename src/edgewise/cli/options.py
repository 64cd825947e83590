"""Options that commands have in common, as types for their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON value on standard output instead of text."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress bars, no remarks: the result and errors."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", "-t", min=1, max=1024, metavar="N", help="Default: one for each physical core."
    ),
]
MaxMemory = Annotated[
    int | None,
    typer.Option(
        "--max-memory",
        min=1,
        max=2**62,
        metavar="BYTES",
        help="Refuse a program that plans for more, and tensors that grow beyond it.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method", "-m", metavar="NAME", help="Default: forward, or a program's only method."
    ),
]
PteFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A .pte file, of edgewise or of ExecuTorch."),
]
DataFiles = Annotated[
    list[Path] | None,
    typer.Option("--data", metavar="FILE.ptd", help="Weights in files of their own; repeatable."),
]
