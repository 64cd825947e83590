"""Calibration and accuracy on shards, next to one process over all data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.xnnpack.lowering.quantizer import XNNPACKQuantizer
from edgewise.edge.export import export_module
from edgewise.quantize import observers
from edgewise.quantize._torchao import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    convert_pt2e,
    prepare_pt2e,
)
from edgewise.quantize.flow import configured
from edgewise.quantize.masks import ScoresObserver
from edgewise.quantize.observers import HistogramObserver
from edgewise.quantize.schemes import scheme_of
from edgewise.scale import LocalEngine, ShardedMetric, calibrate, evaluate
from edgewise.scale.metrics import METRICS, as_metric
from edgewise.scale.observers import merged, observers_of, set_state, state_of
from edgewise.scale.portable import Portable, pack
from edgewise.scale.shards import PRELOAD
from examples.models import MODELS

MOST_SHIFT = 1.0
"""Bins that a histogram's mass lies from the one-process histogram's, on average. A merge moves
a value by less than a bin; 0.3 was seen."""
MOST_NOISE = 1.05
"""Mean square of the rounding error with the merged ranges, by that with one process's. The
search for a range stops at the first step that does not help: where several are as good, it may
stop at another. 1.02 was seen."""


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(2, preload=PRELOAD) as made:
        yield made


def prepared(name: str) -> Any:
    spec = MODELS[name]
    quantizer = configured(XNNPACKQuantizer, scheme_of("int8"))
    return prepare_pt2e(export_module(spec.build(), spec.example_inputs(0)).module(), quantizer)


def growing(name: str, count: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches of different magnitudes, so that ranges of histograms grow now and then."""
    for seed in range(count):
        inputs = MODELS[name].example_inputs(seed)
        yield tuple(x * (0.5 + seed % 7) if x.is_floating_point() else x for x in inputs)


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_mlp"])
def test_calibration(engine: LocalEngine, name: str) -> None:
    alone, sharded = prepared(name), prepared(name)
    with torch.no_grad():
        for batch in growing(name, 20):
            alone(*batch)
    assert calibrate(sharded, growing(name, 20), engine=engine, shard=6) == 20

    wanted, found = (observers_of(dict(m.named_modules())) for m in (alone, sharded))
    assert wanted.keys() == found.keys()
    kinds = {type(observer) for observer in wanted.values()}
    assert kinds == {HistogramObserver, observers.PerChannelMinMaxObserver}
    for place, observer in wanted.items():
        other = found[place]
        assert torch.equal(observer.min_val, other.min_val), place
        assert torch.equal(observer.max_val, other.max_val), place
        if isinstance(observer, HistogramObserver):
            counts, others = observer.histogram.double(), other.histogram.double()
            assert float(others.sum()) == pytest.approx(float(counts.sum()), rel=1e-5)
            assert _shift(counts, others) < MOST_SHIFT, place
            noises = [_noise(observer, *o.calculate_qparams()) for o in (observer, other)]
            assert noises[1] < MOST_NOISE * noises[0], place
    with torch.no_grad():
        outputs = [convert_pt2e(m)(*MODELS[name].example_inputs(3)) for m in (alone, sharded)]
    one, other = (torch.utils._pytree.tree_leaves(o)[0] for o in outputs)
    assert float((one - other).square().mean()) < 0.02 * float(one.square().mean())


def test_one_shard_is_as_one_process(engine: LocalEngine) -> None:
    alone, sharded = prepared("tiny_cnn"), prepared("tiny_cnn")
    with torch.no_grad():
        for batch in growing("tiny_cnn", 5):
            alone(*batch)
    calibrate(sharded, growing("tiny_cnn", 5), engine=engine, shard=5)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, sharded.state_dict()[name]), name


def test_what_was_seen_before_counts(engine: LocalEngine) -> None:
    model = prepared("tiny_cnn")
    batch = MODELS["tiny_cnn"].example_inputs(0)
    with torch.no_grad():
        model(batch[0] * 100)
    before = {n: o.max_val.clone() for n, o in observers_of(dict(model.named_modules())).items()}
    calibrate(model, [batch], engine=engine)
    after = observers_of(dict(model.named_modules()))
    assert all(torch.equal(after[name].max_val, value) for name, value in before.items())


class Accumulates(nn.Module):
    """Adds to a tensor that no input reaches."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(1, 4)
        total += x
        return nn.functional.linear(total, torch.ones(2, 4))


def test_what_no_input_reaches_is_made_for_each_batch() -> None:
    quantizer = configured(XNNPACKQuantizer, scheme_of("int8"))
    model = prepare_pt2e(export_module(Accumulates(), (torch.zeros(1, 4),)).module(), quantizer)
    run = Portable(pack(model))
    for _ in range(3):
        run(torch.ones(1, 4))
    seen = {float(observer.max_val.max()) for observer in run.observers.values()}
    assert seen == {0.0, 1.0, 4.0}


def test_calibration_refuses(engine: LocalEngine) -> None:
    with pytest.raises(ValueError, match=r"\[calibrate\] data must hold at least one batch"):
        calibrate(prepared("tiny_mlp"), [], engine=engine)
    with pytest.raises(RuntimeError, match=r"shard 0 must come through; got error: \[calibrate\] "
                                           r"a batch must have 1 inputs; got 2"):  # fmt: skip
        calibrate(prepared("tiny_mlp"), [(torch.zeros(1, 16),) * 2], engine=engine)
    with pytest.raises(TypeError, match="got MovingAverageMinMaxObserver at a, which depends on"):
        observers_of({"a": MovingAverageMinMaxObserver()})


def observed(kind: Any, *batches: torch.Tensor, **options: Any) -> Any:
    observer = kind(**options)
    for batch in batches:
        observer(batch)
    return observer


@pytest.mark.parametrize(
    "kind",
    [
        MinMaxObserver,
        PerChannelMinMaxObserver,
        HistogramObserver,
        observers.MinMaxObserver,
        observers.PerChannelMinMaxObserver,
        ScoresObserver,
    ],
    ids=lambda k: f"{k.__module__.partition('.')[0]}-{k.__name__}",
)
def test_merging_states(kind: Any) -> None:
    parts = [torch.randn(4, 300) * scale for scale in (1, 3, 0.1, 3)]
    states = [state_of(observed(kind, part)) for part in parts]
    nothing = state_of(kind())
    assert nothing == {}
    total = nothing
    for state in [*states, nothing]:
        total = merged(total, state)
    result = kind()
    set_state(result, total)
    whole = observed(kind, *parts)
    assert torch.equal(result.min_val, whole.min_val)
    assert torch.equal(result.max_val, whole.max_val)
    if kind is HistogramObserver:
        assert float(result.histogram.sum()) == pytest.approx(4 * 1200)
        # Against the histogram of all values at once: exact counts in the same bins.
        exact = torch.histc(
            torch.cat(parts), whole.bins, float(whole.min_val), float(whole.max_val)
        ).double()
        assert _shift(exact, result.histogram.double()) < MOST_SHIFT
    scale, _ = result.calculate_qparams()
    assert torch.isfinite(scale).all()


def test_a_constant_is_merged_into_its_bin() -> None:
    constant = state_of(observed(HistogramObserver, torch.full((10,), 0.25)))
    spread = state_of(observed(HistogramObserver, torch.linspace(0, 1, 2049)))
    total = merged(constant, spread)
    assert float(total["counts"][512]) >= 10
    assert float(total["counts"].sum()) == pytest.approx(2059)


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y


def test_evaluation(engine: LocalEngine) -> None:
    model = Scores()
    program = edgewise.compile(model, (torch.zeros(1, 8),), verbose=False)
    x = torch.randn(50, 8)
    labels = torch.where(torch.arange(50) % 3 == 0, 0, model(x).argmax(1))
    pairs = list(zip(x.split(1), labels.split(1), strict=True))
    right = 100 * int((model(x).argmax(1) == labels).sum()) / 50
    assert 0 < right < 100
    assert evaluate(program, iter(pairs), "top1", engine=engine, shard=7) == {"top1 %": right}
    file = program.buffer
    errors = evaluate(file, [(x[:1], model(x[:1]).detach() + 0.5)], "mae", engine=engine)
    assert errors["MAE"] == pytest.approx(0.5, abs=1e-5)
    with pytest.raises(ValueError, match="needs the float model"):
        evaluate(file, pairs, "sqnr", engine=engine)
    with pytest.raises(RuntimeError, match="shard 0 must come through"):
        evaluate(b"not a program", pairs, "top1", engine=engine)
    with pytest.raises(ValueError, match="at least one batch"):
        evaluate(file, [], "top1", engine=engine)


METRIC_CASES = [
    ("top1", [[1, 5, 2], [9, 1, 1]], [1, 1], None, {"top1 %": 50.0}),
    ("top5", [[1, 2, 3, 4, 5, 6, 7]], [2], None, {"top5 %": 100.0}),
    ("top5", [[1, 2, 3, 4, 5, 6, 7]], [1], None, {"top5 %": 0.0}),
    ("agreement", [[1, 5], [5, 1]], None, [[0, 9], [0, 9]], {"agreement %": 50.0}),
    ("sqnr", [[1.0, 0.9]], None, [[1.0, 1.0]], {"SQNR dB": 10 * math.log10(2 / 0.01)}),
    ("sqnr", [[1.0, 1.0]], None, [[1.0, 1.0]], {"SQNR dB": 200.0}),
    ("sqnr", [[math.nan, 1.0]], None, [[1.0, 1.0]], {"SQNR dB": -200.0}),
    ("mae", [[1.0, 3.0]], [[0.0, 0.0]], None, {"MAE": 2.0}),
    ("mse", [[1.0, 3.0]], [[0.0, 0.0]], None, {"MSE": 5.0}),
    (lambda outputs, target: outputs.sum(), [[1.0, 3.0]], None, None, {"<lambda>": 4.0}),
    (lambda outputs, target: {"a": 1, "b": target}, [[1.0]], 3, None, {"a": 1.0, "b": 3.0}),
]


@pytest.mark.parametrize(("metric", "outputs", "target", "reference", "figures"), METRIC_CASES)
def test_metrics(metric: Any, outputs: Any, target: Any, reference: Any, figures: Any) -> None:
    once, twice, other = (as_metric(metric) for _ in range(3))
    given = (np.array(outputs), target, None if reference is None else np.array(reference))
    once.add(*given)
    twice.add(*given)
    other.add(*given)
    twice.merge(other)
    assert dict(once.result()) == pytest.approx(figures)
    assert dict(twice.result()) == pytest.approx(figures), "a mean of the same twice"


def test_metrics_are_named() -> None:
    with pytest.raises(ValueError, match="must be one of top1, top5"):
        as_metric("top3")
    assert as_metric(METRICS["top1"]()) is not METRICS["top1"]


def _shift(counts: torch.Tensor, others: torch.Tensor) -> float:
    """The earth mover's distance in bins."""
    difference = counts / counts.sum() - others / others.sum()
    return float(difference.cumsum(0).abs().sum())


def _noise(histogram: Any, scale: Any, zero: Any) -> float:
    """Mean square of the error of rounding what was seen."""
    low, high = float(histogram.min_val), float(histogram.max_val)
    fine = 8
    counts = histogram.histogram.double().repeat_interleave(fine) / fine
    values = low + (high - low) * (torch.arange(counts.numel()).double() + 0.5) / counts.numel()
    scale, zero = float(scale), float(zero)
    rounded = ((values / scale).round() + zero).clamp(histogram.quant_min, histogram.quant_max)
    return float((counts * ((rounded - zero) * scale - values).square()).sum() / counts.sum())


def _scored(count: int) -> tuple[nn.Module, torch.Tensor, list[tuple[torch.Tensor, int]]]:
    """A small classifier, its inputs, and pairs of which it has most right."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3).eval(), torch.randn(count, 1, 4)
    wrong = torch.arange(count) % 5 == 0
    targets = torch.where(wrong, 0, model(x)[:, 0].argmax(1))
    return model, x, [(one, int(target)) for one, target in zip(x, targets, strict=True)]


def gap(outputs: Any, target: Any) -> dict[str, float]:
    """Two figures."""
    ordered = np.sort(np.asarray(outputs).reshape(-1))
    return {"first": float(ordered[-1]), "second": float(ordered[-2])}


@pytest.mark.parametrize(
    ("metric", "options"),
    [("top1", {}), ("mae", {}), (gap, {"figure": "second"})],
    ids=["share", "error", "one of several"],
)
def test_a_metric_of_programs_on_shards(
    engine: LocalEngine, metric: Any, options: dict[str, Any]
) -> None:
    """Of the float model here and of its program by workers: the same, larger for better."""
    model, x, pairs = _scored(40)
    if metric == "mae":
        pairs = [(one, model(one).detach() + 0.25) for one, _ in pairs]
    of = ShardedMetric(metric, iter(pairs), engine=engine, shard=7, **options)
    program = edgewise.compile(model, (x[0],), verbose=False)
    here, there = of(model), of(program)
    assert there == pytest.approx(here, rel=1e-5)
    if metric == "mae":
        assert here == pytest.approx(-0.25)
    if metric == "top1":
        right = sum(int(model(one).argmax()) == target for one, target in pairs)
        assert here == 100 * right / 40


def test_a_choice_by_workers_is_the_choice_here(engine: LocalEngine) -> None:
    model, x, pairs = _scored(40)

    def top1(run: Any) -> float:
        return 100 * sum(int(run(one).argmax()) == target for one, target in pairs) / 40

    def choice(metric: Any) -> list[dict[str, Any]]:
        made = edgewise.compile(
            model, (x[0],), quantize="auto", calibration=list(x), verbose=False,
            budget=edgewise.Budget(metric=metric, drop=0.0),
        )  # fmt: skip
        trials: list[dict[str, Any]] = made.delegation_report().choice["trials"]
        return [{k: v for k, v in t.items() if k not in ("latency", "seconds")} for t in trials]

    found = choice(ShardedMetric("top1", pairs, engine=engine, shard=8))
    assert found == choice(top1)
    assert found[-1]["kept"]


REFUSED_METRICS: dict[str, tuple[dict[str, Any], str]] = {
    "without data": ({"metric": "top1", "data": []}, "at least one pair; got none"),
    "of the float model": ({"metric": "sqnr", "data": [(0, 0)]}, "got 'sqnr'; try top1, top5"),
    "unknown": ({"metric": "top3", "data": [(0, 0)]}, "must be one of top1"),
}


@pytest.mark.parametrize("name", REFUSED_METRICS)
def test_metrics_that_are_refused(name: str) -> None:
    options, message = REFUSED_METRICS[name]
    with pytest.raises(ValueError, match=message):
        ShardedMetric(**options)


def test_which_of_several_figures(engine: LocalEngine) -> None:
    model, _, pairs = _scored(4)
    with pytest.raises(ValueError, match="one of 'first', 'second'; got None"):
        ShardedMetric(gap, pairs, engine=engine)(model)
