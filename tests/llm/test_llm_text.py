"""Sampling, text that grows, stop strings, tokenizer files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.llm.sampling import Sampler, Sampling
from edgewise.llm.text import StopStrings, TextStream, check_fit, load_tokenizer


class Bytes:
    """A token is a byte of UTF-8."""

    size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Any) -> str:
        return bytes(tokens).decode(errors="replace")


def test_characters_of_several_tokens_come_whole() -> None:
    stream = TextStream(Bytes(), b"so: ")
    pieces = [stream.add(token) for token in "né €!".encode()]
    assert "".join(pieces) == "né €!"
    assert pieces.count("") == 3
    assert stream.rest() == ""
    assert stream.add("€".encode()[0]) == ""
    assert stream.rest() == "\ufffd"


@pytest.mark.parametrize(
    ("pieces", "stops", "told"),
    [
        (["a", "b", "c"], [], "abc"),
        (["one.", " two", "END more"], ["END"], "one. two"),
        (["x E", "N", "D y"], ["END"], "x "),
        (["x E", "N", "G"], ["END"], "x ENG"),
        (["aab"], ["b", "ab"], "a"),
        (["E", "N"], ["END"], "EN"),
    ],
)
def test_stop_strings(pieces: list[str], stops: list[str], told: str) -> None:
    stop = StopStrings(stops)
    assert "".join([*(stop.feed(p) for p in pieces if not stop.has_stopped), stop.rest()]) == told


LOGITS = np.log(np.array([0.1, 0.5, 0.15, 0.25], dtype=np.float32))


@pytest.mark.parametrize(
    ("sampling", "shares"),
    [
        (Sampling(), [0, 1, 0, 0]),
        (Sampling(temperature=1), [0.1, 0.5, 0.15, 0.25]),
        (Sampling(temperature=0.5), [0.029, 0.725, 0.065, 0.181]),
        (Sampling(temperature=1, top_k=2), [0, 2 / 3, 0, 1 / 3]),
        (Sampling(temperature=1, top_p=0.6), [0, 2 / 3, 0, 1 / 3]),
        (Sampling(temperature=1, top_p=0.01), [0, 1, 0, 0]),
        (Sampling(temperature=1, top_k=3, top_p=0.999), [0, 0.5556, 0.1667, 0.2778]),
        (Sampling(temperature=1, min_p=0.4), [0, 2 / 3, 0, 1 / 3]),
        (Sampling(temperature=1, min_p=0), [0.1, 0.5, 0.15, 0.25]),
    ],
)
def test_tokens_come_as_often_as_they_should(sampling: Sampling, shares: list[float]) -> None:
    sampler = Sampler(replace(sampling, seed=3))
    drawn = np.bincount([sampler(LOGITS) for _ in range(4000)], minlength=4) / 4000
    assert np.abs(drawn - shares).max() < 0.03  # more than three standard deviations


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0},
        {"min_p": 1.1},
        {"repetition_penalty": 0},
        {"presence_penalty": float("inf")},
    ],
)
def test_sampling_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\[sampling\]"):
        Sampling(**options)


def test_penalties() -> None:
    """That of repetitions as `transformers` has it; the others by hand."""
    torch = pytest.importorskip("torch")
    processors = pytest.importorskip("transformers.generation.logits_process")
    logits = np.array([1.0, -2.0, 3.0, 0.5], dtype=np.float32)
    sampler = Sampler(Sampling(repetition_penalty=1.5), prompt=[1])
    sampler.note(2)
    want = processors.RepetitionPenaltyLogitsProcessor(1.5)(
        torch.tensor([[1, 2]]), torch.from_numpy(logits)[None]
    )
    np.testing.assert_allclose(sampler._penalized(logits), want[0].numpy())
    sampler = Sampler(Sampling(presence_penalty=1.5, frequency_penalty=0.75), prompt=[1])
    for token in (2, 2, 0):
        sampler.note(token)
    assert sampler._penalized(logits).tolist() == [1 - 2.25, -2, 3 - 3, 0.5]
    assert sampler(logits) == 3


def test_logits_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="got nan for token 1"):
        Sampler(Sampling())(np.array([1, np.nan, 2], dtype=np.float32))


def test_tokenizer_files(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(["a tokenizer, trained on a text about a tokenizer"], vocab_size=270)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    tokenizer = load_tokenizer(tmp_path)
    text = "a text about €"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.token_to_id("a") == tokenizer.encode("a")[0]
    assert tokenizer.token_to_id("no such token") is None
    with pytest.warns(DeprecationWarning, match="token_to_id"):
        assert tokenizer.number("a") == tokenizer.token_to_id("a")
    check_fit(tokenizer, 280)
    for size in (tokenizer.size - 1, 32000):
        with pytest.raises(ValueError, match=f"vocabulary has {size} tokens; got one of"):
            check_fit(tokenizer, size)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"got .*tokenizer.json"):
        load_tokenizer(path)
    path.write_text("no")
    with pytest.raises(ValueError, match="must be JSON"):
        load_tokenizer(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_tokenizer(tmp_path / "other.json")
