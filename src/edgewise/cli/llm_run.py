"""`edgewise llm run`, `chat` and `serve`: text from language models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from edgewise.cli.errors import INTERRUPTED, OK, USAGE, CliError
from edgewise.cli.llm_options import (
    Draft,
    Lookup,
    MaxNewTokens,
    MinP,
    RepetitionPenalty,
    Schema,
    Seed,
    Shift,
    Stop,
    Temperature,
    TokenizerFile,
    TopK,
    TopP,
    draft_of,
    sampling_of,
    tokenizer_of,
)
from edgewise.cli.options import Json, PteFile, Quiet, Threads
from edgewise.cli.output import Output
from edgewise.cli.terminal import shown

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def run(
    model: PteFile,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="- for standard input.")
    ] = None,
    prompt_tokens: Annotated[
        str | None, typer.Option(metavar="'N N ...'", help="Without a tokenizer.")
    ] = None,
    tokenizer: TokenizerFile = None,
    max_new_tokens: MaxNewTokens = None,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on where the text ends.")
    ] = False,
    json_schema: Schema = None,
    draft: Draft = None,
    prompt_lookup: Lookup = False,
    context_shift: Shift = None,
    prefix: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What the prompt begins with, computed before; made if not there."
        ),
    ] = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Text to standard output as it comes, figures to standard error."""
    from edgewise.llm.running import Continuation

    out = Output(json=json, quiet=quiet)
    if (prompt is None) == (prompt_tokens is None):
        given = "neither" if prompt is None else "both"
        raise CliError(f"[run] must be given --prompt or --prompt-tokens; got {given}", USAGE)
    sampling = sampling_of(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    found = tokenizer_of(model, tokenizer) if prompt is not None else tokenizer
    continuation = Continuation(
        model,
        _tokens(prompt_tokens) if prompt_tokens is not None else _text(prompt),
        found,
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        ignore_eos=ignore_eos,
        threads=threads,
        prefix=prefix,
        json_schema=None if json_schema is None else json_schema.read_text(encoding="utf-8"),
        context_shift=context_shift,
        **draft_of(draft, prompt_lookup, threads),
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
    out.note(continuation.summary())
    raise typer.Exit(code)


def chat(
    model: PteFile,
    message: Annotated[
        list[str] | None,
        typer.Option("--message", metavar="TEXT", help="Say this, and end; repeatable."),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="What the first message is about, for a model that sees; repeatable.",
        ),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A sound for the first message, for a model that hears; repeatable.",
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the conversation begins with.")
    ] = None,
    tokenizer: TokenizerFile = None,
    max_new_tokens: MaxNewTokens = None,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = 0.95,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    draft: Draft = None,
    prompt_lookup: Lookup = False,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A conversation: lines that are read from standard input, unless --message is given.

    A line '/image FILE' shows the model an image with the next one, '/audio FILE' plays it a sound.
    """
    from edgewise.llm.conversation import Conversation

    out = Output(json=json, quiet=quiet)
    if temperature == 0:
        top_p = None if top_p == 0.95 else top_p
    conversation = Conversation(
        model,
        tokenizer_of(model, tokenizer),
        system=system,
        sampling=sampling_of(temperature, top_k, top_p, min_p, repetition_penalty, seed),
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        threads=threads,
        **draft_of(draft, prompt_lookup, threads),
    )
    code = OK
    try:
        given = {"/image": [*(image or ())], "/audio": [*(audio or ())]}
        for line in message or _lines(out):
            command, _, rest = line.partition(" ")
            if message is None and command in given:
                file = Path(rest.strip())
                if file.is_file():
                    given[command].append(file)
                else:
                    out.note(f"no such file: {file}")
                continue
            images, sounds = given["/image"], given["/audio"]
            given = {"/image": [], "/audio": []}
            for piece in conversation.say(line, images, sounds):
                if not json:
                    print(shown(piece), end="", flush=True)
            if not json:
                print(flush=True)
            out.note(conversation.summary())
    except KeyboardInterrupt:
        code = INTERRUPTED
    told = {"file": str(model), "messages": [_plain(one) for one in conversation.messages]}
    out.result(told, lambda console: None)
    raise typer.Exit(code)


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """With the paths of images and sounds as text."""
    if isinstance(message["content"], str):
        return message
    parts = [{k: str(v) for k, v in part.items()} for part in message["content"]]
    return {**message, "content": parts}


def transcribe(
    model: PteFile,
    sound: Annotated[
        Path, typer.Argument(metavar="SOUND", help="WAV of 16 kHz; others need the extra sound.")
    ],
    tokenizer: TokenizerFile = None,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Such as en. Default: what the model hears.")
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="To English, for models of several languages.")
    ] = False,
    format: Annotated[
        Literal["text", "srt", "vtt"], typer.Option(help="srt, vtt: subtitles, with times.")
    ] = "text",
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Before what is said: names, spellings, a style."),
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="When each word is said: in subtitles, or with --json.")
    ] = False,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback/--no-fallback",
            help="Write texts of low probability, and those that repeat themselves, again at "
            "higher temperatures; skip silence.",
        ),
    ] = True,
    max_new_tokens: MaxNewTokens = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Text to standard output, as it is heard."""
    from edgewise.llm.speech import load_speech_model
    from edgewise.llm.subtitles import FORMATS, head_of
    from edgewise.llm.text import TextStream, load_tokenizer
    from edgewise.llm.transcriber import Fallback, read_speech

    out = Output(json=json, quiet=quiet)
    found = tokenizer_of(model, tokenizer)
    known = None if found is None else load_tokenizer(found)
    transcriber = load_speech_model(model, known, threads=threads)
    if known is None and (language or translate or prompt or words or format != "text"):
        raise CliError(
            "[transcribe] --language, --translate, --prompt, --words and --format need a "
            "tokenizer; try --tokenizer"
        )
    if words and format == "text" and not json:
        raise CliError("[transcribe] --words needs --format srt, --format vtt or --json; got none")
    if format != "text" and not transcriber.tells_times:
        raise CliError(
            f"[transcribe] --format {format} needs a model that tells times; got {model}; try "
            f"edgewise llm export again"
        )
    samples = read_speech(sound)
    start, heard = transcriber.begin(samples, language, translate)
    if heard != language:
        out.note(f"language: {heard}")
    language = heard
    segments: list[dict[str, Any]] = []
    if not json:
        print(head_of(format), end="")
    doubts = Fallback() if fallback else None
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "fallback": doubts}
    options["token_times"] = words
    cues = 0
    stream = None if known is None else TextStream(known)
    options["prompt"] = transcriber.prompt_ids(prompt)
    for one in transcriber.transcribe(samples, start, **options):
        text = None if stream is None else stream.add(*one.tokens)
        segments.append({"start": one.start, "end": one.end, "text": text, "tokens": one.tokens})
        said: Sequence[Any] = ()
        if words and known is not None:
            said = transcriber.words(one, language)
            segments[-1]["words"] = [asdict(word) for word in said]
        if not json:
            shown_text = " ".join(map(str, one.tokens)) if text is None else shown(text)
            if len(segments) == 1:
                shown_text = shown_text.lstrip()
            if format == "text":
                print(shown_text, end="" if text is not None else " ", flush=True)
            else:
                parts = (
                    [(word, shown(word.text)) for word in said] if words else [(one, shown_text)]
                )
                for part in parts:
                    cues += 1
                    print(FORMATS[format](cues, *part), flush=True)
    texts = [part["text"] for part in segments]
    told = {
        "file": str(model),
        "language": language,
        "text": None if known is None else "".join(texts),
        "tokens": [token for part in segments for token in part["tokens"]],
        "segments": segments,
    }
    out.result(told, lambda console: print(flush=True) if format == "text" else None)


def serve(
    model: PteFile,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="To listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N")] = 8080,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The model's name. Default: the file's.")
    ] = None,
    tokenizer: TokenizerFile = None,
    embedder: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .pte from tokens to vectors, for /v1/embeddings; its tokenizer beside.",
        ),
    ] = None,
    transcriber: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .pte of speech, for /v1/audio/transcriptions; its tokenizer beside.",
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Requests that are answered at once.")
    ] = 1,
    waiting: Annotated[
        int, typer.Option(min=0, metavar="N", help="Requests that may wait for that.")
    ] = 32,
    max_body: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Of a request. Default: 1 MiB, 16 for a model that sees, 25 for speech.",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With the key that clients must send. Default: none."),
    ] = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """OpenAI's interface over HTTP: chat, completions, streams, embeddings, speech, models."""
    if host not in _LOOPBACK and api_key_file is None:
        raise CliError(
            f"[serve] an address that others reach must come with --api-key-file; got {host}"
        )
    from edgewise.llm.server import serve as run_server

    key = None if api_key_file is None else api_key_file.read_text(encoding="utf-8").strip()
    if key == "":
        raise CliError(f"[serve] must hold a key; got an empty file: {api_key_file}")
    out = Output(json=json, quiet=quiet or json)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    out.result({"url": url, "model": name or model.stem}, lambda console: None)
    run_server(
        model,
        tokenizer_of(model, tokenizer),
        name=name or model.stem,
        host=host,
        port=port,
        parallel=parallel,
        waiting=waiting,
        body_bytes=max_body,
        api_key=key,
        embedder=embedder,
        transcriber=transcriber,
        threads=threads,
        quiet=quiet or json,
    )


def _lines(out: Output) -> Any:
    """Of standard input, with a prompt if that is a terminal."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


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
