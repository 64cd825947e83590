"""`edgewise llm`, also `python -m edgewise.llm`: language models as files, and text from them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from edgewise.cli.errors import USAGE, CliError
from edgewise.cli.llm_run import chat, run, serve, transcribe
from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    pass


def complete_config() -> list[str]:
    """For shells."""
    from edgewise.llm.config import PRESETS

    return list(PRESETS)


@app.command(help="A language model becomes a .pte file that generates.")
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
            metavar="DIR",
            help="Weights, configuration and tokenizer: config.json, *.safetensors (quantized "
            "ones, too); or a GGUF file.",
        ),
    ] = None,
    quantize: Annotated[
        Literal["8da4w", "8da8w", "4w", "8w", "none"],
        typer.Option(
            help="Linear layers: bits of weights (w), and of activations that are quantized at "
            "run time (da)."
        ),
    ] = "8da4w",
    group_size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Weights that share a scale, for 8da4w. Default: 32."),
    ] = None,
    head: Annotated[
        Literal["8da4w", "8da8w", "4w", "8w", "none"] | None,
        typer.Option(help="The layer that makes logits. Default: as --quantize."),
    ] = None,
    embedding_bits: Annotated[
        int | None, typer.Option(metavar="N", help="8, 4, 2, or 32 for float32. Default: 8.")
    ] = None,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Not quantized, nor what is in it; repeatable."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="gptq: 4-bit weights rounded in turn; by --calibration."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A text such as the model will see, for --method."),
    ] = None,
    max_context_len: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens of a prompt and what follows it. Default: 1024."),
    ] = None,
    max_seq_len: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most tokens of a prompt computed at once. Default: 128."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Texts at a time.")] = 1,
    all_logits: Annotated[
        bool,
        typer.Option("--all-logits", help="Logits after each token: for --draft, --prompt-lookup."),
    ] = False,
    kv_cache_dtype: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Of keys and values. float16: half the memory, on this runtime."),
    ] = "float32",
    int8_cache: Annotated[
        bool, typer.Option("--int8-cache", hidden=True, help="--kv-cache-dtype int8.")
    ] = False,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Prompts' beginnings can be kept in files.")
    ] = False,
    images: Annotated[
        bool, typer.Option("--images", help="The part that sees, too, of a model that has one.")
    ] = False,
    image_size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N",
            help="Side in pixels, or HEIGHTxWIDTH, where images can have any. Several: a picture "
            "gets the one nearest in shape. Default: 448.",
        ),
    ] = None,
    image_tiles: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=36,
            metavar="N",
            help="Most tiles that large images are cut into, beside the whole. Default: none.",
        ),
    ] = None,
    audio: Annotated[
        bool, typer.Option("--audio", help="The part that hears, too, of a model that has one.")
    ] = False,
    audio_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="The longest sound, where sounds can have any length; of a Parakeet the longest "
            "piece. Default: 30.",
        ),
    ] = None,
    vision: Annotated[
        Literal["8da4w", "8da8w", "8w", "none"] | None,
        typer.Option(
            "--encoders",
            "--vision",
            help="Linear layers of what sees or hears. Default: 8da8w, or none with the others.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of random weights.")] = 0,
    report: Annotated[bool, typer.Option("--report", help="Print what runs where.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A causal model of `transformers`, quantized, with its cache, in one file; beside it a folder
    with its tokenizer."""
    out = Output(json=json, quiet=quiet)
    if (config is None) == (checkpoint is None):
        given = "neither" if config is None else "both"
        raise CliError(f"[export] must be given --config or --checkpoint; got {given}", USAGE)
    if quantize != "8da4w" and head != "8da4w" and group_size is not None:
        raise CliError("[export] --group-size is for --quantize 8da4w")
    media = [kind for kind, is_asked in (("images", images), ("audio", audio)) if is_asked]
    if media and checkpoint is None:
        raise CliError(f"[export] --{media[0]} must come with --checkpoint")
    if not images and (image_size or image_tiles is not None):
        raise CliError("[export] --image-size and --image-tiles are for --images")
    if not media and vision is not None:
        raise CliError("[export] --encoders is for --images and --audio")
    image_sizes = [_image_size(text) for text in image_size or ()]
    if (method is None) != (calibration is None) or (method and checkpoint is None):
        raise CliError("[export] --method must come with --calibration and --checkpoint")
    if not output.parent.is_dir():
        raise CliError(f"[--output] no such folder: {output.parent}; try mkdir -p {output.parent}")
    if int8_cache:
        out.note("--int8-cache is now --kv-cache-dtype int8")
        kv_cache_dtype = "int8"
    start = time.perf_counter()
    _prepare()
    from edgewise.llm import export as making
    from edgewise.llm.architectures import HEARING, SEEING, SPEECH, architecture_of
    from edgewise.llm.export.audio_processor import read_audio_processor
    from edgewise.llm.export.audio_tower import audio_tower
    from edgewise.llm.export.image_processor import read_processor
    from edgewise.llm.export.parakeet import PARAKEETS
    from edgewise.llm.export.quantization import Recipe, quantize_encoder
    from edgewise.llm.export.vision import vision_encoder

    with out.progress("making the model" if config else f"loading {checkpoint}"):
        model = _model(config, checkpoint, seed, media)
    parameters = sum(p.numel() for p in model.parameters())
    model_type = model.config.model_type
    tables = {"images": SEEING, "audio": HEARING}
    is_tested = all(model_type in tables[kind] for kind in media)
    is_known = model_type in SPEECH or architecture_of(model_type) is not None
    is_tested = is_tested and (bool(media) or is_known)
    has_context = model_type not in PARAKEETS
    if has_context and not audio and audio_seconds is not None:
        raise CliError("[export] --audio-seconds is for --audio, and for Parakeets")
    for option, value in (("context", max_context_len), ("seq", max_seq_len)):
        if not has_context and value is not None:
            raise CliError(
                f"[export] a {SPEECH[model_type]} has no context; got --max-{option}-len"
            )
    has_words = model_type != "parakeet_ctc"
    if not has_words and embedding_bits is not None:
        raise CliError("[export] a Parakeet CTC has no embeddings; got --embedding-bits")
    max_context_len = 1024 if max_context_len is None else max_context_len
    max_seq_len = 128 if max_seq_len is None else max_seq_len
    encoder, image_prompt = None, None
    if images and checkpoint is not None:
        with out.progress("comparing what it sees with transformers"):
            inputs, image_prompt = read_processor(checkpoint, image_sizes, image_tiles)
            encoder = vision_encoder(model, inputs[0], inputs[1:])
    tower, audio_prompt = None, None
    if audio and checkpoint is not None:
        with out.progress("comparing what it hears with transformers"):
            heard, audio_prompt = read_audio_processor(checkpoint, audio_seconds)
            tower = audio_tower(model, heard)
    if media:
        model = making.text_part(model)
    shape = model.config if has_context else model.config.encoder_config
    layers = getattr(shape, "decoder_layers", shape.num_hidden_layers)
    weights = str(checkpoint) if checkpoint else f"random, seed {seed}"
    most = getattr(model.config, "max_position_embeddings", None) or max_context_len
    if max_context_len > most:
        out.note(f"context: {most}, which is as far as the model's positions reach")
        max_context_len = most
    is_float = quantize == "none" and head in (None, "none") and embedding_bits is None
    recipe = Recipe(quantize, group_size or 32, head, embedding_bits or 8, keep_float or ())
    if not is_float:
        with out.progress("quantizing"):
            texts = making.texts_of(calibration, checkpoint) if calibration and checkpoint else ()
            model = making.quantize_model(model, recipe, methods=method or (), calibration=texts)
    encoders = vision or ("none" if quantize == "none" else "8da8w")
    if encoder is not None:
        encoder = quantize_encoder(encoder, encoders, group_size or 32)
    if tower is not None:
        tower = quantize_encoder(tower, encoders, group_size or 32)
    with out.progress("lowering"):
        program = making.lower_model(
            model,
            max_context_len=max_context_len,
            max_seq_len=max_seq_len,
            batch=batch,
            all_logits=all_logits,
            kv_cache_dtype=kv_cache_dtype,
            prefix=prefix,
            images=encoder,
            audio=tower,
            audio_seconds=None if has_context else audio_seconds,
        )
    delegation = program.delegation_report()
    program.save(output)
    tokenizer = None
    if checkpoint is not None:
        tokenizer = making.copy_tokenizer(checkpoint, output, image_prompt, audio_prompt)
    told = {
        "file": str(output),
        "bytes": output.stat().st_size,
        "seconds": time.perf_counter() - start,
        "model_type": model_type,
        "is_tested": is_tested,
        "parameters": parameters,
        "layers": layers,
        "weights": weights,
        "quantize": None if quantize == "none" else quantize,
        "group_size": group_size or 32 if quantize == "8da4w" else None,
        "head": None if is_float else head or quantize,
        "embedding_bits": None if is_float or not has_words else recipe.embedding,
        "methods": method or [],
        "images": None
        if image_prompt is None or encoder is None
        else {
            "sizes": [
                {"height": one.size[0], "width": one.size[1], "tokens": one.count}
                for one in (encoder.inputs, *encoder.others)
            ],
            "tiles": image_tiles,
            "linear": encoders,
        },
        "audio": None
        if audio_prompt is None
        else {
            "seconds": audio_prompt.seconds,
            "tokens": audio_prompt.tokens.most,
            "windows": audio_prompt.has_windows,
            "linear": encoders,
        },
        "left_out": []
        if checkpoint is None
        else [k for k in _media_in(checkpoint) if k not in media],
        "kv_cache_dtype": kv_cache_dtype if has_context else None,
        "max_context_len": max_context_len if has_context else None,
        "max_seq_len": min(
            max(
                max_seq_len,
                0 if encoder is None else encoder.count,
                0 if tower is None else tower.inputs.count,
            ),
            max_context_len,
        )
        if has_context
        else None,
        "delegates": len(delegation.delegates),
        "delegated_macs": delegation.share("macs"),
        "tokenizer": None if tokenizer is None else str(tokenizer),
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


def _model(config: str | None, checkpoint: Path | None, seed: int, media: list[str]) -> Any:
    from edgewise.llm.config import read_config
    from edgewise.llm.export import load_model, random_model

    if config is not None:
        return random_model(read_config(config), seed)
    assert checkpoint is not None
    return load_model(checkpoint, media=media)


def _image_size(text: str) -> tuple[int, int]:
    """Height and width."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 16 <= int(side) <= 8192 for side in sides):
        raise CliError(
            f"[--image-size] must be pixels, from 16 to 8192, or HEIGHTxWIDTH; got {text!r}; try "
            f"448, or 336x616",
            USAGE,
        )
    return int(sides[0]), int(sides[-1])


def _media_in(checkpoint: Path) -> list[str]:
    """What a model of its configuration may take beside texts."""
    from edgewise.llm.config import read_config

    config = read_config(str(checkpoint)) if checkpoint.is_dir() else {}
    parts = {"images": "vision_config", "audio": "audio_config"}
    return [kind for kind, part in parts.items() if config.get(part) is not None]


def _lines(told: dict[str, Any]) -> list[str]:
    nothing = ": what it generates means nothing" if told["weights"].startswith("random") else ""
    lines = [
        f"model:   {told['parameters']:,} parameters, {told['layers']} layers",
        f"weights: {told['weights']}{nothing}",
    ]
    if told["head"]:
        groups = f", groups of {told['group_size']}" if told["group_size"] else ""
        head = "" if told["head"] == (told["quantize"] or "none") else f"; head {told['head']}"
        bits = told["embedding_bits"]
        words = "" if bits is None else f"; embeddings in {bits} bits"
        lines.append(f"         in {told['quantize'] or 'float32'}{groups}{head}{words}")
    if images := told["images"]:
        sizes = " or ".join(
            f"{one['width']} x {one['height']} pixels, {one['tokens']} tokens each"
            for one in images["sizes"]
        )
        kind = "float32" if images["linear"] == "none" else images["linear"]
        tiles = f", up to {images['tiles']} tiles and the whole" if images["tiles"] else ""
        lines.append(f"images:  {sizes}{tiles}; in {kind}")
    if audio := told["audio"]:
        kind = "float32" if audio["linear"] == "none" else audio["linear"]
        longer = ", and so on for longer ones" if audio["windows"] else ""
        lines.append(
            f"audio:   up to {audio['seconds']:g} s, {audio['tokens']} tokens{longer}; in {kind}"
        )
    for kind, verb in (("images", "see"), ("audio", "hear")):
        if kind in told["left_out"]:
            them = "them" if kind == "images" else "it"
            lines.append(f"{kind + ':':<9}left out; the model can {verb} {them} with --{kind}")
    if not told["is_tested"]:
        lines.append(
            f"note:    {told['model_type']} is not among the tested architectures (docs/llm.md): "
            f"compare with eager PyTorch"
        )
    if told["tokenizer"]:
        lines.append(f"tokenizer: {told['tokenizer']}")
    size = told["bytes"] / 1e6
    line = f"file:    {told['file']}, {size:.1f} MB"
    if told["max_context_len"] is not None:
        cache = "" if told["kv_cache_dtype"] == "float32" else f" in {told['kv_cache_dtype']}"
        line += f", context {told['max_context_len']}{cache}"
    lines.append(line)
    return lines


app.command(help="Continues a prompt, and tells how fast that was.")(run)
app.command(help="A conversation, by the model's own chat template.")(chat)
app.command(help="Text of speech, by a Whisper or a Parakeet.")(transcribe)
app.command(help="Answers clients of OpenAI's interface over HTTP.")(serve)
