"""ExecuTorch's script for language models, unchanged, over edgewise and over ExecuTorch.

`python -m executorch.examples.models.llama.export_llama` with the options that its documentation
shows, on models with random weights. For each: seconds of the whole command, size of the file, and
milliseconds for a token in ExecuTorch's `portable_lib`, or what is served under this name. Then
how many of 24 greedy tokens are eager PyTorch's (of float models, both sides), and how many are
those of ExecuTorch's file on its runtime: edgewise's file here and there, ExecuTorch's file here.
Last the cosine of the angle between the prompt's logits of edgewise here and of ExecuTorch there.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import add_cache_options, number, report

HERE = Path(__file__).resolve().parent
SIDES = {"edgewise": ["-m", "edgewise.compat"], "executorch": []}
SCRIPT = ["-m", "executorch.examples.models.llama.export_llama"]

SMALL = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 512,
    "multiple_of": 32,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "use_scaled_rope": False,
}
_HF = {"use_hf_rope": True, "hidden_dim": 128}
SHAPES: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "qwen2": {**SMALL, **_HF, "attention_qkv_bias": True},
    "qwen3": {**SMALL, **_HF, "head_dim": 32, "use_qk_norm": True, "qk_norm_before_rope": True},
    "phi-4": {**SMALL, **_HF, "partial_rotary_factor": 0.75},
    "experts": {
        **SMALL,
        "hidden_dim": 128,
        "moe": True,
        "num_experts": 4,
        "num_activated_experts": 2,
    },
    "110M": {
        **SMALL,
        "dim": 768,
        "n_layers": 12,
        "n_heads": 12,
        "n_kv_heads": 12,
        "vocab_size": 32000,
    },
}
_SDPA = "-kv --use_sdpa_with_kv_cache"
_XNNPACK = "-X --xnnpack-extended-ops"
_4BITS = "-qmode 8da4w -G 32"
# Shape | is float | options.
CASES: dict[str, tuple[str, bool, str]] = {
    "float32": ("small", True, f"{_SDPA} {_XNNPACK} -d fp32"),
    "float32, portable kernels": ("small", True, f"{_SDPA} -d fp32"),
    "float32, attention taken apart": ("small", True, f"-kv {_XNNPACK} -d fp32"),
    "bfloat16": ("small", True, f"{_SDPA} {_XNNPACK} --xnnpack-enable-bf16 -d bf16"),
    "8da4w in bfloat16": (
        "small",
        False,
        f"{_SDPA} {_XNNPACK} --xnnpack-enable-bf16 {_4BITS} -d bf16",
    ),
    "all logits": ("small", True, f"{_SDPA} {_XNNPACK} --generate_full_logits -d fp32"),
    "8da4w": ("small", False, f"{_SDPA} {_XNNPACK} {_4BITS} -d fp32"),
    "8da4w, linear layers alone": ("small", False, f"{_SDPA} -X {_4BITS} -E 8,0 -d fp32"),
    "8da4w, embeddings of 4 bits": ("small", False, f"{_SDPA} {_XNNPACK} {_4BITS} -E 4,32 -d fp32"),
    "8da4w in float16": ("small", False, f"{_SDPA} {_XNNPACK} {_4BITS} -d fp16"),
    "8da4w, int8 cache": (
        "small",
        False,
        f"{_SDPA} --quantize_kv_cache {_XNNPACK} {_4BITS} -d fp32",
    ),
    "int8 weights": ("small", False, f"{_SDPA} {_XNNPACK} -qmode int8 -d fp32"),
    "PT2E, dynamic": ("small", False, f"{_SDPA} -X --pt2e_quantize xnnpack_dynamic -d fp32"),
    "PT2E, dynamic, 4 bits": (
        "small",
        False,
        f"{_SDPA} -X --pt2e_quantize xnnpack_dynamic_qc4 -d fp32",
    ),
    "Qwen2's shape": ("qwen2", False, f"{_SDPA} {_XNNPACK} {_4BITS} -d fp32"),
    "Qwen3's shape": ("qwen3", False, f"{_SDPA} {_XNNPACK} {_4BITS} -d fp32"),
    "Phi-4-mini's shape": ("phi-4", False, f"{_SDPA} {_XNNPACK} {_4BITS} -d fp32"),
    "experts": ("experts", False, f"{_SDPA} {_XNNPACK} {_4BITS} -d fp32"),
    "110M, 8da4w": ("110M", False, f"{_SDPA} {_XNNPACK} {_4BITS} -E 8,0 -d fp32"),
}


def python(*arguments: str | Path, cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    """With two threads for what computes by OpenMP."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )


def worker(side: str, what: str, *arguments: str | Path) -> dict[str, Any]:
    """The worker's figures; none if it failed."""
    done = python(*SIDES[side], HERE / "_llama_script.py", what, *arguments)
    if done.returncode != 0:
        print(f"{side}, {what}: {_last_line(done)}", file=sys.stderr)
        return {}
    lines = done.stdout.strip().splitlines()
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


def measure(case: str, folder: Path) -> dict[str, Any]:
    """One row."""
    shape, is_float, options = CASES[case]
    folder = folder / shape
    if not (folder / "model.pth").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        worker("executorch", "checkpoint", folder, json.dumps(SHAPES[shape]))
    row: dict[str, Any] = {"options": case}
    given = ["--checkpoint", "model.pth", "--params", "params.json", *options.split()]
    given += ["--max_seq_length", "128", "--max_context_length", "128"]
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for side, arguments in SIDES.items():
        file = folder / f"{side}.pte"
        file.unlink(missing_ok=True)
        start = time.perf_counter()
        done = python(*arguments, *SCRIPT, *given, "--output_name", file.name, cwd=folder)
        seconds = time.perf_counter() - start
        if not file.is_file():
            print(f"{case}, {side}: {_last_line(done)}", file=sys.stderr)
            continue
        row[f"{side}: s"] = seconds
        row[f"{side}: kB"] = file.stat().st_size / 1e3
        for runtime in SIDES:
            made[side, runtime] = worker(runtime, "file", file)
        row[f"{side}: token ms"] = made[side, side].get("seconds", float("nan")) * 1e3
    if is_float:
        want = worker("executorch", "eager", folder).get("tokens")
        row["as eager"] = " ".join(_same(made.get((s, s)), want) for s in SIDES)
    want = made.get(("executorch", "executorch"), {}).get("tokens")
    row["cosine"] = _cosine(made)
    orders = (("edgewise", "edgewise"), ("edgewise", "executorch"), ("executorch", "edgewise"))
    row["as there"] = " ".join(_same(made.get(order), want) for order in orders)
    return row


def _cosine(made: dict[tuple[str, str], dict[str, Any]]) -> float | None:
    pair = [made.get((side, side), {}).get("logits") for side in SIDES]
    if None in pair:
        return None
    here, there = (np.asarray(logits) for logits in pair)
    return float(here @ there / np.sqrt((here @ here) * (there @ there)))


def _same(found: dict[str, Any] | None, want: list[int] | None) -> str:
    """Tokens up to the first that is another."""
    if not found or not want:
        return "-"
    same = [a == b for a, b in zip(found["tokens"], want, strict=True)]
    return str(same.index(False) if False in same else len(same))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="*", help="those whose names start so; default: all")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    add_cache_options(parser, refresh=False)
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if options.cases and not case.startswith(tuple(options.cases)):
            continue
        row = measure(case, options.cache / "llama_script")
        print(", ".join(f"{key} {number(value)}" for key, value in row.items()), file=sys.stderr)
        rows.append(row)
    report("ExecuTorch's script for language models", rows, [], options.json)


if __name__ == "__main__":
    main()
