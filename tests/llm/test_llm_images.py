"""Models that see: what they write about images is what transformers' own code writes."""

from __future__ import annotations

import base64
import io
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.cli import main
from edgewise.llm import Generator, PromptLookup
from edgewise.llm.architectures import SEEING
from edgewise.llm.chat import Chat
from edgewise.llm.conversation import Conversation
from edgewise.llm.images import AxialPositions, ImageEncoder, ImagePrompt
from edgewise.llm.text import load_tokenizer
from edgewise.llm.vectors import VectorPlace

transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("PIL", reason="the extra cli is not installed")
if not hasattr(transformers, "Gemma3ImageProcessorPil"):
    pytest.skip("image processors of Pillow need transformers 5.24", allow_module_level=True)

from media_checks import (  # noqa: E402
    answer,
    chat_of,
    check_conversation,
    check_refused,
    export_with,
    made_once,
    openai_client,
)
from seeing_models import CONFIGS, SIZED, picture, seeing_checkpoint  # noqa: E402

NEW_TOKENS = 16


class Seeing:
    """A checkpoint, its processor, and its file in float32."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder / kind
        self.processor = seeing_checkpoint(kind, self.folder)
        self.path = folder / f"{kind}.pte"
        assert export(self.folder, self.path, *self.options()) == 0

    def options(self) -> list[str]:
        size = ["--image-size", "56"] if self.kind in SIZED else []
        more = [] if self.recurs else ["--all-logits", "--prefix"]
        return ["--quantize", "none", *more, *size]

    @property
    def recurs(self) -> bool:
        return self.kind == "qwen3_5"

    def chat(self, generator: Generator) -> Chat:
        return chat_of(self.path, generator)

    def wanted(self, messages: list[dict[str, Any]], **cutting: Any) -> list[int]:
        """Greedy tokens of transformers' model, on prompts of its processor, which cuts images as
        `cutting` says."""
        model = transformers.AutoModelForImageTextToText.from_pretrained(self.folder).eval()
        whole = {"do_image_splitting": False, "do_pan_and_scan": False, "crop_to_patches": False}
        known = {k: v for k, v in whole.items() if hasattr(self.processor.image_processor, k)}
        images = [p["image"] for m in messages for p in m["content"] if p["type"] == "image"]
        text = self.processor.tokenizer.apply_chat_template(
            messages,
            chat_template=self.processor.chat_template,
            tokenize=False,
            add_generation_prompt=True,
        )
        given = self.processor(
            text=[text], images=images, return_tensors="pt", **{**known, **cutting}
        )
        with torch.no_grad():
            found = model.generate(
                **given, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False
            )
        return found[0, given["input_ids"].shape[1] :].tolist()


def export(checkpoint: Path, output: Path, *options: str) -> int:
    return export_with("--images", checkpoint, output, "--max-context-len", "200", *options)


def images_of(generator: Generator) -> ImageEncoder:
    assert generator.media is not None
    assert generator.media.images is not None
    return generator.media.images


def asks(text: str, *images: Any) -> dict[str, Any]:
    parts = [{"type": "image", "image": image} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return made_once(Seeing, tmp_path_factory)


SHAPES = {"56x56": (56, 56), "56x112": (56, 112), "112x56": (112, 56)}
"""Heights and widths."""


@pytest.mark.parametrize("kind", [*SIZED, "gemma4"])
def test_tokens_of_several_sizes_are_those_of_transformers(
    kind: str, seeing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = seeing(kind)
    shapes = SHAPES if kind in SIZED else {"96x96": (96, 96), "60x144": (60, 144)}
    path = tmp_path / "sizes.pte"
    options = ["--quantize", "none", "--max-context-len", "400"]
    for size in shapes:
        options += ["--image-size", size]
    capsys.readouterr()
    assert export(model.folder, path, *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)["images"]["sizes"]
    assert [f"{one['height']}x{one['width']}" for one in told] == list(shapes)
    generator = Generator(path)
    folder = path.with_suffix(".tokenizer")
    chat = Chat(load_tokenizer(folder), folder, generator.media)
    images = [picture(*size, seed=seed) for seed, size in enumerate(shapes.values())]
    said = {"role": "assistant", "content": [{"type": "text", "text": "a cat"}]}
    options_of = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "reuse_prefix": True}
    for messages in (
        *([asks("What is it?", image)] for image in images),
        [asks("And these?", *images[::-1]), said, asks("Sure?", images[0])],
    ):
        prompt = chat.prompt(messages)
        assert list(generator.generate(prompt, **options_of)) == model.wanted(messages)
    # A picture gets the size that is nearest in shape.
    seen = images_of(generator)
    how = ImagePrompt.load(folder)
    assert how is not None
    (wide_text, wide), (_, square) = (
        seen.prepared(picture(*size), how) for size in ((200, 500), (300, 290))
    )
    counts = {f"{one['height']}x{one['width']}": one["tokens"] for one in told}
    by_shape = list(counts.values())
    assert len(wide) == by_shape[1]
    assert len(square) == by_shape[0]
    assert wide_text == how.others[0].text


@pytest.mark.parametrize("kind", CONFIGS)
def test_tokens_are_those_of_transformers(kind: str, seeing: Any) -> None:
    model = seeing(kind)
    # Where proportions are kept, a square is what is left as it is.
    side = 56 if kind in SIZED else 96
    size = (side, side) if kind in SIZED or kind == "gemma4" else (90, 130)
    images = [picture(*size, seed=seed) for seed in (0, 1)]
    generator = Generator(model.path)
    chat = model.chat(generator)
    said = {"role": "assistant", "content": [{"type": "text", "text": "a cat"}]}
    for messages in (
        [asks("What is it?", images[0])],
        [asks("What is it?", images[1])],
        [asks("And these?", *images), said, asks("Sure?")],
    ):
        prompt = chat.prompt(messages)
        options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "reuse_prefix": True}
        assert list(generator.generate(prompt, **options)) == model.wanted(messages)
    first, second = (
        generator.logits(chat.prompt([asks("What is it?", image)])) for image in images
    )
    assert np.abs(first - second).max() > 0.05, "what is in an image does not matter"


CUTTING: dict[str, dict[str, Any]] = {
    "idefics3": {"do_image_splitting": True, "size": {"longest_edge": 112}},
    "smolvlm": {"do_image_splitting": True, "size": {"longest_edge": 112}},
    "internvl": {"crop_to_patches": True, "min_patches": 1, "max_patches": 4},
}


@pytest.mark.parametrize("kind", CUTTING)
def test_tokens_of_tiles_are_those_of_transformers(
    kind: str, seeing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = seeing(kind), tmp_path / "tiles.pte"
    options = ["--quantize", "none", "--image-tiles", "4", "--max-context-len", "500"]
    capsys.readouterr()
    given = ["--checkpoint", str(model.folder), "--output", str(path), "--images"]
    assert main(["llm", "export", *given, *options]) == 0
    assert "4 tokens each, up to 4 tiles and the whole" in capsys.readouterr().out
    generator = Generator(path)
    folder = path.with_suffix(".tokenizer")
    chat = Chat(load_tokenizer(folder), folder, generator.media)
    counts = set()
    for width, height in ((90, 130), (200, 60), (40, 41), (300, 290), (56, 112)):
        messages = [asks("What is it?", picture(width, height, seed=width))]
        prompt = chat.prompt(messages)
        counts.add(sum(token >= generator.vocab_size for token in prompt))
        written = generator.generate(prompt, max_new_tokens=NEW_TOKENS, ignore_eos=True)
        assert list(written) == model.wanted(messages, **CUTTING[kind]), (width, height)
    assert len(counts) > 1, "all images have as many tiles"
    # Images of several shapes in one prompt, and a text behind them.
    two = [picture(200, 60, seed=1), picture(60, 200, seed=2)]
    messages = [asks("And these?", *two)]
    written = generator.generate(chat.prompt(messages), max_new_tokens=NEW_TOKENS, ignore_eos=True)
    assert list(written) == model.wanted(messages, **CUTTING[kind])


def test_each_image_is_seen_once(seeing: Any) -> None:
    """What a conversation said is in the cache, with its images."""
    model = seeing("llava")
    generator = Generator(model.path)
    chat = model.chat(generator)
    first, second = (picture(60, 60, seed=seed) for seed in (2, 3))
    begun = chat.prompt([asks("What?", first)])
    options = {"max_new_tokens": 4, "ignore_eos": True, "reuse_prefix": True}
    list(generator.generate(begun, **options))
    going_on = chat.prompt([asks("What?", first), asks("And?", second)])
    list(generator.generate(going_on, **options))
    assert generator.statistics.reused_tokens >= len(begun) - len("<|assistant|>")
    assert chat.prompt([asks("What?", np.asarray(first))]) == begun
    assert chat.prompt([asks("What?", second)]) != begun


def test_images_in_turns_of_prompt_lookup_and_shifts(seeing: Any) -> None:
    model = seeing("gemma3")
    generator = Generator(model.path)
    prompt = model.chat(generator).prompt([asks("What is it?", *[picture(60, 60)] * 9)])
    plain = list(generator.generate(prompt, max_new_tokens=20, ignore_eos=True))
    options = {"max_new_tokens": 20, "ignore_eos": True, "draft": PromptLookup()}
    assert list(generator.generate(prompt, **options)) == plain
    # Wherever half of the context begins, no image is cut in two.
    for keep in range(8):
        options = {"max_new_tokens": 200, "ignore_eos": True, "context_shift": keep}
        assert len(list(generator.generate(prompt, **options))) == 200
        assert generator.statistics.shifts


def test_parts_are_quantized(seeing: Any, tmp_path: Path) -> None:
    model, path = seeing("smolvlm"), tmp_path / "small.pte"
    assert export(model.folder, path) == 0
    assert path.stat().st_size < 0.5 * model.path.stat().st_size
    results = []
    for file in (model.path, path):
        generator = Generator(file)
        pixels = np.random.default_rng(0).standard_normal((1, 3, 56, 56))
        tokens = images_of(generator).tokens(pixels)
        results.append(generator.media.vectors.vectors(tokens))
    assert np.abs(results[0] - results[1]).max() < 0.05 * np.abs(results[0]).max()


REFUSED_PROMPTS = {
    "more images than the template writes": (
        [{"role": "user", "content": [{"type": "text", "text": "<image>"}]}],
        "once for each image; got 1 for 0;",
    ),
    "no picture": ([asks("What?", b"GIF89a")], "one that Pillow reads"),
    "no file": ([asks("What?", "nowhere.png")], "one that Pillow reads"),
    "no image at all": ([asks("What?", 3)], "must be a path, a PIL.Image"),
}


@pytest.mark.parametrize("case", REFUSED_PROMPTS)
def test_prompts_that_are_refused(case: str, seeing: Any) -> None:
    messages, told = REFUSED_PROMPTS[case]
    model = seeing("llava")
    with pytest.raises(ValueError, match=told):
        model.chat(Generator(model.path)).prompt(messages)


def test_what_generators_refuse(seeing: Any, tmp_path: Path) -> None:
    model = seeing("llava")
    generator = Generator(model.path)
    prompt = model.chat(generator).prompt([asks("What?", picture(60, 60))])
    with pytest.raises(ValueError, match="tokens must be from 0 to 279; got"):
        generator.check_prompt([1, max(prompt) + 1])
    with pytest.raises(ValueError, match=r"must be float32 \[1, 3, 56, 56\]; got \[1, 3, 8, 8\]"):
        images_of(generator).tokens(np.zeros((1, 3, 8, 8)))
    generator.load(prompt)
    with pytest.raises(ValueError, match="a text with an image or a sound cannot be kept"):
        generator.save_prefix(tmp_path / "prefix")


def test_images_that_are_forgotten(seeing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewise.llm.vectors._MOST_BYTES", 1)
    model = seeing("llava")
    generator = Generator(model.path)
    chat = model.chat(generator)
    first = chat.prompt([asks("What?", picture(60, 60, seed=4))])
    assert list(generator.generate(first, max_new_tokens=2))
    second = chat.prompt([asks("What?", picture(60, 60, seed=5))])
    with pytest.raises(ValueError, match="got"):
        generator.check_prompt(first)
    assert max(first) < max(second), "two images have the same tokens"


REFUSED_EXPORTS = {
    "a size where there is one": ("llava", ["--image-size", "56"], "images have one size"),
    "a side of no patches": ("qwen2_5_vl", ["--image-size", "60"], "try 56x56"),
    "a shape of no patches": ("qwen2_5_vl", ["--image-size", "56x120"], "try 56x112"),
    "one size twice": (
        "qwen2_5_vl",
        ["--image-size", "56", "--image-size", "56x56"],
        "must differ; got 56x56, 56x56",
    ),
    "no size": ("qwen2_5_vl", ["--image-size", "large"], "or HEIGHTxWIDTH; got 'large'"),
    "tiles of a processor that cuts none": (
        "llava",
        ["--image-tiles", "4"],
        "tiles need a processor that cuts images into some of 56 x 56 pixels; got CLIPImage",
    ),
    "fewer tiles than the processor cuts": (
        "smolvlm",
        ["--image-tiles", "3"],
        "cut into 2 x 2 tiles or more; got image_tiles=3",
    ),
    "more tokens than the context": (
        "llava",
        ["--max-context-len", "16"],
        "more than an image's 16 tokens",
    ),
    "several texts at a time": ("llava", ["--batch", "2"], "one text at a time; got batch=2"),
}


BROKEN_CHECKPOINTS = {
    "no settings of pictures": (["processor_config.json"], {}, "come with its processor"),
    "another model's processor": (
        [],
        {"processor_class": "Lfm2VlProcessor"},
        "must take a text with .* and a picture; got Lfm2VlProcessor",
    ),
    "another image token": ([], {"image_token_id": 5, "image_token_index": 5}, "got 0 of them"),
}


@pytest.mark.parametrize("case", BROKEN_CHECKPOINTS)
def test_checkpoints_that_are_refused(case: str, seeing: Any, tmp_path: Path) -> None:
    from edgewise.llm.export.image_processor import read_processor

    missing, changed, told = BROKEN_CHECKPOINTS[case]
    folder = tmp_path / "checkpoint"
    shutil.copytree(seeing("llava").folder, folder)
    for name in missing:
        (folder / name).unlink()
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changed}))
    with pytest.raises(ValueError, match=told):
        read_processor(folder)


@pytest.mark.parametrize("case", REFUSED_EXPORTS)
def test_exports_that_are_refused(
    case: str, seeing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, options, told = REFUSED_EXPORTS[case]
    folder = seeing(kind).folder
    capsys.readouterr()
    status = export(folder, tmp_path / "x.pte", "--quantize", "none", *options)
    check_refused(status, told, capsys)


def test_a_model_that_sees_alone_reads_text(
    seeing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = seeing("llava"), tmp_path / "text.pte"
    given = ["--checkpoint", str(model.folder), "--output", str(path), "--quantize", "none"]
    assert main(["llm", "export", *given]) == 0
    assert "left out; the model can see them with --images" in capsys.readouterr().out
    generator, seen = Generator(path), Generator(model.path)
    words = [5, 6, 7, 8, 9]
    assert generator.media is None
    assert np.abs(generator.logits(words) - seen.logits(words)).max() < 1e-4
    folder = path.with_suffix(".tokenizer")
    with pytest.raises(ValueError, match="need a model that sees"):
        Chat(load_tokenizer(folder), folder).prompt([asks("What?", picture(60, 60))])


def test_conversations_about_images(
    seeing: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "cat.png"
    picture(60, 80).save(file)
    part = {"type": "image", "image": file}
    check_conversation(seeing("llava").path, part, capsys, monkeypatch)


def test_the_documentation_lists_them() -> None:
    assert list(SEEING) == list(CONFIGS)
    text = (Path(__file__).parents[2] / "docs" / "llm.md").read_text()
    for kind, (name, takes) in SEEING.items():
        assert f"| {name} | `{kind}` | {takes} |" in text


def url_of(image: Any, form: str = "PNG") -> str:
    data = io.BytesIO()
    image.save(data, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"


@pytest.fixture(scope="module")
def client(seeing: Any) -> Any:
    with openai_client(seeing("llava").path) as made:
        yield made


def test_the_server_sees(client: Any, seeing: Any, tmp_path: Path) -> None:
    model, image = seeing("llava"), picture(700, 900)
    conversation = Conversation(model.path, model.path.with_suffix(".tokenizer"), max_new_tokens=6)
    wanted = "".join(conversation.say("What?", [image]))
    part = {"type": "image_url", "image_url": {"url": url_of(image)}}
    assert len(part["image_url"]["url"]) > 200_000
    assert [answer(client, part) for _ in range(3)] == [wanted] * 3
    assert answer(client, part, {"type": "image_url", "image_url": url_of(image, "JPEG")})
    with ThreadPoolExecutor(4) as threads:
        urls = [url_of(picture(60, 60, seed=seed)) for seed in range(4)]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        together = list(threads.map(lambda part: answer(client, part), parts))
    assert together == [answer(client, part) for part in parts]


REFUSED_PARTS = {
    "an address": ("https://localhost/cat.png", "an image must be in the request"),
    "no base64": ("data:image/png;base64,*", "an image must be base64"),
    "no picture": ("data:image/png;base64,AAAA", "one that Pillow reads"),
    "another format": (None, "one that Pillow reads"),
}


@pytest.mark.parametrize("case", REFUSED_PARTS)
def test_parts_that_the_server_refuses(case: str, client: Any) -> None:
    openai = pytest.importorskip("openai")
    url, told = REFUSED_PARTS[case]
    part = {"type": "image_url", "image_url": {"url": url or url_of(picture(8, 8), "TIFF")}}
    with pytest.raises(openai.BadRequestError, match=told):
        answer(client, part)


def test_images_are_their_senders_alone(client: Any) -> None:
    """A prompt of tokens cannot name an image that is known from another request."""
    openai = pytest.importorskip("openai")
    assert answer(client, {"type": "image_url", "image_url": {"url": url_of(picture(60, 60))}})
    with pytest.raises(openai.BadRequestError, match="tokens must be from 0 to 279; got 280"):
        client.completions.create(model="model", prompt=[5, *range(280, 296)], max_tokens=2)


GRID = AxialPositions()


def test_positions_in_three_axes() -> None:
    text, image = [None] * 2, [VectorPlace(offset, 2, 3) for offset in range(6)]
    found = GRID.of([*text, *image, None], 0)
    assert found.T.tolist() == [
        [0, 0, 0],
        [1, 1, 1],
        *([2, 2 + row, 2 + column] for row in range(2) for column in range(3)),
        [5, 5, 5],
    ]
    # In pieces, also in the middle of an image; again from an earlier token on.
    assert np.array_equal(GRID.of([*image[3:], None], 5), found[:, 5:])
    assert np.array_equal(GRID.of([*image[1:], None], 3), found[:, 3:])
    # Behind a text that was never told, as of a file.
    assert AxialPositions().of(image[:2], 4).tolist() == [[4, 4], [4, 4], [4, 5]]
    # Of another size.
    tall = [VectorPlace(offset, 3, 1) for offset in range(3)]
    assert AxialPositions().of([*tall, None], 0)[1].tolist() == [0, 1, 2, 3]
