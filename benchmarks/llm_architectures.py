"""Greedy tokens of each architecture: its file on both runtimes against eager PyTorch.

Small models with random weights: matrices several times as large as they are drawn, the norms'
weights spread, so that the text is not one token repeated. The prompt is longer than one call takes
and than a sliding window, and the text goes on beyond both. Eager PyTorch computes the whole text
anew for each token, without a cache, with the masks of `transformers`.

- float64: tokens of the same model with all sums in float64, up to the first that is not eager's.
- ours, peer: of the file, here and on ExecuTorch, likewise.
- difference: largest of a logit to eager's along its text, in units of their deviation.

The exit code is 0 if ours and the peer's are eager's wherever float64's are.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import report
from torch.overrides import TorchFunctionMode

PROMPT, CHUNK, CONTEXT = 45, 32, 100
_GAIN = 4


def small_model(architecture: Any, layers: int = 2) -> Any:
    """Random weights of a size at which one token stands out, norms included."""
    from edgewise.llm.config import PRESETS
    from edgewise.llm.export import random_model

    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    model = random_model(
        {
            **PRESETS["tiny"],
            "model_type": architecture.model_types[0],
            "num_hidden_layers": layers,
            "tie_word_embeddings": False,
            **ends,
            **architecture.small,
        }
    )
    model.generation_config.eos_token_id = None
    generator = torch.Generator().manual_seed(0)
    # Gemma's norms multiply by one more than the weight.
    least = 0.0 if "gemma" in model.config.model_type else 0.5
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(least + torch.rand(weight.shape, generator=generator))
            elif weight.dim() > 1:
                weight.mul_(_GAIN)
            else:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    return model


def prompt_of(model: Any, length: int = PROMPT) -> list[int]:
    """Random tokens."""
    return np.random.default_rng(0).integers(0, model.config.vocab_size, length).tolist()


class InFloat64(TorchFunctionMode):
    """Within it, what a model computes in float32 on purpose is computed in float64."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def wider(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            return args[0].double()
        kwargs = {k: wider(v) for k, v in (kwargs or {}).items()}
        return function(*map(wider, args), **kwargs)


def greedy(model: Any, prompt: list[int], count: int) -> tuple[list[int], list[Any]]:
    """Tokens, and the logits of each. Without a cache."""
    tokens, logits = list(prompt), []
    with torch.no_grad():
        for _ in range(count):
            logits.append(model(torch.tensor([tokens]), use_cache=False).logits[0, -1])
            tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt) :], logits


def greedy_in_float64(model: Any, prompt: list[int], count: int) -> list[int]:
    """The same weights, activations quantized by the same rules, all sums in float64."""
    from _eager_llama import in_float64

    from edgewise.llm.export.experts import with_linear_experts

    model = in_float64(with_linear_experts(model))
    with InFloat64():
        return greedy(model, prompt, count)[0]


def along(
    execute: Callable[[Any, int], Any], prompt: list[int], tokens: list[int]
) -> Iterator[Any]:
    """The logits before each of the tokens. execute: takes tokens [1, S] and their position."""
    logits: Any = None
    for first in range(0, len(prompt), CHUNK):
        logits = execute(np.array([prompt[first : first + CHUNK]]), first)
    for position, token in enumerate(tokens, len(prompt)):
        yield np.asarray(logits).reshape(-1)
        logits = execute(np.array([[token]]), position)


def ours(path: Path) -> Callable[[Any, int], Any]:
    """The file's method on our runtime."""
    from edgewise.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    return lambda tokens, position: method.execute([tokens, np.array([position])])[0]


def peers(path: Path) -> Callable[[Any, int], Any]:
    """The file's method on ExecuTorch's."""
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(str(path))
    method = program.load_method("forward")
    keep = (program, method)
    return lambda tokens, position: keep[1].execute(
        [torch.from_numpy(tokens), torch.tensor([position])]
    )[0]


def same(tokens: list[int], want: list[int]) -> int:
    """How many there are before the first that differs."""
    pairs = zip(tokens, want, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(want))


def row_of(architecture: Any, scheme: str, options: argparse.Namespace) -> dict[str, Any]:
    """Of the table that the script prints."""
    from edgewise.llm.export import lower_model, quantize_model
    from edgewise.llm.export.quantization import Recipe

    model = small_model(architecture, options.layers)
    if scheme != "none":
        model = quantize_model(model, Recipe(scheme))
    program = lower_model(
        model, max_context_len=CONTEXT, max_seq_len=CHUNK, kv_cache_dtype=options.kv_cache_dtype
    )
    prompt = prompt_of(model)
    want, logits = greedy(model, prompt, options.count)
    row: dict[str, Any] = {
        "architecture": architecture.name,
        "scheme": scheme,
        "different tokens": len(set(want)),
        "delegates": len(program.delegation_report().delegates),
        "float64": same(greedy_in_float64(model, prompt, options.count), want),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        program.save(path)
        frameworks = {"ours": ours} if options.no_peer else {"ours": ours, "peer": peers}
        for name, framework in frameworks.items():
            try:
                found = list(along(framework(path), prompt, want))
            except Exception as failure:  # the peer's runtime has no one class
                row[name] = f"{type(failure).__name__}: {str(failure).splitlines()[0][:60]}"
                continue
            row[name] = same([int(one.argmax()) for one in found], want)
            gaps = (
                float(np.abs(a - b.numpy()).max() / b.std())
                for a, b in zip(found, logits, strict=True)
            )
            row[f"difference {name}"] = max(gaps)
    return row


def main() -> int:
    """Prints the table."""
    from edgewise.llm.export import KV_CACHE_DTYPES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="model types; default: all")
    parser.add_argument("--scheme", action="append", help="none, 8da4w, ...; repeatable")
    parser.add_argument("--count", type=int, default=32, help="new tokens")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--kv-cache-dtype", default="float32", choices=KV_CACHE_DTYPES)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    from edgewise.llm.architectures import ARCHITECTURES

    rows = []
    for architecture in ARCHITECTURES:
        if options.names and not set(options.names) & set(architecture.model_types):
            continue
        for scheme in options.scheme or ("none", "8da4w"):
            rows.append(row_of(architecture, scheme, options))
            print(rows[-1], file=sys.stderr, flush=True)
    report("Architectures: tokens of files and of eager PyTorch", rows, [], options.json)
    frameworks = [name for name in ("ours", "peer") if name in rows[0]]
    told = [
        isinstance(row[name], int) and row[name] < row["float64"]
        for row in rows
        for name in frameworks
    ]
    return int(any(told))


if __name__ == "__main__":
    sys.exit(main())
