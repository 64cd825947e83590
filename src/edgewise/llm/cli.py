"""`python -m edgewise.llm export` and `run`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 after an error that was told, 130 after an interruption."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m edgewise.llm", description="Language models: make a file, generate with it."
    )
    commands = parser.add_subparsers(required=True, metavar="export|run")
    _add_export(commands)
    _add_run(commands)
    return parser


def _add_export(commands: Any) -> None:
    from edgewise.llm.config import PRESETS

    export = commands.add_parser(
        "export", help="a Llama as a .pte file", description="Writes a Llama as a .pte file."
    )
    model = export.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "--config",
        metavar="NAME",
        help=f"random weights, of this configuration: {', '.join(PRESETS)}, or a config.json",
    )
    model.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="weights and configuration from this directory (config.json, model.safetensors)",
    )
    export.add_argument("--output", required=True, type=Path, metavar="FILE")
    export.add_argument(
        "--quantize",
        choices=("8da4w", "none"),
        default="8da4w",
        help="8da4w: 4-bit weights, activations in 8 bits, embeddings in 8 bits (default)",
    )
    export.add_argument(
        "--group-size", type=int, metavar="N", help="weights that share a scale (default 32)"
    )
    export.add_argument(
        "--max-context-len", type=int, default=1024, metavar="N", help="default %(default)s"
    )
    export.add_argument(
        "--max-seq-len",
        type=int,
        default=128,
        metavar="N",
        help="most tokens of a prompt that are computed at once (default %(default)s)",
    )
    export.add_argument("--seed", type=int, default=0, help="of random weights")
    export.add_argument("--report", action="store_true", help="print what runs where")
    export.set_defaults(command=_export)


def _export(options: Any) -> int:
    if options.quantize == "none" and options.group_size is not None:
        raise ValueError("[export] --group-size is for --quantize 8da4w")
    if not options.output.parent.is_dir():
        raise FileNotFoundError(f"[export] no such directory: {options.output.parent}")
    try:
        import transformers
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "[export] needs transformers and torch; try pip install edgewise[export,models]"
        ) from None
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # Of TF32 on other processors.
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    from edgewise.llm import export
    from edgewise.llm.config import read_config

    if options.checkpoint is not None:
        model = export.load_llama(options.checkpoint)
        weights = f"from {options.checkpoint}"
    else:
        model = export.random_llama(read_config(options.config), options.seed)
        weights = f"random, seed {options.seed}: what it generates means nothing"
    count = sum(p.numel() for p in model.parameters())
    print(f"model:   {count:,} parameters, {model.config.num_hidden_layers} layers")
    print(f"weights: {weights}")
    group_size = 32 if options.group_size is None else options.group_size
    if options.quantize != "none":
        model = export.quantize_llama(model, group_size)
        print(f"         in 4 bits, groups of {group_size}; embeddings in 8 bits")
    program = export.lower_llama(
        model, max_context_len=options.max_context_len, max_seq_len=options.max_seq_len
    )
    if options.report:
        print(program.delegation_report())
    program.save(options.output)
    size = options.output.stat().st_size
    print(f"file:    {options.output}, {size / 1e6:.1f} MB, context {options.max_context_len}")
    return 0


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run", help="generate", description="Continues a prompt, and tells how fast that was."
    )
    run.add_argument("model", help="a .pte file of `export`, or of ExecuTorch's")
    prompt = run.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="- for standard input")
    prompt.add_argument(
        "--prompt-tokens", type=int, nargs="+", metavar="N", help="without a tokenizer"
    )
    run.add_argument(
        "--tokenizer", metavar="FILE", help="tokenizer.json, or a sentencepiece .model"
    )
    run.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="default: what the context holds"
    )
    run.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default 0: most likely tokens"
    )
    run.add_argument("--top-k", type=int, metavar="K", help="only the K most likely tokens")
    run.add_argument("--top-p", type=float, metavar="P", help="only those of this probability")
    run.add_argument("--seed", type=int, help="the same tokens every time")
    run.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before it; repeatable"
    )
    run.add_argument("--ignore-eos", action="store_true", help="go on where the text ends")
    run.add_argument("--threads", type=int, metavar="N", help="default: one per core")
    run.set_defaults(command=_run)


def _run(options: Any) -> int:
    from edgewise.llm.running import run

    return run(options)
