"""The worker of llama_script.py: a checkpoint, eager PyTorch's tokens, or those of a file."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

PROMPT = [5, 6, 7, 100, 9]
NEW = 24


def write_checkpoint(folder: Path, shape: dict[str, Any]) -> None:
    """`params.json` and random weights, as the script's `--params` and `--checkpoint` take them."""
    model = _model(shape)
    torch.save(model.state_dict(), folder / "model.pth")
    (folder / "params.json").write_text(json.dumps(shape))


def of_eager(folder: Path) -> dict[str, Any]:
    """The whole text is computed again for each token."""
    model = _model(json.loads((folder / "params.json").read_text()))
    model.load_state_dict(torch.load(folder / "model.pth"))
    tokens, text = [], list(PROMPT)
    for _ in range(NEW):
        with torch.no_grad():
            logits = model(torch.tensor([text]))
        tokens.append(int(logits.reshape(-1, logits.shape[-1])[-1].argmax()))
        text.append(tokens[-1])
    return {"tokens": tokens}


def of_file(path: Path) -> dict[str, Any]:
    """With the runtime behind `executorch`. Seconds of the last of three times the same text."""
    import executorch.kernels.quantized  # noqa: F401  (registers kernels)
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    module = _load_for_executorch(str(path))

    def logits_of(tokens: list[int], position: int) -> torch.Tensor:
        (logits,) = module.run_method("forward", (torch.tensor([tokens]), torch.tensor([position])))
        last: torch.Tensor = logits.reshape(-1, logits.shape[-1])[-1]
        return last

    def call(tokens: list[int], position: int) -> int:
        return int(logits_of(tokens, position).argmax())

    for _ in range(3):
        made = [call(PROMPT, 0)]
        start = time.perf_counter()
        for at in range(NEW - 1):
            made.append(call([made[-1]], len(PROMPT) + at))
        seconds = (time.perf_counter() - start) / (NEW - 1)
    return {"tokens": made, "seconds": seconds, "logits": logits_of(PROMPT, 0).tolist()}


def _model(shape: dict[str, Any]) -> torch.nn.Module:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    torch.manual_seed(0)
    lengths = {"max_seq_len": 128, "max_context_len": 128}
    model: torch.nn.Module = construct_transformer(ModelArgs(**shape, **lengths)).eval()
    return model


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "checkpoint":
        write_checkpoint(where, json.loads(sys.argv[3]))
    else:
        print(json.dumps(of_eager(where) if what == "eager" else of_file(where)))
