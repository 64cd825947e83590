"""`edgewise llm`, also `python -m edgewise.llm`: language models as files, and text from them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from edgewise.cli.errors import INTERRUPTED, OK, USAGE, CliError
from edgewise.cli.options import Json, PteFile, Quiet, Threads
from edgewise.cli.output import Output
from edgewise.cli.terminal import shown

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    pass


def complete_config() -> list[str]:
    """For shells."""
    from edgewise.llm.config import PRESETS

    return list(PRESETS)


@app.command(help="A Llama becomes a .pte file that generates.")
def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file.")],
    config: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Random weights of this configuration: tiny, 300m or a config.json.",
            autocompletion=complete_config,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Weights and configuration: config.json, model.safetensors."
        ),
    ] = None,
    quantize: Annotated[
        Literal["8da4w", "none"],
        typer.Option(help="8da4w: 4-bit weights, activations and embeddings in 8 bits."),
    ] = "8da4w",
    group_size: Annotated[
        int | None, typer.Option(metavar="N", help="Weights that share a scale. Default: 32.")
    ] = None,
    max_context_len: Annotated[
        int, typer.Option(metavar="N", help="Tokens of a prompt and what follows it.")
    ] = 1024,
    max_seq_len: Annotated[
        int, typer.Option(metavar="N", help="Most tokens of a prompt computed at once.")
    ] = 128,
    seed: Annotated[int, typer.Option(metavar="N", help="Of random weights.")] = 0,
    report: Annotated[bool, typer.Option("--report", help="Print what runs where.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A Llama of `transformers`, quantized, with its cache, in one file."""
    out = Output(json=json, quiet=quiet)
    if (config is None) == (checkpoint is None):
        given = "neither" if config is None else "both"
        raise CliError(f"[export] must be given --config or --checkpoint; got {given}", USAGE)
    if quantize == "none" and group_size is not None:
        raise CliError("[export] --group-size is for --quantize 8da4w")
    if not output.parent.is_dir():
        raise CliError(f"[--output] no such folder: {output.parent}; try mkdir -p {output.parent}")
    start = time.perf_counter()
    _prepare()
    from edgewise.llm import export as making

    with out.progress("making the model" if config else f"loading {checkpoint}"):
        model = _model(config, checkpoint, seed)
    parameters = sum(p.numel() for p in model.parameters())
    layers = model.config.num_hidden_layers
    weights = str(checkpoint) if checkpoint else f"random, seed {seed}"
    if max_context_len > model.config.max_position_embeddings:
        most = model.config.max_position_embeddings
        out.note(f"context: {most}, which is as far as the model's positions reach")
        max_context_len = most
    if quantize != "none":
        with out.progress("quantizing"):
            model = making.quantize_llama(model, group_size or 32)
    with out.progress("lowering"):
        program = making.lower_llama(
            model, max_context_len=max_context_len, max_seq_len=max_seq_len
        )
    delegation = program.delegation_report()
    program.save(output)
    told = {
        "file": str(output),
        "bytes": output.stat().st_size,
        "seconds": time.perf_counter() - start,
        "parameters": parameters,
        "layers": layers,
        "weights": weights,
        "quantize": None if quantize == "none" else quantize,
        "group_size": None if quantize == "none" else group_size or 32,
        "max_context_len": max_context_len,
        "max_seq_len": min(max_seq_len, max_context_len),
        "delegates": len(delegation.delegates),
        "delegated_macs": delegation.share("macs"),
    }

    def show(console: Console) -> None:
        if report:
            console.print(str(delegation), markup=False, soft_wrap=True)
        for line in _lines(told):
            console.print(line, markup=False, soft_wrap=True)

    out.result(told, show)


def _prepare() -> None:
    """Imports transformers, and has it print nothing."""
    from edgewise.cli.compiling import hush

    hush()
    try:
        import transformers
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "[export] needs transformers and torch; try pip install 'edgewise[export,models]'"
        ) from None
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _model(config: str | None, checkpoint: Path | None, seed: int) -> Any:
    from edgewise.llm.config import read_config
    from edgewise.llm.export import load_llama, random_llama

    if config is not None:
        return random_llama(read_config(config), seed)
    assert checkpoint is not None
    return load_llama(checkpoint)


def _lines(told: dict[str, Any]) -> list[str]:
    nothing = ": what it generates means nothing" if told["weights"].startswith("random") else ""
    lines = [
        f"model:   {told['parameters']:,} parameters, {told['layers']} layers",
        f"weights: {told['weights']}{nothing}",
    ]
    if told["quantize"]:
        lines.append(f"         in 4 bits, groups of {told['group_size']}; embeddings in 8 bits")
    size = told["bytes"] / 1e6
    lines.append(f"file:    {told['file']}, {size:.1f} MB, context {told['max_context_len']}")
    return lines


@app.command(help="Continues a prompt, and tells how fast that was.")
def run(
    model: PteFile,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="- for standard input.")
    ] = None,
    prompt_tokens: Annotated[
        str | None, typer.Option(metavar="'N N ...'", help="Without a tokenizer.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="tokenizer.json, its folder, or a sentencepiece .model."),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Default: what the context holds."),
    ] = None,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0: the most likely token, always.")
    ] = 0.0,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Only the K most likely tokens.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Only those of this probability.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="The same tokens every time.")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before it; repeatable.")
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on where the text ends.")
    ] = False,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Text to standard output as it comes, figures to standard error."""
    from edgewise.llm.running import Continuation
    from edgewise.llm.sampling import Sampling

    out = Output(json=json, quiet=quiet)
    if (prompt is None) == (prompt_tokens is None):
        given = "neither" if prompt is None else "both"
        raise CliError(f"[run] must be given --prompt or --prompt-tokens; got {given}", USAGE)
    unused = {"--top-k": top_k, "--top-p": top_p, "--seed": seed}
    if temperature == 0 and any(value is not None for value in unused.values()):
        names = ", ".join(name for name, value in unused.items() if value is not None)
        raise CliError(
            f"[run] {names} must come with a --temperature above 0, such as 0.8; without, the "
            f"most likely token is taken"
        )
    continuation = Continuation(
        model,
        _tokens(prompt_tokens) if prompt_tokens is not None else _text(prompt),
        tokenizer,
        sampling=Sampling(temperature, top_k, top_p, seed),
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        ignore_eos=ignore_eos,
        threads=threads,
    )
    code, written = OK, []
    try:
        for piece in continuation.pieces():
            written.append(piece)
            if not json:
                print(shown(piece), end="", flush=True)
    except KeyboardInterrupt:
        code = INTERRUPTED
    told = {
        "file": str(model),
        "text": "".join(written) if prompt is not None else None,
        "tokens": continuation.tokens,
        **continuation.figures(),
    }
    out.result(told, lambda console: print(flush=True))
    out.note(continuation.told())
    raise typer.Exit(code)


def _text(prompt: str | None) -> str:
    return sys.stdin.read() if prompt == "-" else prompt or ""


def _tokens(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise CliError(
            f"[--prompt-tokens] must be numbers with spaces between; got {text!r}; "
            f"try --prompt-tokens '5 6 7'"
        ) from None
