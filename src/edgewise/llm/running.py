"""`python -m edgewise.llm run`: text to standard output, figures to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from edgewise.llm.generator import Generator, Statistics
from edgewise.llm.sampling import Sampling
from edgewise.llm.text import StopStrings, TextStream, Tokenizer, check_fit, load_tokenizer

_ENDS = {
    "end": "the model ended the text",
    "length": "as many tokens as wanted",
    "context": "the context of {context} tokens is full",
    "stopped": "stopped",
}


def run(options: Any) -> int:
    """The exit code. Raises what `Generator` and `load_tokenizer` do."""
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    unused = [o for o in ("top_k", "top_p", "seed") if getattr(options, o) is not None]
    if options.temperature == 0 and unused:
        raise ValueError(
            f"[run] {', '.join('--' + o.replace('_', '-') for o in unused)} must come with a "
            f"--temperature above 0, such as 0.8; without, the most likely token is taken"
        )
    if options.prompt is not None and options.tokenizer is None:
        raise ValueError("[run] --prompt needs --tokenizer; try that, or --prompt-tokens")
    if options.prompt is None and (options.tokenizer or options.stop):
        raise ValueError("[run] --tokenizer and --stop are for --prompt")
    generator = Generator(options.model, threads=options.threads)
    tokenizer = None
    prompt = options.prompt_tokens
    if options.prompt is not None:
        tokenizer = load_tokenizer(options.tokenizer)
        check_fit(tokenizer, generator.vocab_size)
        prompt = _encode(tokenizer, options.prompt, generator)
    tokens = generator.generate(
        prompt,
        max_new_tokens=options.max_new_tokens,
        sampling=sampling,
        ignore_eos=options.ignore_eos,
    )
    stops = StopStrings(options.stop)
    pieces = _numbers(tokens) if tokenizer is None else _texts(tokens, tokenizer, prompt, stops)
    code = 0
    try:
        for piece in pieces:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        code = 130
    print(flush=True)
    _tell(generator.statistics, generator, stops)
    return code


def _encode(tokenizer: Tokenizer, prompt: str, generator: Generator) -> list[int]:
    text = sys.stdin.read() if prompt == "-" else prompt
    tokens = tokenizer.encode(text)
    begin = generator.bos_id
    return tokens if begin is None or tokens[:1] == [begin] else [begin, *tokens]


def _texts(
    tokens: Iterator[int], tokenizer: Tokenizer, prompt: list[int], stops: StopStrings
) -> Iterator[str]:
    stream = TextStream(tokenizer, prompt)
    for token in tokens:
        yield stops.feed(stream.add(token))
        if stops.has_stopped:
            return
    yield stops.feed(stream.rest()) + stops.rest()


def _numbers(tokens: Iterator[int]) -> Iterator[str]:
    for count, token in enumerate(tokens):
        yield f" {token}" if count else str(token)


def _tell(statistics: Statistics, generator: Generator, stops: StopStrings) -> None:
    s = statistics
    reason = _ENDS[s.ended or "stopped"].format(context=generator.max_context_len)
    if stops.has_stopped:
        reason = "a stop string"
    rate = f", {s.decode_rate:.1f} tokens/s" if s.new_tokens > 1 else ""
    print(
        f"\nprompt: {s.prompt_tokens} tokens in {s.prompt_seconds:.3f} s, "
        f"{s.prompt_rate:.1f} tokens/s\n"
        f"new:    {s.new_tokens} tokens in {s.prompt_seconds + s.decode_seconds:.3f} s{rate}\n"
        f"ended:  {reason}",
        file=sys.stderr,
    )
