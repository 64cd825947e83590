"""ExecuTorch's script for language models: its own files, over what is served under its names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
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
    given = f"--checkpoint model.pth --params params.json -kv {options} -d fp32 -n {name}"
    script = "executorch.examples.models.llama.export_llama"
    _python(folder, "-m", "edgewise.compat", "-m", script, *given.split())
    made = _here(folder / name)
    assert made == _there(folder / name)
    same = OPTIONS[options]
    assert made[:same] == json.loads((folder / "eager.json").read_text())[:same]
