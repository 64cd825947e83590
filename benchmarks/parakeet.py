"""A Parakeet's encoder: our file on both runtimes, and ExecuTorch's own file; they take turns.

The shape of parakeet-tdt-0.6b-v3 with random weights and --layers of its 24 layers, for sounds of 5
and 30 s. Our file takes sounds of any length, ExecuTorch's own one is lowered by its own
partitioners for each of the two; in float32, and with linear layers in 8da8w (by torchao).
Milliseconds are medians; `of the best` is the median of the rounds' ratios to the faster of
ExecuTorch's two. The differences are those of the first results, in units of their deviation.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _common import report
from _two_runtimes import measure, options_of

SECONDS = (5, 30)
SCHEMES = ("none", "8da8w")
BANDS = 128


def model(layers: int) -> Any:
    """In float32, for inference."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    encoder = transformers.ParakeetEncoderConfig(
        num_hidden_layers=layers, num_mel_bins=BANDS, attention_bias=False, convolution_bias=False
    )
    torch.manual_seed(0)
    config = transformers.ParakeetTDTConfig(encoder_config=encoder)
    return transformers.ParakeetForTDT(config).eval().requires_grad_(False)


def make_ours(scheme: str, layers: int, path: Path) -> None:
    """One file for sounds of up to 30 s."""
    from edgewise.llm.export import lower_model, quantize_model
    from edgewise.llm.export.quantization import Recipe

    made = model(layers)
    lower_model(made if scheme == "none" else quantize_model(made, Recipe(scheme))).save(path)


def make_peers(scheme: str, layers: int, seconds: int, path: Path) -> None:
    """ExecuTorch's, of the encoder alone."""
    import torch
    from executorch.backends.xnnpack.partition import xnnpack_partitioner as partitioners
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerAxis, quantize_

    class Encoder(torch.nn.Module):
        def __init__(self, whole: Any) -> None:
            super().__init__()
            self.encoder, self.last = whole.encoder, whole.encoder_projector

        def forward(self, features: torch.Tensor) -> Any:
            return self.last(self.encoder(features).last_hidden_state)

    made = Encoder(model(layers))
    chosen: list[Any] = [partitioners.XnnpackPartitioner()]
    if scheme != "none":
        weights = {"weight_dtype": torch.int8, "weight_granularity": PerAxis(0)}
        quantize_(made, Int8DynamicActivationIntxWeightConfig(**weights))
        chosen.insert(0, partitioners.XnnpackDynamicallyQuantizedPartitioner())
    features = (torch.zeros(1, 100 * seconds, BANDS),)
    program = torch.export.export(made, features)
    lowered = to_edge_transform_and_lower(program, partitioner=chosen)
    path.write_bytes(lowered.to_executorch().buffer)


def prepared(maker: str, scheme: str, layers: int, seconds: int, cache: Path) -> Path:
    """A file, made in a process of its own if it is not there."""
    name = f"parakeet{layers}-{maker}-{scheme}" + (f"-{seconds}" if maker == "peers" else "")
    path = cache / f"{name}.pte"
    if not path.exists():
        print(f"{path.name} ...", file=sys.stderr, flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        given = [maker, scheme, str(layers), str(seconds), str(path)]
        subprocess.run([sys.executable, "-W", "ignore", __file__, "--make", *given], check=True)
    return path


def main() -> int:
    """Prints the table; the exit code says whether ours is the fastest throughout."""
    if sys.argv[1:2] == ["--make"]:
        maker, scheme, layers, seconds, path = sys.argv[2:]
        if maker == "ours":
            make_ours(scheme, int(layers), Path(path))
        else:
            make_peers(scheme, int(layers), int(seconds), Path(path))
        return 0
    options = options_of(Path(__file__), __doc__ or "", 7, layers=6)
    if options is None:
        return 0
    random = np.random.default_rng(0)
    rows = []
    for scheme in SCHEMES:
        ours = prepared("ours", scheme, options.layers, 30, options.cache)
        for seconds in SECONDS:
            features = random.standard_normal((1, 100 * seconds, BANDS), np.float32)
            own = prepared("peers", scheme, options.layers, seconds, options.cache)
            both = {"ours": ("ours", ours), "same file": ("executorch", ours)}
            methods = {"own file": "forward"}
            files = {**both, "own file": ("executorch", own)}
            times, results = measure(
                Path(__file__), files, [[features]], options.rounds, "encode", methods
            )
            best = min("same file", "own file", key=lambda name: median(times[name]))
            ratios = [a / b for a, b in zip(times["ours"], times[best], strict=True)]
            want = results["ours"]
            rows.append(
                {
                    "weights": "float32" if scheme == "none" else scheme,
                    "sound": f"{seconds} s",
                    "edgewise ms": 1e3 * median(times["ours"]),
                    "ExecuTorch, the same file": 1e3 * median(times["same file"]),
                    "its own file": 1e3 * median(times["own file"]),
                    "of the best": median(ratios),
                    "difference": max(
                        float(np.abs(results[name] - want).max() / want.std())
                        for name in ("same file", "own file")
                    ),
                }
            )
    title = f"Parakeet's encoder, {options.layers} of 24 layers, two threads"
    report(title, rows, [], options.json)
    return 0 if all(row["of the best"] < 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
