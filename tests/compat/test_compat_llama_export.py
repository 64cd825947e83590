"""ExecuTorch's script for language models: its own files, over what is served under its names."""

from __future__ import annotations

import itertools
import json
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

import edgewise

pytestmark = pytest.mark.peer

PROMPT, NEW = [5, 6, 7, 100, 9], 12
SHAPE = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 256,
    "multiple_of": 32,
    "rope_theta": 10000.0,
    "use_scaled_rope": False,
}
# In a process of its own: the whole text is computed again for each token.
EAGER = f"""
import edgewise.compat.executorch, json, torch
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
torch.manual_seed(0)
model = construct_transformer(ModelArgs(**json.load(open("params.json")), max_seq_len=128)).eval()
torch.save(model.state_dict(), "model.pth")
text = {PROMPT}
for _ in range({NEW}):
    with torch.no_grad():
        text.append(int(model.double()(torch.tensor([text])).flatten().argmax()))
json.dump(text[{len(PROMPT)}:], open("eager.json", "w"))
"""
# Options | tokens that are as eager PyTorch's: all for float models.
OPTIONS = {
    "--use_sdpa_with_kv_cache -X --xnnpack-extended-ops": NEW,
    "--use_sdpa_with_kv_cache --quantize_kv_cache -X -qmode 8da4w -G 32 -E 8,0 -v": 0,
}


def _python(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def _export(folder: Path, options: str, name: str) -> None:
    script = "executorch.examples.models.llama.export_llama"
    given = f"--checkpoint model.pth --params params.json -kv {options} -d fp32 -n {name}"
    _python(folder, "-m", "edgewise.compat", "-m", script, *given.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    (folder / "params.json").write_text(json.dumps(SHAPE))
    _python(folder, "-c", EAGER)
    return folder


def _here(path: Path) -> list[int]:
    model = edgewise.load(path)
    made: list[int] = []
    for tokens, position in _calls(made):
        logits = np.asarray(model(np.array([tokens]), {"input_pos": np.array([position])}))
        made.append(int(logits.reshape(-1, SHAPE["vocab_size"])[-1].argmax()))  # type: ignore[call-overload]
    return made


def _there(path: Path) -> list[int]:
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)  # which has to outlive the method
    method = program.load_method("forward")
    assert method is not None
    made: list[int] = []
    for tokens, position in _calls(made):
        (logits,) = method.execute([torch.tensor([tokens]), torch.tensor([position])])
        made.append(int(logits.reshape(-1, SHAPE["vocab_size"])[-1].argmax()))
    return made


def _calls(made: list[int]):  # type: ignore[no-untyped-def]
    yield PROMPT, 0
    for at in range(NEW - 1):
        yield [made[-1]], len(PROMPT) + at


@pytest.mark.parametrize("options", OPTIONS)
def test_a_file_generates_on_both_runtimes(options: str, folder: Path) -> None:
    name = "net.pte"
    _export(folder, options, name)
    made = _here(folder / name)
    assert made == _there(folder / name)
    same = OPTIONS[options]
    assert made[:same] == json.loads((folder / "eager.json").read_text())[:same]


# Two calls that continue one text, and new texts, all greedy.
RUNNER = """
import json, sys
side, model, tokenizer = sys.argv[1:]
if side == "here":
    import edgewise.compat.executorch
else:
    import executorch.extension.llm.custom_ops.custom_ops, executorch.kernels.quantized
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
runner, told, counts = TextLLMRunner(model, tokenizer), [], []
greedy = GenerationConfig(max_new_tokens=10, temperature=0.0)
for prompt in ("abcdxy", "hello"):
    runner.generate(prompt, greedy, told.append, lambda s: counts.append(s.num_prompt_tokens))
runner.reset()
runner.generate("abc", GenerationConfig(seq_len=8, temperature=0.0, echo=False), told.append)
runner.reset()
runner.prefill("ab", greedy)
runner.generate("c", GenerationConfig(max_new_tokens=4, temperature=0.0), told.append)
try:
    runner.generate("x", GenerationConfig(seq_len=3, temperature=0.0))
except RuntimeError:
    told.append("full")
json.dump(["".join(told), counts], open(f"{side}.json", "w"))
"""


def test_text_by_the_runner_of_both(folder: Path) -> None:
    """A tokenizer of letters and pairs of them, so that each token is text of its own."""
    letters = string.ascii_lowercase
    pairs = list(itertools.product(letters, letters))[: 256 - len(letters)]
    vocabulary = {text: i for i, text in enumerate([*letters, *map("".join, pairs)])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, pairs))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    _export(folder, "--use_sdpa_with_kv_cache -X", "text.pte")
    for side in ("here", "there"):
        _python(folder, "-c", RUNNER, side, "text.pte", "tokenizer.json")
    here, there = (json.loads((folder / f"{side}.json").read_text()) for side in ("here", "there"))
    assert here == there
    assert here[0].startswith("abcdxy")
    assert here[0].endswith("full")
