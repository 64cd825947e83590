"""`executorch.extension.llm.runner`: text by a language model, which may see, by `edgewise.llm`.

`edgewise llm run` and `edgewise.llm.Generator` do more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgewise.llm.generator import Generator
from edgewise.llm.sampling import Sampling
from edgewise.llm.text import TextStream, check_fit, load_tokenizer
from edgewise.runtime import Runtime


@dataclass(kw_only=True)
class GenerationConfig:
    """How much text, and how it is chosen. -1: as many tokens as there is room for."""

    echo: bool = True
    """Whether the prompt is told, too."""
    max_new_tokens: int = -1
    warming: bool = False
    """Whether statistics are not asked for."""
    seq_len: int = -1
    """Of all tokens together."""
    temperature: float = 0.8
    num_bos: int = 0
    num_eos: int = 0
    """Tokens that are put before and behind the prompt."""

    def resolve_max_new_tokens(self, max_context_len: int, num_tokens_occupied: int) -> int:
        """How many there can be behind so many tokens; 0 if there is no room."""
        room = max_context_len if self.seq_len < 0 else min(self.seq_len, max_context_len)
        room = max(0, room - num_tokens_occupied)
        return room if self.max_new_tokens < 0 else min(room, self.max_new_tokens)


@dataclass
class Stats:
    """Of one call of `generate`. Times are milliseconds of one clock."""

    SCALING_FACTOR_UNITS_PER_SECOND: ClassVar[int] = 1000

    model_load_start_ms: int = 0
    model_load_end_ms: int = 0
    inference_start_ms: int = 0
    token_encode_end_ms: int = 0
    prompt_eval_end_ms: int = 0
    first_token_ms: int = 0
    inference_end_ms: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0

    def reset(self, all_stats: bool = False) -> None:
        """To zeros; loading's times only with `all_stats`."""
        for one in fields(self):
            if all_stats or not one.name.startswith("model_load"):
                setattr(self, one.name, 0)

    def to_json_string(self) -> str:
        """The figures as JSON."""
        return json.dumps(asdict(self))


class _Runner:
    """A model with its tokenizer, and one text, which goes on with each call until `reset`."""

    def __init__(
        self,
        model_path: str | Path,
        tokenizer_path: str | Path,
        data_path: str | Path | None = None,
    ) -> None:
        self._stats = Stats(model_load_start_ms=_now())
        with _runtime_errors("Failed to load: "):
            program = Runtime.get().load_program(model_path, data_path=data_path)
            self._generator = Generator(program)
            self._tokenizer = load_tokenizer(tokenizer_path)
            check_fit(self._tokenizer, self._generator.vocab_size)
        self._stats.model_load_end_ms = _now()
        self._text: list[int] = []
        self._is_stopped = False

    def _write(
        self,
        encoded: Callable[[], list[int]],
        echo: str | None,
        config: GenerationConfig,
        token_callback: Callable[[str], None] | None,
        stats_callback: Callable[[Stats], None] | None,
    ) -> None:
        """Writes on behind what there is and more tokens. echo: told before what is written."""
        self._is_stopped = False
        stats = self._stats
        stats.reset()
        stats.inference_start_ms = _now()
        with _runtime_errors():
            added = encoded()
            stats.token_encode_end_ms = _now()
            stats.num_prompt_tokens = len(added)
            tell = token_callback or (lambda piece: None)
            if config.echo and echo:
                tell(echo)
            text = [*self._text, *added]
            most = config.resolve_max_new_tokens(self._generator.max_context_len, len(text))
            if most == 0:
                raise ValueError(
                    f"[generate] the text must leave room for tokens; got {len(text)} tokens with "
                    f"max_new_tokens={config.max_new_tokens}, seq_len={config.seq_len} and a "
                    f"context of {self._generator.max_context_len}; try reset(), or other limits"
                )
            tokens = self._generator.generate(
                text,
                max_new_tokens=most,
                sampling=Sampling(config.temperature),
                reuse_prefix=True,
            )
            stream = TextStream(self._tokenizer, text)
            self._text = text
            for token in tokens:
                if not stats.first_token_ms:
                    stats.prompt_eval_end_ms = stats.first_token_ms = _now()
                self._text.append(token)
                stats.num_generated_tokens += 1
                tell(stream.add(token))
                if self._is_stopped:
                    break
            tell(stream.rest())
        stats.inference_end_ms = _now()
        if stats_callback is not None and not config.warming:
            stats_callback(stats)

    def _take(self, added: list[int]) -> None:
        """Takes tokens for written, as of a conversation before."""
        text = [*self._text, *added]
        self._generator.load(text)
        self._text = text

    def stop(self) -> None:
        """Ends `generate` behind the next token."""
        self._is_stopped = True

    def reset(self) -> None:
        """Begins a new text."""
        self._text = []
        self._is_stopped = False
        self._stats.reset()

    def get_vocab_size(self) -> int:
        """Tokens that the model knows."""
        return self._generator.vocab_size

    def __repr__(self) -> str:
        return f"<{type(self).__name__} vocab_size={self.get_vocab_size()}>"

    def _around(self, config: GenerationConfig) -> tuple[list[int], list[int]]:
        """Tokens before and behind a prompt. ExecuTorch's tokenizers put no others there."""
        begin, ends = self._generator.bos_id, self._generator.eos_ids
        if (config.num_bos and begin is None) or (config.num_eos and not ends):
            raise ValueError(
                f"[generate] the model's file must name the tokens that num_bos and num_eos ask "
                f"for (get_bos_id, get_eos_ids); got num_bos={config.num_bos}, "
                f"num_eos={config.num_eos}; try 0"
            )
        before = [begin] * config.num_bos if begin is not None else []
        return before, [min(ends)] * config.num_eos if ends else []


class TextLLMRunner(_Runner):
    """A model of texts with its tokenizer.

    RuntimeError for files that cannot be read, or that do not go together.
    """

    def generate(
        self,
        prompt: str,
        config: GenerationConfig,
        token_callback: Callable[[str], None] | None = None,
        stats_callback: Callable[[Stats], None] | None = None,
    ) -> None:
        """Writes on behind what there is and the prompt. token_callback: gets the text, piece by
        piece. RuntimeError if the prompt is empty, or leaves no room."""
        self._write(
            lambda: self._encoded(prompt, config), prompt, config, token_callback, stats_callback
        )

    def prefill(self, prompt: str, config: GenerationConfig) -> None:
        """Takes text for written, as of a conversation before. RuntimeError as `generate`."""
        with _runtime_errors():
            self._take(self._encoded(prompt, config))

    def _encoded(self, prompt: str, config: GenerationConfig) -> list[int]:
        before, behind = self._around(config)
        return [*before, *self._tokenizer.encode(prompt, special=False), *behind]


class _Values:
    """What an image or a sound is made of: whole numbers from 0 to 255, or floats, as a list or an
    array."""

    _kind = ""

    def __init__(self, data: Any) -> None:
        values = np.asarray(data)
        kind = np.float32 if values.dtype.kind == "f" else np.uint8
        self._values: Any = values.astype(kind).reshape(-1)

    def is_uint8(self) -> bool:
        """Whether they are whole numbers."""
        return bool(self._values.dtype == np.uint8)

    def is_float(self) -> bool:
        """Whether they are floats."""
        return not self.is_uint8()

    @property
    def uint8_data(self) -> list[int]:
        """RuntimeError if they are floats."""
        return self._data(self.is_uint8(), "uint8")

    @property
    def float_data(self) -> list[float]:
        """RuntimeError if they are whole numbers."""
        return self._data(self.is_float(), "float")

    def _data(self, fits: bool, kind: str) -> list[Any]:
        if not fits:
            raise RuntimeError(f"[{self._kind}] data must be {kind}; got {self._values.dtype}")
        found: list[Any] = self._values.tolist()
        return found

    @property
    def _dtype(self) -> str:
        return "uint8" if self.is_uint8() else "float"


class Image(_Values):
    """Pixels of an image, channel by channel: whole numbers from 0 to 255, or floats, as a list or
    an array."""

    _kind = "image"

    def __init__(self, data: Any = (), width: int = 0, height: int = 0, channels: int = 0) -> None:
        super().__init__(data)
        self.width, self.height, self.channels = width, height, channels

    @property
    def array(self) -> Any:
        """[1, channels, height, width]."""
        return self._values.reshape(1, self.channels, self.height, self.width)

    def __repr__(self) -> str:
        return (
            f"<Image height={self.height} width={self.width} channels={self.channels} "
            f"dtype={self._dtype}>"
        )


class Audio(_Values):
    """A spectrogram, band by band of each window: bytes or floats, as a list or an array."""

    _kind = "audio"

    def __init__(
        self, data: Any = (), batch_size: int = 0, n_bins: int = 0, n_frames: int = 0
    ) -> None:
        super().__init__(data)
        self.batch_size, self.n_bins, self.n_frames = batch_size, n_bins, n_frames

    @property
    def array(self) -> Any:
        """[batch_size, n_bins, n_frames]."""
        return self._values.reshape(self.batch_size, self.n_bins, self.n_frames)

    def __repr__(self) -> str:
        return (
            f"<Audio batch_size={self.batch_size} n_bins={self.n_bins} n_frames={self.n_frames} "
            f"dtype={self._dtype}>"
        )


class MultimodalInput:
    """A text, an image, a sound, or tokens: a part of a prompt."""

    def __init__(self, value: str | Image | Audio | Sequence[int]) -> None:
        is_whole = isinstance(value, (str, Image, Audio))
        self._value: Any = value if is_whole else [int(t) for t in value]  # type: ignore[union-attr]

    def is_text(self) -> bool:
        """Whether it is a text."""
        return isinstance(self._value, str)

    def is_image(self) -> bool:
        """Whether it is an image."""
        return isinstance(self._value, Image)

    def is_tokens(self) -> bool:
        """Whether it is tokens."""
        return isinstance(self._value, list)

    def is_audio(self) -> bool:
        """Whether it is the spectrogram of a sound."""
        return isinstance(self._value, Audio)

    def is_raw_audio(self) -> bool:
        """Never: samples are not taken here."""
        return False

    def get_text(self) -> str | None:
        """The text; None if it is none."""
        return self._value if self.is_text() else None

    def get_image(self) -> Image | None:
        """The image; None if it is none."""
        return self._value if self.is_image() else None

    def get_audio(self) -> Audio | None:
        """The spectrogram; None if it is none."""
        return self._value if self.is_audio() else None

    def get_tokens(self) -> list[int] | None:
        """The tokens; None if it is none."""
        return self._value if self.is_tokens() else None

    def __repr__(self) -> str:
        if isinstance(self._value, str):
            text = self._value if len(self._value) <= _SHOWN else self._value[:_SHOWN] + "..."
            return f'<MultimodalInput type=text content="{text}">'
        if self.is_audio():
            return "<MultimodalInput type=audio>"
        kind = "image" if self.is_image() else "tokens"
        return f"<MultimodalInput type={kind} content={self._value!r}>"


_SHOWN = 50


def make_text_input(text: str) -> MultimodalInput:
    """Of a text."""
    return MultimodalInput(text)


def make_token_input(tokens: Sequence[int]) -> MultimodalInput:
    """Of tokens."""
    return MultimodalInput(list(tokens))


def make_image_input(image_tensor: Any) -> MultimodalInput:
    """Of uint8 or float [H, W, C], [C, H, W], or with 1 in front. RuntimeError for another."""
    pixels = np.asarray(image_tensor)
    if pixels.ndim == 4 and pixels.shape[0] == 1:
        pixels = pixels[0]
    if pixels.ndim != 3:
        raise RuntimeError(
            f"[image] a tensor must be 3-dimensional, or 4-dimensional with 1 in front; got "
            f"{list(pixels.shape)}"
        )
    if pixels.shape[0] not in (3, 4) and pixels.shape[2] in (3, 4):
        pixels = pixels.transpose(2, 0, 1)
    if pixels.shape[0] not in (3, 4):
        raise RuntimeError(
            f"[image] channels must be 3 (RGB) or 4 (RGBA); got {list(pixels.shape)}"
        )
    channels, height, width = pixels.shape
    if pixels.dtype != np.uint8:
        pixels = pixels.astype(np.float32)
    return MultimodalInput(Image(pixels.reshape(-1), width, height, channels))


def make_audio_input(audio_tensor: Any) -> MultimodalInput:
    """Of a spectrogram uint8 or float32 [windows, bands, frames]. RuntimeError for another."""
    values = np.asarray(audio_tensor)
    if values.ndim != 3:
        raise RuntimeError(
            f"[audio] a tensor must be 3-dimensional (batch_size, n_bins, n_frames); got "
            f"{list(values.shape)}"
        )
    if values.dtype not in (np.uint8, np.float32):
        raise RuntimeError(f"[audio] a tensor must be uint8 or float32; got {values.dtype}")
    return MultimodalInput(Audio(values.reshape(-1), *values.shape))


class MultimodalRunner(_Runner):
    """A model that sees or hears, with its tokenizer. Prompts are parts, which go one behind the
    other.

    RuntimeError for files that cannot be read, or that do not go together.
    """

    def generate(
        self,
        inputs: Sequence[MultimodalInput],
        config: GenerationConfig,
        token_callback: Callable[[str], None] | None = None,
        stats_callback: Callable[[Stats], None] | None = None,
    ) -> None:
        """Writes on behind what there is and the parts, of which the last is told, too, if it is a
        text. Images are floats of the size that the model takes, prepared as its processor does,
        sounds the spectrograms of whole windows. RuntimeError for others, or without room.

        What was written last is part of the text that the next call goes on with; ExecuTorch's
        runner leaves out its last token.
        """
        echo = inputs[-1].get_text() if inputs else None
        self._write(
            lambda: self._encoded(inputs, config), echo, config, token_callback, stats_callback
        )

    def generate_text(self, inputs: Sequence[MultimodalInput], config: GenerationConfig) -> str:
        """What `generate` tells, as one text."""
        pieces: list[str] = []
        self.generate(inputs, config, pieces.append)
        return "".join(pieces)

    def generate_hf(
        self,
        inputs: Any,
        config: GenerationConfig,
        image_token_id: int | None = None,
        token_callback: Callable[[str], None] | None = None,
        stats_callback: Callable[[Stats], None] | None = None,
    ) -> None:
        """The same of what a processor of `transformers` makes: `input_ids`, of one text, and
        `pixel_values` of its images, for which tokens `image_token_id` stand."""
        with _runtime_errors():
            parts = self._parts(inputs, image_token_id)
        self.generate(parts, config, token_callback, stats_callback)

    def generate_text_hf(
        self, inputs: Any, config: GenerationConfig, image_token_id: int | None = None
    ) -> str:
        """What `generate_hf` tells, as one text."""
        pieces: list[str] = []
        self.generate_hf(inputs, config, image_token_id, pieces.append)
        return "".join(pieces)

    def prefill(self, inputs: Sequence[MultimodalInput]) -> None:
        """Takes parts for written, as of a conversation before. RuntimeError as `generate`."""
        with _runtime_errors():
            self._take(self._encoded(inputs, GenerationConfig()))

    def _parts(self, inputs: Any, image_token_id: int | None) -> list[MultimodalInput]:
        if isinstance(inputs, list):
            return inputs
        tokens = np.asarray(inputs["input_ids"]).reshape(-1).tolist()
        images = [] if "pixel_values" not in inputs else list(np.asarray(inputs["pixel_values"]))
        parts: list[MultimodalInput] = []
        runs = [(is_image, list(run)) for is_image, run in groupby(tokens, image_token_id.__eq__)]
        if len(images) != sum(is_image for is_image, _ in runs):
            raise ValueError(
                f"[generate] pixel_values must have an image for each run of image_token_id in "
                f"input_ids; got {len(images)} images and image_token_id={image_token_id}"
            )
        for is_image, run in runs:
            parts.append(make_image_input(images.pop(0)) if is_image else make_token_input(run))
        return parts

    def _encoded(self, inputs: Sequence[MultimodalInput], config: GenerationConfig) -> list[int]:
        before, behind = self._around(config)
        return [*before, *(token for one in inputs for token in self._tokens(one)), *behind]

    def _tokens(self, one: MultimodalInput) -> list[int]:
        if (text := one.get_text()) is not None:
            return self._tokenizer.encode(text, special=False)
        if (tokens := one.get_tokens()) is not None:
            return tokens
        media = self._generator.media
        if (audio := one.get_audio()) is not None:
            return self._heard(audio)
        image = one.get_image()
        if media is None or media.images is None or image is None:
            raise ValueError(
                "[generate] images need a model that sees; got one that does not; "
                "try edgewise llm export --images"
            )
        if not image.is_float():
            raise ValueError(
                "[generate] an image must be floats, prepared as the model's processor does; got "
                "uint8; try make_image_input(processor(...)['pixel_values'])"
            )
        return media.images.tokens(image.array)

    def _heard(self, audio: Audio) -> list[int]:
        """Of windows that are full of sound."""
        media = self._generator.media
        if media is None or media.audio is None:
            raise ValueError(
                "[generate] sounds need a model that hears; got one that does not; "
                "try edgewise llm export --audio"
            )
        if not audio.is_float():
            raise ValueError("[generate] a spectrogram must be float32; got uint8")
        return [token for one in audio.array for token in media.audio.window_tokens(one[None])]


def _now() -> int:
    return int(time.time() * Stats.SCALING_FACTOR_UNITS_PER_SECOND)


@contextmanager
def _runtime_errors(before: str = "") -> Iterator[None]:
    """What callers of ExecuTorch's runner catch. before: of the message."""
    try:
        yield
    except (ValueError, OSError) as failure:
        if isinstance(failure, RuntimeError) and not before:
            raise
        raise RuntimeError(f"{before}{failure}") from failure
