"""A Llama of `transformers`, made into a file, generates what it does in eager PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.cli import main
from edgewise.llm import Generator, Sampling
from edgewise.llm.config import read_config
from edgewise.llm.export import lower_llama, quantize_llama, random_llama

transformers = pytest.importorskip("transformers")
CONTEXT = 100
TEXT = (
    b"A token comes from all before it: a cache keeps their keys and values, "
    b"so that none is computed again."
)


def llama(seed: int = 0) -> Any:
    """Random weights of a size at which one token stands out, norms included."""
    model = random_llama({**read_config("tiny"), "eos_token_id": None, "bos_token_id": None}, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                # Ones would leave ties: embeddings are multiples of a step, as are their halves.
                weight.copy_(0.5 + torch.rand(weight.shape, generator=generator))
            else:
                weight.mul_(4)
    return model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """The model in eager PyTorch, and its file."""
    folder, known = tmp_path_factory.mktemp("llm"), {}

    def make(quantize: str) -> tuple[Any, Path]:
        if quantize not in known:
            model = llama()
            if quantize != "none":
                model = quantize_llama(model, int(quantize))
            path = folder / f"{quantize}.pte"
            lower_llama(model, max_context_len=CONTEXT, max_seq_len=32).save(path)
            known[quantize] = model, path
        return known[quantize]

    return make


def greedy(model: Any, prompt: list[int], count: int) -> tuple[list[int], float]:
    """Transformers' own forward over the whole text, without a cache; the smallest margin."""
    tokens, margin = list(prompt), float("inf")
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([tokens])).logits[0, -1]
            best = logits.topk(2).values
            margin = min(margin, float(best[0] - best[1]) / float(logits.std()))
            tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :], margin


@pytest.mark.parametrize(("quantize", "length"), [("none", 7), ("32", 1), ("32", 36), ("64", 32)])
def test_64_tokens_are_those_of_eager_pytorch(
    quantize: str, length: int, made: Callable[[str], tuple[Any, Path]]
) -> None:
    model, path = made(quantize)
    prompt = np.random.default_rng(length).integers(0, 512, length).tolist()
    want, margin = greedy(model, prompt, 64)
    assert len(set(want)) > 8, "a text of one token says nothing"
    generator = Generator(path)
    assert list(generator.generate(prompt, max_new_tokens=64)) == want, f"margin {margin}"
    assert generator.statistics.ended == "length"
    # The cache of the call before does not show.
    assert list(generator.generate(prompt, max_new_tokens=64)) == want


def test_a_trained_models_64_tokens_are_those_of_eager_pytorch(tmp_path: Path) -> None:
    """Quantized after it learned a text by heart, whose bytes are its tokens."""
    text = list(TEXT[:97])
    model = taught(text)
    quantized = quantize_llama(model)
    path = tmp_path / "taught.pte"
    lower_llama(quantized, max_context_len=CONTEXT, max_seq_len=32).save(path)
    prompt, generator = text[:33], Generator(path)
    want, margin = greedy(quantized, prompt, 64)
    assert want == text[33:], "4 bits are enough for what it learned"
    assert margin > 0.1
    assert list(generator.generate(prompt, max_new_tokens=64)) == want


def taught(text: list[int]) -> Any:
    """On one thread: others would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = random_llama({**read_config("tiny"), "eos_token_id": None, "bos_token_id": None})
    optimizer = torch.optim.Adam(model.train().parameters(), lr=3e-3)
    tokens = torch.tensor([text])
    for _ in range(120):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    return model.eval()


def test_the_context_ends_it(made: Callable[[str], tuple[Any, Path]]) -> None:
    generator = Generator(made("32")[1])
    tokens = list(generator.generate([1, 2, 3]))
    assert (len(tokens), generator.statistics.ended) == (CONTEXT - 3 + 1, "context")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "at least one"),
        ([0.5], "list of tokens"),
        ([1] * CONTEXT, "context of 100 tokens; got 100; try a shorter prompt"),
        ([5, 512], "from 0 to 511; got 512"),
        ([-1], "from 0 to 511; got -1"),
    ],
)
def test_prompts_are_checked_before_anything_runs(
    prompt: list[Any], message: str, made: Callable[[str], tuple[Any, Path]]
) -> None:
    with pytest.raises(ValueError, match=message):
        Generator(made("32")[1]).generate(prompt)


def test_a_seed_gives_the_same_tokens(made: Callable[[str], tuple[Any, Path]]) -> None:
    generator = Generator(made("32")[1])

    def draw(seed: int) -> list[int]:
        sampling = Sampling(temperature=2.0, top_k=50, top_p=0.9, seed=seed)
        return list(generator.generate([4, 5], max_new_tokens=30, sampling=sampling))

    assert draw(1) == draw(1) != draw(2)


def test_an_end_token_ends_it(tmp_path: Path, made: Callable[[str], tuple[Any, Path]]) -> None:
    model, _ = made("32")
    want, _ = greedy(model, [9, 8, 7], 12)
    model.config.eos_token_id = want[-1]
    path = tmp_path / "ends.pte"
    lower_llama(model, max_context_len=CONTEXT).save(path)
    model.config.eos_token_id = None
    generator = Generator(path)
    assert list(generator.generate([9, 8, 7])) == want[: want.index(want[-1])]
    assert generator.statistics.ended == "end"
    on = generator.generate([9, 8, 7], max_new_tokens=12, ignore_eos=True)
    assert list(on) == want


@pytest.mark.peer
def test_the_file_computes_the_same_on_the_peers_runtime(
    made: Callable[[str], tuple[Any, Path]],
) -> None:
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime as PeerRuntime

    model, path = made("32")
    method = PeerRuntime.get().load_program(str(path)).load_method("forward")
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    (logits,) = method.execute([torch.tensor([prompt]), torch.tensor([0])])
    tokens = []
    for at in range(16):
        tokens.append(int(logits.argmax()))
        (logits,) = method.execute([torch.tensor([tokens[-1:]]), torch.tensor([len(prompt) + at])])
    assert tokens == greedy(model, prompt, 16)[0]


def test_another_program_is_refused(tmp_path: Path) -> None:
    import edgewise

    program = edgewise.compile(torch.nn.Linear(2, 2), torch.ones(1, 2), verbose=False)
    path = tmp_path / "linear.pte"
    program.save(path)
    with pytest.raises(ValueError, match="must have a method forward"):
        Generator(path)


def test_export_and_run_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.pte"
    assert main(["llm", "export", "--config", "tiny", "--output", str(path)]) == 0
    assert "random, seed 0" in capsys.readouterr().out
    run = ["llm", "run", str(path), "--prompt-tokens", "5 6", "--max-new-tokens", "4"]
    assert main(run) == 0
    out, told = capsys.readouterr()
    assert "prompt: 2 tokens" in told
    assert "ended:  as many tokens as wanted" in told
    assert main([*run, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [str(token) for token in found["tokens"]] == out.split()
    assert found["text"] is None
    assert (found["prompt_tokens"], found["new_tokens"], found["ended"]) == (2, 4, "length")
