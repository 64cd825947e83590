"""Greedy tokens of a Llama: our file on our runtime against the same model in eager PyTorch.

The model has the configuration of `llm.py` and random weights. As they come from `transformers`
such weights end in one token repeated, so that the text would say little: matrices are `--gain`
times as large and the norms' weights between 0.5 and 1.5. Eager PyTorch decodes with
`generate(do_sample=False)` of `transformers`; in 8da4w with int8 embeddings, weights dequantized
once and activations quantized in every call by torchao. Each side has a process of its own.

Where activations are quantized, a value between two of their steps goes to one or the other by
the last bit of a sum, and each layer multiplies the values that so differ. Deep models with random
weights, whose best tokens are hardly ahead of others, then have no one text: eager PyTorch is no
nearer to itself. So eager's control computes eager's text once more, the embeddings off by 1e-6,
and all are compared along that text:

- free: tokens equal when each side goes on with its own.
- equal: best tokens that are eager's, of --count; ours and the control's.
- largest: the largest difference of any logit; ours and the control's.
- beyond: places where ours has another best token though eager's is ahead by more than the
  control differs.

The exit code is 0 if there is no such place and ours differs at most twice as much as the control;
with --scheme float32, if all tokens are equal.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import add_cache_options, report

NORM_WEIGHTS = (0.5, 1.5)


def decode_eagerly(options: argparse.Namespace, file: Path, arrays: Path) -> None:
    """Writes the .pte and what PyTorch generates: the prompt, the tokens, their logits."""
    import torch
    from torchao.quantization import IntxUnpackedToInt8Tensor

    from edgewise.llm.config import read_config
    from edgewise.llm.export import lower_llama, quantize_llama, random_llama

    torch.set_num_threads(options.threads)
    ends = {"bos_token_id": None, "eos_token_id": None}
    model = random_llama({**read_config(options.config), **ends}, options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(*NORM_WEIGHTS, generator=generator)
            elif "embed" not in name:
                weight.mul_(options.gain)
    if options.scheme == "8da4w":
        model = quantize_llama(model, options.group_size)
    if options.refresh or not file.exists():
        lower_llama(model, max_context_len=options.context).save(file)

    dequantize = IntxUnpackedToInt8Tensor.dequantize
    known: dict[int, Any] = {}

    def dequantize_once(weight: Any, *args: Any, **kwargs: Any) -> Any:
        place = weight.qdata.data_ptr()
        if place not in known:
            known[place] = dequantize(weight, *args, **kwargs)
        return known[place]

    IntxUnpackedToInt8Tensor.dequantize = dequantize_once
    prompt = torch.randint(0, model.config.vocab_size, (1, options.prompt), generator=generator)
    with torch.no_grad():
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=options.count,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        )
        model.model.embed_tokens.register_forward_hook(
            lambda module, inputs, output: output * (1 + 1e-6 * torch.randn_like(output))
        )
        control = model(made.sequences[:, :-1]).logits[0, options.prompt - 1 :]
    tokens = made.sequences[0, options.prompt :]
    logits = torch.cat(made.logits)
    np.savez(arrays, prompt=prompt[0], tokens=tokens, logits=logits, control=control)


def compare(options: argparse.Namespace, file: Path, arrays: Path) -> tuple[dict[str, Any], bool]:
    """The row of the table, and whether it is as it should be. Torch is not imported."""
    from edgewise.llm import Generator
    from edgewise.runtime import Runtime

    with np.load(arrays) as saved:
        names = ("prompt", "tokens", "logits", "control")
        prompt, want, logits, control = (saved[name] for name in names)
    generator = Generator(file, threads=options.threads)
    free = np.array(list(generator.generate(prompt.tolist(), max_new_tokens=len(want))))

    method = Runtime.get().load_program(file, threads=options.threads).load_method("forward")
    ours = np.empty_like(logits)
    place, part = 0, prompt
    for step in range(len(want)):
        ours[step] = method.execute([part.reshape(1, -1), np.array([place])])[0].reshape(-1)
        place, part = place + len(part), want[step : step + 1]

    best = np.sort(logits, axis=1)[:, -2:]
    lead = best[:, 1] - best[:, 0]
    noise = np.abs(control - logits).max()
    other = ours.argmax(1) != want
    beyond = int((other & (lead > noise)).sum())
    count = len(want)
    row: dict[str, Any] = {
        "free": f"{int((free == want).sum())}/{count}",
        "equal": f"{count - int(other.sum())}/{count}",
        "control's": f"{int((control.argmax(1) == want).sum())}/{count}",
        "largest": float(np.abs(ours - logits).max()),
        "control's ": float(noise),
        "logits' deviation": float(logits.std()),
        "median lead": float(np.median(lead)),
        "beyond": beyond,
        "different tokens": len(set(want.tolist())),
    }
    if options.scheme == "float32":
        return row, bool((free == want).all())
    return row, beyond == 0 and row["largest"] <= 2 * noise


def main() -> int:
    """Runs the two sides and prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--eager", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--config", default="300m", choices=("tiny", "300m"))
    parser.add_argument("--scheme", default="8da4w", choices=("8da4w", "float32"))
    parser.add_argument("--group-size", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the prompt")
    parser.add_argument("--gain", type=float, default=2)
    parser.add_argument("--prompt", type=int, default=32, help="tokens")
    parser.add_argument("--count", type=int, default=64, help="new tokens")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser)
    options = parser.parse_args()
    if options.eager:
        decode_eagerly(options, *options.eager)
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    name = f"equality-{options.config}-{options.scheme}-{options.group_size}-{options.seed}"
    name += f"-{options.gain:g}-{options.prompt}-{options.count}"
    file, arrays = (options.cache / f"{name}.{suffix}" for suffix in ("pte", "npz"))
    if options.refresh or not arrays.exists():
        print("eager PyTorch: quantize, lower, generate ...", file=sys.stderr, flush=True)
        again = [sys.executable, "-W", "ignore", *sys.argv]
        subprocess.run([*again, "--eager", str(file), str(arrays)], check=True)
    row, as_it_should = compare(options, file, arrays)
    title = f"Llama {options.config}, {options.scheme}, random weights (seed {options.seed}, "
    report(title + f"gain {options.gain:g}): ours and eager PyTorch", [row], [], options.json)
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
