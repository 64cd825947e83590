"""Greedy tokens of a Llama: our file on our runtime against the same model in eager PyTorch.

The configurations are those of `llm.py`, and 30m: 8 layers of 512, 4096 tokens. The weights:

- learned: trained, in float32 and before it is quantized, until it knows the beginning of this text
  by heart, byte by byte. The prompt is how the text begins. So the best token is well ahead of the
  others, as in models that were trained for longer.
- random: as `edgewise llm export --config` draws them. Their text ends in one token repeated.
- spread: random, but matrices are `--gain` times as large and the norms' weights between 0.5 and
  1.5, so that tokens differ.

--checkpoint: those of a model such as `examples/llm/demo.py` trains; the prompt is random.

Eager PyTorch decodes with `generate(do_sample=False)` of `transformers`; in 8da4w with int8
embeddings, activations quantized in every call by torchao. Each framework has a process of its own.

Where activations are quantized, a value between two of their steps goes to one or the other by
the last bit of a sum, and each layer multiplies the values that so differ. Deep models with random
weights, whose best tokens are hardly ahead of others, then have no one text. So the model is
decoded once more in eager PyTorch with all sums in float64, the weights and the rules of
quantization being the same: how far eager's float32 is from that tells what rounding alone does.

- free: tokens up to the first that is not eager's, each framework going on with its own; ours and
  float64's.
- equal: best tokens that are eager's along eager's text; ours and float64's.
- largest: the largest difference of any logit along that text; of ours and of float64 to eager, of
  ours to float64.
- beyond: places where ours has another best token though eager's is ahead by more than float64
  differs.

The exit code is 0 if all tokens are equal; with random or spread weights in 8da4w, if there is no
place beyond and ours differs from eager at most twice as much as float64 does.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import add_cache_options, report


def decode_eagerly(options: argparse.Namespace, file: Path, arrays: Path) -> None:
    """Writes the .pte and what PyTorch generates: the prompt, the tokens, their logits."""
    import torch
    from _eager_llama import OnceDequantized, draw, generate, in_float64, learn
    from _llm import config_of

    from edgewise.llm.export import load_llama, lower_llama, quantize_llama, random_llama

    torch.set_num_threads(options.threads)
    ends = {"bos_token_id": None, "eos_token_id": None}
    if options.checkpoint:
        model = load_llama(options.checkpoint)
        model.generation_config.eos_token_id = None
    else:
        config = config_of(options.config)
        model = random_llama({**config, **ends}, options.seed)
    if options.weights == "learned":
        text = torch.tensor([list(__doc__.encode())[: options.prompt + options.count]])
        prompt = text[:, : options.prompt]
        learn(model, text)
    else:
        if options.weights == "spread":
            draw(model, options.gain, options.seed)
        generator = torch.Generator().manual_seed(options.seed)
        shape = 1, options.prompt
        prompt = torch.randint(0, model.config.vocab_size, shape, generator=generator)
    if options.scheme == "8da4w":
        model = quantize_llama(model, options.group_size)
    if options.refresh or not file.exists():
        context = min(options.context, model.config.max_position_embeddings)
        lower_llama(model, max_context_len=context).save(file)
    with OnceDequantized():
        eager = generate(model, prompt, options.count)
    model = in_float64(model)
    exact = generate(model, prompt, options.count)
    with torch.no_grad():
        along = model(eager.sequences[:, :-1]).logits[0, options.prompt - 1 :]
    np.savez(
        arrays,
        prompt=prompt[0],
        tokens=eager.sequences[0, options.prompt :],
        logits=torch.cat(eager.logits),
        exact_tokens=exact.sequences[0, options.prompt :],
        exact_logits=along.float(),
    )


def compare(options: argparse.Namespace, file: Path, arrays: Path) -> tuple[dict[str, Any], bool]:
    """The row of the table, and whether it is as it should be. Torch is not imported."""
    from edgewise.llm import Generator
    from edgewise.runtime import Runtime

    with np.load(arrays) as saved:
        names = ("prompt", "tokens", "logits", "exact_tokens", "exact_logits")
        prompt, want, logits, exact_tokens, exact_logits = (saved[name] for name in names)
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
    noise = np.abs(exact_logits - logits).max()
    largest = np.abs(ours - logits).max()
    other = ours.argmax(1) != want
    beyond = int((other & (lead > noise)).sum())
    count = len(want)
    row: dict[str, Any] = {
        "free": f"{_same(free, want)}/{count}",
        "float64's": f"{_same(exact_tokens, want)}/{count}",
        "equal": f"{count - int(other.sum())}/{count}",
        "float64's ": f"{int((exact_logits.argmax(1) == want).sum())}/{count}",
        "largest": float(largest),
        "float64's  ": float(noise),
        "ours to float64": float(np.abs(ours - exact_logits).max()),
        "logits' deviation": float(logits.std()),
        "median lead": float(np.median(lead)),
        "least lead": float(lead.min()),
        "beyond": beyond,
        "different tokens": len(set(want.tolist())),
    }
    if options.scheme == "float32" or options.weights not in ("random", "spread"):
        return row, bool((free == want).all())
    return row, bool(beyond == 0 and largest <= 2 * noise)


def _same(tokens: Any, want: Any) -> int:
    """How many there are before the first that differs."""
    return int(np.append(tokens != want, True).argmax())


def main() -> int:
    """Runs the two frameworks and prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--eager", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--config", default="300m", choices=("tiny", "30m", "300m"))
    parser.add_argument("--weights", default="learned", choices=("learned", "random", "spread"))
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="instead of --config")
    parser.add_argument("--scheme", default="8da4w", choices=("8da4w", "float32"))
    parser.add_argument("--group-size", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the prompt")
    parser.add_argument("--gain", type=float, default=2, help="of spread weights")
    parser.add_argument("--prompt", type=int, default=32, help="tokens")
    parser.add_argument("--count", type=int, default=64, help="new tokens")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser)
    options = parser.parse_args()
    if options.checkpoint:
        options.config, options.weights, options.refresh = options.checkpoint.name, "given", True
    if options.eager:
        decode_eagerly(options, *options.eager)
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    name = f"equality-{options.config}-{options.scheme}-{options.group_size}-{options.weights}"
    name += f"-{options.seed}-{options.gain:g}-{options.prompt}-{options.count}"
    file, arrays = (options.cache / f"{name}.{suffix}" for suffix in ("pte", "npz"))
    if options.refresh or not arrays.exists():
        print("eager PyTorch: quantize, lower, generate ...", file=sys.stderr, flush=True)
        again = [sys.executable, "-W", "ignore", *sys.argv]
        subprocess.run([*again, "--eager", str(file), str(arrays)], check=True)
    row, as_it_should = compare(options, file, arrays)
    weights = options.weights
    if weights == "spread":
        weights += f" (seed {options.seed}, gain {options.gain:g})"
    title = f"Llama {options.config}, {options.scheme}, weights {weights}: ours and eager PyTorch"
    report(title, [row], [], options.json)
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
