"""An HTTP server with the endpoints of OpenAI's interface that its Python client uses.

`POST /v1/chat/completions`, `/v1/completions` and `/v1/responses` (all also as streams of events),
`POST /v1/embeddings`, `POST /v1/audio/transcriptions` and `translations`, `GET /v1/models` and
`GET /v1/models/{name}`; `GET /health`.

Each request takes one of `Pool`'s generators while it is answered; they have the weights in common
and a cache each. One that has computed most of a prompt's beginning is preferred.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from edgewise.llm.chat import Chat
from edgewise.llm.constraint import GrammarTokens
from edgewise.llm.generator import Generator, Statistics
from edgewise.llm.items import ItemResponse, read_response
from edgewise.llm.logprobs import Logprob, LogprobRecorder
from edgewise.llm.pool import Limits, Pool
from edgewise.llm.requests import (
    GenerationRequest,
    RequestError,
    read_chat,
    read_completion,
    read_embeddings,
)
from edgewise.llm.responses import (
    ChatResponse,
    CompletionResponse,
    ResponseFormat,
    error,
    event,
    usage_of,
)
from edgewise.llm.text import StopStrings, TextStream, Tokenizer
from edgewise.llm.tools import grammar_of
from edgewise.llm.transcriptions import (
    SpeechEvents,
    Transcriptions,
    read_form,
    read_transcription,
)

__all__ = ["Served", "application"]

_ENDS = {"length": "length", "context": "length"}
"""By `Statistics.ended`; all else is "stop"."""


@dataclass
class Served:
    """What a server answers with. name: of the model, in requests and answers.

    generators, tokenizer: none where there is no language model. embed: from a text to its vector;
    None where there is none. chat: None for models without a template. api_key: what clients must
    send; None for anybody. hear: what answers for speech; None where there is none.
    """

    name: str
    generators: list[Generator]
    tokenizer: Tokenizer | None = None
    chat: Chat | None = None
    grammar: Callable[[], GrammarTokens] | None = None
    embed: Callable[[str], tuple[list[float], int]] | None = None
    api_key: str | None = None
    limits: Limits = field(default_factory=Limits)
    hear: Transcriptions | None = None


def application(served: Served) -> Starlette:
    """The server's routes, for uvicorn or another server of ASGI applications."""
    endpoints = _Endpoints(served)
    return Starlette(
        routes=[
            Route("/health", endpoints.health),
            Route("/v1/models", endpoints.models),
            Route("/v1/models/{name:path}", endpoints.model),
            Route("/v1/chat/completions", endpoints.chat, methods=["POST"]),
            Route("/v1/completions", endpoints.completions, methods=["POST"]),
            Route("/v1/responses", endpoints.responses, methods=["POST"]),
            Route("/v1/embeddings", endpoints.embeddings, methods=["POST"]),
            Route("/v1/audio/transcriptions", endpoints.transcriptions, methods=["POST"]),
            Route("/v1/audio/translations", endpoints.translations, methods=["POST"]),
        ],
        exception_handlers={404: _not_found, 405: _not_found},
    )


class _Endpoints:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._pool = Pool(served.generators, served.limits) if served.generators else None
        self._hearing, self._ear = 0, asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun = int(time.time())
        self._known: list[GrammarTokens] = []

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        return await self._guarded(request, self._list)

    async def model(self, request: Request) -> Response:
        async def one(request: Request) -> Response:
            self._check_name(request.path_params["name"])
            return JSONResponse(self._about())

        return await self._guarded(request, one)

    async def chat(self, request: Request) -> Response:
        return await self._guarded(request, self._chat)

    async def completions(self, request: Request) -> Response:
        return await self._guarded(request, self._completions)

    async def responses(self, request: Request) -> Response:
        return await self._guarded(request, self._respond)

    async def embeddings(self, request: Request) -> Response:
        return await self._guarded(request, self._embeddings)

    async def transcriptions(self, request: Request) -> Response:
        return await self._guarded(request, lambda one: self._hear(one, False))

    async def translations(self, request: Request) -> Response:
        return await self._guarded(request, lambda one: self._hear(one, True))

    async def _guarded(
        self, request: Request, work: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """The answer, or the error as the interface tells it."""
        try:
            key = self._served.api_key
            if key is not None and request.headers.get("authorization") != f"Bearer {key}":
                raise RequestError("[serve] the API key is not the server's", 401)
            return await work(request)
        except RequestError as refused:
            return error(str(refused), refused.status, refused.parameter)
        except (ValueError, ModuleNotFoundError) as failure:
            return error(str(failure), 400)
        except ClientDisconnect:
            return Response(status_code=499)

    def _about(self) -> dict[str, Any]:
        told: dict[str, Any] = {"id": self._served.name, "object": "model", "created": self._begun}
        told["owned_by"] = "edgewise"
        if self._served.generators:
            told["max_model_len"] = self._served.generators[0].max_context_len
        return told

    async def _list(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._about()]})

    def _check_name(self, name: Any) -> None:
        if name != self._served.name:
            raise RequestError(
                f"[serve] no such model; got {name!r}; try {self._served.name!r}", 404, "model"
            )

    async def _body(self, request: Request) -> dict[str, Any]:
        most = self._served.limits.body_bytes
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > most:
                raise RequestError(
                    f"[serve] a request must have at most {most} bytes; got more", 413
                )
        try:
            values = json.loads(data)
        except (ValueError, RecursionError) as failure:
            raise RequestError(f"[serve] a request must be JSON; got {failure}") from None
        if not isinstance(values, dict):
            raise RequestError("[serve] a request must be a JSON object")
        self._check_name(values.get("model"))
        return values

    async def _prompt(self, asked: GenerationRequest) -> list[int]:
        """Of a chat."""
        chat = self._served.chat
        if chat is None:
            raise RequestError("[serve] the model has no chat template; try /v1/completions")
        return await asyncio.to_thread(chat.prompt, asked.messages, **asked.variables)

    async def _chat(self, request: Request) -> Response:
        self._language_model()
        asked = read_chat(await self._body(request))
        prompt = await self._prompt(asked)
        shape = ChatResponse(self._served.name, asked.tools)
        return await self._answer(request, asked, [prompt], shape)

    async def _respond(self, request: Request) -> Response:
        self._language_model()
        body = await self._body(request)
        asked = read_response(body)
        prompt = await self._prompt(asked)
        answer = ItemResponse(self._served.name, body, asked)
        if asked.stream:
            self._check(asked, prompt)
            stream = self._item_events(request, asked, prompt, answer)
            return StreamingResponse(stream, media_type="text/event-stream")
        text, writer = await self._written(request, asked, prompt, 0)
        return JSONResponse(answer.whole(text, writer.ended, _usage(prompt, writer)))

    async def _item_events(
        self, request: Request, asked: GenerationRequest, prompt: list[int], answer: ItemResponse
    ) -> AsyncIterator[str]:
        pool, _ = self._language_model()
        try:
            for told in answer.begin():
                yield event(told)
            async with pool.take(prompt) as lease:
                writer = self._writer(lease.generator, asked, prompt, 0)
                async for piece in pool.pieces(request, lease, writer):
                    for told in answer.parts(piece):
                        yield event(told)
            for told in answer.end(writer.ended, _usage(prompt, writer)):
                yield event(told)
        except (RequestError, ValueError) as failure:
            yield event({"type": "error", "code": "server_error", "message": str(failure)})

    async def _completions(self, request: Request) -> Response:
        asked = read_completion(await self._body(request))
        prompts = [
            await asyncio.to_thread(self._encode, one) if isinstance(one, str) else self._words(one)
            for one in asked.prompts
        ]
        return await self._answer(request, asked, prompts, CompletionResponse(self._served.name))

    async def _embeddings(self, request: Request) -> Response:
        body = await self._body(request)
        if self._served.embed is None:
            raise RequestError("[serve] no embeddings here; try edgewise llm serve --embedder")
        texts, encode = read_embeddings(body)
        data, count = [], 0
        for index, text in enumerate(texts):
            vector, tokens = await asyncio.to_thread(self._served.embed, text)
            count += tokens
            data.append({"object": "embedding", "index": index, "embedding": encode(vector)})
        usage = {"prompt_tokens": count, "total_tokens": count}
        told = {"object": "list", "model": self._served.name, "data": data, "usage": usage}
        return JSONResponse(told)

    async def _hear(self, request: Request, translate: bool) -> Response:
        hear, limits = self._served.hear, self._served.limits
        if hear is None:
            raise RequestError("[serve] no speech here; try edgewise llm serve --transcriber")
        form = await read_form(request, limits.body_bytes)
        self._check_name(form.get("model"))
        asked = read_transcription(form)
        if self._hearing > limits.waiting:
            raise RequestError(f"[serve] {self._hearing} requests wait already; try later", 429)
        if asked.stream:
            events = self._heard(hear.events(asked, translate))
            first = await anext(events)  # errors are told before an answer has begun
            return StreamingResponse(_all_of(first, events), media_type="text/event-stream")
        async with self._listening():
            return await asyncio.to_thread(hear.answer, asked, translate)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """While a request is heard: one at a time, or those that wait would take all threads."""
        self._hearing += 1
        try:
            async with self._ear:
                yield
        finally:
            self._hearing -= 1

    async def _heard(self, told: SpeechEvents) -> AsyncGenerator[str, None]:
        """As events, computed in a thread, which stops after the next one if the client is gone."""
        loop, events, is_gone = asyncio.get_running_loop(), asyncio.Queue[str | None](), Event()

        def work() -> None:
            try:
                with closing(told):
                    while not is_gone.is_set() and (one := next(told, None)) is not None:
                        loop.call_soon_threadsafe(events.put_nowait, event(one))
            finally:
                loop.call_soon_threadsafe(events.put_nowait, None)

        async def listen() -> None:
            async with self._listening():
                await asyncio.to_thread(work)

        task = asyncio.create_task(listen())  # goes on without the client until the thread ends
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (one := await events.get()) is not None:
                yield one
            await task  # its error, if there was one
        finally:
            is_gone.set()

    def _language_model(self) -> tuple[Pool, Tokenizer]:
        """What writes texts. RequestError if there is none."""
        if self._pool is None or self._served.tokenizer is None:
            raise RequestError("[serve] the model writes down speech, and no more", 404)
        return self._pool, self._served.tokenizer

    def _encode(self, text: str) -> list[int]:
        tokens = self._language_model()[1].encode(text)
        begin = self._served.generators[0].bos_id
        return tokens if begin is None or tokens[:1] == [begin] else [begin, *tokens]

    def _words(self, tokens: list[int]) -> list[int]:
        """The same. Numbers above the vocabulary would be of images that others have sent."""
        self._language_model()
        most = self._served.generators[0].vocab_size
        if wrong := [token for token in tokens if not 0 <= token < most]:
            raise RequestError(
                f"[serve] tokens must be from 0 to {most - 1}; got {wrong[0]}", parameter="prompt"
            )
        return tokens

    async def _answer(
        self,
        request: Request,
        asked: GenerationRequest,
        prompts: list[list[int]],
        shape: ResponseFormat,
    ) -> Response:
        if asked.stream:
            # What is wrong with a request is told before the stream begins.
            self._check(asked, prompts[0])
            stream = self._events(request, asked, prompts[0], shape)
            return StreamingResponse(stream, media_type="text/event-stream")
        choices, usage = [], {"prompt_tokens": 0, "completion_tokens": 0}
        for number, prompt in enumerate(one for one in prompts for _ in range(asked.count)):
            text, writer = await self._written(request, asked, prompt, number)
            choices.append(shape.choice(number, text, writer.ended, writer.logprobs()))
            usage["prompt_tokens"] += len(prompt)
            usage["completion_tokens"] += writer.count
        return JSONResponse({**shape.head(False), "choices": choices, "usage": usage_of(usage)})

    async def _written(
        self, request: Request, asked: GenerationRequest, prompt: list[int], number: int
    ) -> tuple[str, _Writer]:
        """A whole text, and what wrote it."""
        pool, _ = self._language_model()
        async with pool.take(prompt) as lease:
            writer = self._writer(lease.generator, asked, prompt, number)
            return "".join([piece async for piece in pool.pieces(request, lease, writer)]), writer

    async def _events(
        self, request: Request, asked: GenerationRequest, prompt: list[int], shape: ResponseFormat
    ) -> AsyncIterator[str]:
        pool, _ = self._language_model()
        try:
            async with pool.take(prompt) as lease:
                writer = self._writer(lease.generator, asked, prompt, 0)
                if first := shape.first():
                    yield event({**shape.head(True), "choices": [first]})
                async for piece in pool.pieces(request, lease, writer):
                    for part in shape.parts(piece, None, writer.logprobs()):
                        yield event({**shape.head(True), "choices": [part]})
            for part in shape.parts("", writer.ended, writer.logprobs()):
                yield event({**shape.head(True), "choices": [part]})
            if asked.include_usage:
                usage = usage_of(_usage(prompt, writer))
                yield event({**shape.head(True), "choices": [], "usage": usage})
            yield "data: [DONE]\n\n"
        except (RequestError, ValueError) as failure:
            yield event({"error": {"message": str(failure), "type": "server_error"}})

    def _check(self, asked: GenerationRequest, prompt: list[int]) -> None:
        generator = self._served.generators[0]
        generator.check_prompt(prompt)
        generator.check_sampling(asked.sampling())
        if asked.echo and asked.logprobs is not None and not generator.has_all_logits:
            generator.prompt_logits(prompt)  # says what it needs
        self._constraint(asked)

    def _constraint(self, asked: GenerationRequest) -> Any:
        if asked.schema is None and not asked.must_call:
            return None
        if self._served.grammar is None:
            name = "tool_choice" if asked.must_call else "response_format"
            raise RequestError(f"[serve] {name} needs a tokenizer.json; got another tokenizer")
        if not self._known:
            self._known.append(self._served.grammar())
        if asked.must_call and self._served.chat is not None:
            template = self._served.chat.template
            return self._known[0].lark(grammar_of(template, asked.must_call))
        return self._known[0].json_schema(asked.schema or {})

    def _writer(
        self, generator: Generator, asked: GenerationRequest, prompt: list[int], number: int
    ) -> _Writer:
        extra = self._served.chat.eos_ids if self._served.chat and asked.messages else frozenset()
        tokenizer = self._language_model()[1]
        recorder = None
        if asked.logprobs is not None:
            recorder = LogprobRecorder(tokenizer, asked.logprobs)
        if asked.max_tokens == 0:
            tokens: Iterator[int] = iter(())
            generator.statistics = Statistics(prompt_tokens=len(prompt), ended="length")
        else:
            tokens = generator.generate(
                prompt,
                max_new_tokens=asked.max_tokens,
                sampling=asked.sampling(number),
                reuse_prefix=True,
                constraint=self._constraint(asked),
                watch=recorder,
            )
        stream = TextStream(tokenizer, prompt)
        writer = _Writer(generator, tokens, stream, StopStrings(asked.stop), extra, recorder)
        if asked.echo:
            begin = generator.bos_id
            words = prompt[1:] if prompt[:1] == [begin] else prompt
            writer.echo(prompt, tokenizer.decode(words, special=True))
        return writer


class _Writer:
    """The pieces of one text, as an iterator for a thread."""

    def __init__(
        self,
        generator: Generator,
        tokens: Iterator[int],
        stream: TextStream,
        stops: StopStrings,
        ends: frozenset[int],
        recorder: LogprobRecorder | None,
    ) -> None:
        self._generator = generator
        self._statistics = generator.statistics
        self._recorder = recorder
        self._tokens, self._stream, self._stops, self._ends = tokens, stream, stops, ends
        self._prompt: list[int] = []
        self._prompt_text = ""
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        if self._prompt and self._recorder is not None:
            logits = itertools.chain([None], self._generator.prompt_logits(self._prompt))
            for token, row in zip(self._prompt, logits, strict=False):
                self._recorder(token, row)
        if self._prompt_text:
            yield self._prompt_text
        for token in self._tokens:
            self.count += 1
            if token in self._ends:
                return
            yield self._stops.feed(self._stream.add(token))
            if self._stops.has_stopped:
                return
        yield self._stops.feed(self._stream.rest()) + self._stops.rest()

    def echo(self, prompt: list[int], text: str) -> None:
        """Has the text begin with its prompt."""
        self._prompt, self._prompt_text = prompt, text

    def logprobs(self) -> list[Logprob] | None:
        """Of tokens since the last call; None if nobody has asked."""
        return None if self._recorder is None else self._recorder.take()

    @property
    def ended(self) -> str:
        """As the interface tells it."""
        return _ENDS.get(self._statistics.ended, "stop")


def _usage(prompt: list[int], writer: _Writer) -> dict[str, int]:
    return {"prompt_tokens": len(prompt), "completion_tokens": writer.count}


async def _all_of(first: str, rest: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    try:
        yield first
        async for one in rest:
            yield one
    finally:
        await rest.aclose()


async def _not_found(request: Request, failure: Exception) -> Response:
    status = getattr(failure, "status_code", 404)
    return error(f"[serve] no such endpoint; got {request.method} {request.url.path}", status)
