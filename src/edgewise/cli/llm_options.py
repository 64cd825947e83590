"""Options that the commands of `edgewise llm` which generate have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.errors import CliError

if TYPE_CHECKING:
    from edgewise.llm.sampling import Sampling

TokenizerFile = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        metavar="FILE",
        help="tokenizer.json, its folder, or a sentencepiece .model. Default: the folder that "
        "export put beside the model.",
    ),
]
MaxNewTokens = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Default: what the context holds.")
]
Temperature = Annotated[float, typer.Option(metavar="T", help="0: the most likely token, always.")]
TopK = Annotated[int | None, typer.Option(metavar="K", help="Only the K most likely tokens.")]
TopP = Annotated[float | None, typer.Option(metavar="P", help="Only those of this probability.")]
MinP = Annotated[
    float | None,
    typer.Option(metavar="P", help="Only tokens of this share of the likeliest's probability."),
]
RepetitionPenalty = Annotated[
    float, typer.Option(metavar="X", help="Above 1: against what the text already has.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="The same tokens every time.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before it; repeatable.")]
Schema = Annotated[
    Path | None,
    typer.Option("--json-schema", metavar="FILE", help="The text is JSON of this schema."),
]
Draft = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A small model for speculative decoding; the text is the same, and sooner there.",
    ),
]
Lookup = Annotated[
    bool, typer.Option("--prompt-lookup", help="Guess what followed the last few tokens before.")
]
Shift = Annotated[
    int | None,
    typer.Option(
        "--context-shift",
        min=0,
        metavar="N",
        help="Where the context is full, leave out its older half but the first N tokens.",
    ),
]


def sampling_of(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float,
    seed: int | None,
) -> Sampling:
    """CliError for options that a temperature of 0 does not use."""
    from edgewise.llm.sampling import Sampling

    unused = {"--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    if temperature == 0 and any(value is not None for value in unused.values()):
        names = ", ".join(name for name, value in unused.items() if value is not None)
        raise CliError(
            f"[run] {names} must come with a --temperature above 0, such as 0.8; without, the "
            f"most likely token is taken"
        )
    return Sampling(temperature, top_k, top_p, seed, min_p, repetition_penalty)


def tokenizer_of(model: Path, tokenizer: Path | None) -> Path | None:
    """What was given, or the folder beside the model."""
    from edgewise.llm.chat import tokenizer_folder

    return tokenizer if tokenizer is not None else tokenizer_folder(model)


def draft_of(draft: Path | None, lookup: bool, threads: int | None) -> dict[str, Any]:
    """The argument for `Generator.generate`. CliError for both kinds."""
    from edgewise.llm.generator import Generator
    from edgewise.llm.speculation import DraftModel, PromptLookup

    if draft is not None and lookup:
        raise CliError("[run] must be given --draft or --prompt-lookup; got both")
    if draft is not None:
        return {"draft": DraftModel(Generator(draft, threads=threads))}
    return {"draft": PromptLookup()} if lookup else {}
