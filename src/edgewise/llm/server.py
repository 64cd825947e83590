"""Starts the server of `serving` for a model's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewise.llm.chat import Chat, tokenizer_folder
from edgewise.llm.constraint import GrammarTokens
from edgewise.llm.generator import Generator
from edgewise.llm.speech import is_speech_model
from edgewise.llm.text import Tokenizer, check_fit, load_tokenizer
from edgewise.runtime import Runtime

__all__ = ["make_application", "serve"]

Embed = Callable[[str], tuple[list[float], int]]
_BYTES_OF_SPEECH = 25 << 20
"""Of a request, as OpenAI's own interface takes."""


def make_application(
    model: str | Path,
    tokenizer: str | Path | None,
    *,
    name: str,
    parallel: int = 1,
    waiting: int = 32,
    body_bytes: int | None = None,
    api_key: str | None = None,
    embedder: str | Path | None = None,
    transcriber: str | Path | None = None,
    threads: int | None = None,
) -> Any:
    """An ASGI application; see `serving`. model: a language model, or one of speech, which is then
    all that is served. body_bytes: most of a request; None for 1 MiB, 16 for a model that sees, or
    25 for speech. ModuleNotFoundError without starlette, ValueError and FileNotFoundError as
    `Generator` and `load_tokenizer`."""
    try:
        from edgewise.llm.pool import Limits
        from edgewise.llm.serving import Served, application
        from edgewise.llm.transcriptions import Transcriptions
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"[serve] needs the package {missing.name}; try pip install 'edgewise[llm,serve]'",
            name=missing.name,
        ) from None
    if is_speech_model(Runtime.get().load_program(model)):
        heard = Transcriptions(model, threads=threads)
        limits = Limits(body_bytes or _BYTES_OF_SPEECH, waiting)
        return application(Served(name, [], api_key=api_key, limits=limits, hear=heard))
    if tokenizer is None:
        raise ValueError(f"[serve] needs a tokenizer; got none beside {model}; try --tokenizer")
    first = Generator(model, threads=threads)
    others = (Generator(first.program, media=first.media) for _ in range(parallel - 1))
    generators = [first, *others]
    most = 1 << 20 if first.media is None else 16 << 20
    body_bytes = body_bytes or (most if transcriber is None else _BYTES_OF_SPEECH)
    known = load_tokenizer(tokenizer)
    check_fit(known, first.vocab_size)
    try:
        chat = Chat(known, tokenizer, first.media)
    except FileNotFoundError:
        chat = None  # told to who asks for a chat
    return application(
        Served(
            name,
            generators,
            known,
            chat,
            lambda: GrammarTokens(tokenizer, first.vocab_size, first.eos_ids),
            None if embedder is None else embedding_of(embedder, threads),
            api_key,
            Limits(body_bytes, waiting),
            None if transcriber is None else Transcriptions(transcriber, threads=threads),
        )
    )


def serve(
    model: str | Path,
    tokenizer: str | Path | None,
    *,
    host: str,
    port: int,
    quiet: bool = False,
    **options: Any,
) -> None:
    """Listens until it is interrupted. options: as `make_application`'s."""
    application = make_application(model, tokenizer, **options)
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "[serve] needs the package uvicorn; try pip install 'edgewise[llm,serve]'",
            name="uvicorn",
        ) from None
    uvicorn.run(
        application,
        host=host,
        port=port,
        log_level="warning" if quiet else "info",
        limit_concurrency=256,
        timeout_keep_alive=30,
    )


def embedding_of(path: str | Path, threads: int | None = None) -> Embed:
    """From text to a vector, by a program that takes tokens int64 [1, S] (and a mask of the same
    shape) and returns a vector [1, D], or one for each token, of which the mean is taken.

    Its tokenizer is in the folder beside it. FileNotFoundError without one, ValueError if the
    program is another one.
    """
    folder = tokenizer_folder(path)
    if folder is None:
        raise FileNotFoundError(
            f"[embedder] its tokenizer must be in a folder beside it; got none at "
            f"{Path(path).with_suffix('.tokenizer')}"
        )
    tokenizer: Tokenizer = load_tokenizer(folder)
    program = Runtime.get().load_program(path, threads=threads)
    if "forward" not in program.method_names:
        raise ValueError(f"[embedder] must have a method forward; got {path}")
    meta = program.metadata("forward")
    sizes = [list(meta.input_tensor_meta(i).sizes()) for i in range(meta.num_inputs())]
    if len(sizes) not in (1, 2) or any(len(s) != 2 or s[0] != 1 or s != sizes[0] for s in sizes):
        raise ValueError(f"[embedder] must take tokens [1, S], and a mask like them; got {sizes}")
    most, is_fixed = sizes[0][1], not _takes(program, len(sizes), 1)
    method = program.load_method("forward")

    import threading

    import numpy as np

    lock = threading.Lock()

    def embed(text: str) -> tuple[list[float], int]:
        tokens = tokenizer.encode(text)
        if not 1 <= len(tokens) <= most:
            raise ValueError(f"[embedder] a text must have 1 to {most} tokens; got {len(tokens)}")
        length = most if is_fixed else len(tokens)
        ids = np.zeros((1, length), dtype=np.int64)
        ids[0, : len(tokens)] = tokens
        mask = (np.arange(length) < len(tokens)).astype(np.int64)[None]
        with lock:
            result = np.asarray(method.execute([ids, mask][: len(sizes)])[0], dtype=np.float64)
        if result.ndim == 3:
            result = result[:, : len(tokens)].mean(1)
        vector = result.reshape(-1)
        return (vector / max(float(np.linalg.norm(vector)), 1e-12)).tolist(), len(tokens)

    return embed


def _takes(program: Any, count: int, length: int) -> bool:
    """Whether the program runs with fewer tokens than its plan holds."""
    import numpy as np

    inputs = [np.ones((1, length), dtype=np.int64)] * count
    try:
        program.load_method("forward").execute(inputs)
    except Exception:  # the runtime's errors for sizes
        return False
    return True
