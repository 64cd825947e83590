"""Calibration data are checked before they are used."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewise.quantize import checks
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e
from edgewise.quantize.calibration import as_batch, calibrate
from edgewise.quantize.methods.registry import METHODS as REGISTERED

X = torch.randn(2, 8)
CONFIG = get_symmetric_quantization_config(is_per_channel=True)


def compile(
    calibration: Any, model: nn.Module | None = None, inputs: Any = X, **options: Any
) -> Any:
    return edgewise.compile(
        model or nn.Linear(8, 4),
        inputs,
        quantize="int8",
        calibration=calibration,
        verbose=False,
        **options,
    )


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * scale


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (None, r"\[quantize\] int8 needs calibration data; got none; try calibration="),
        ([], r"calibration must hold at least one batch; got none"),
        (iter(()), r"calibration must hold at least one batch; got none"),
        (
            [X, torch.randn(3, 8)],
            r"batch 1: input 0 must be float32\[2, 8\] .* got float32\[3, 8\]",
        ),
        ([X.double()], r"batch 0: input 0 must be float32\[2, 8\] .* got float64\[2, 8\]"),
        ([(X, X)], r"batch 0 must have 1 inputs; got 2; try a tuple"),
        ([()], r"batch 0 must have 1 inputs; got 0"),
        ([X.numpy()], r"batch 0: input 0 must be a tensor; got ndarray; try torch.from_numpy"),
    ],
)
def test_what_does_not_fit_is_refused(calibration: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile(calibration)


def test_every_input_is_checked() -> None:
    inputs = (X, torch.ones(1))
    with pytest.raises(ValueError, match=r"batch 0 must have 2 inputs; got 1"):
        compile([X], TwoInputs(), inputs)
    with pytest.raises(ValueError, match=r"batch 0: input 1 must be float32\[1\]"):
        compile([(X, torch.ones(2))], TwoInputs(), inputs)
    assert compile([inputs, list(inputs)], TwoInputs(), inputs).buffer


def test_batches_may_come_from_a_generator() -> None:
    taken = []

    def batches() -> Iterator[torch.Tensor]:
        for seed in range(3):
            taken.append(seed)
            yield torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))

    assert compile(batches()).buffer
    assert taken == [0, 1, 2]


def test_ranges_are_those_of_all_batches() -> None:
    """Four times as large inputs, four times as large a scale."""

    def step(*batches: torch.Tensor) -> float:
        from edgewise.backends.xnnpack import XNNPACKQuantizer
        from edgewise.quantize import quantize

        program = quantize(
            nn.Linear(8, 4), (X,), "int8", XNNPACKQuantizer, calibration=batches, progress=False
        )
        return next(
            float(n.args[1]) for n in program.graph.nodes if "quantize_per_tensor" in n.name
        )

    assert step(X, 4 * X) == pytest.approx(4 * step(X), rel=0.05)


def test_sizes_may_differ_where_the_program_takes_any() -> None:
    shapes = ({0: torch.export.Dim("batch", min=1, max=16)},)
    other = torch.randn(5, 8)
    program = compile([X, other], dynamic_shapes=shapes)
    assert edgewise.load(program.buffer)(other).shape == (5, 4)
    with pytest.raises(ValueError, match=r"got float32\[5, 8, 1\]"):
        compile([other.unsqueeze(2)], dynamic_shapes=shapes)


class Shared(nn.Module):
    """A concatenation, all of whose operands and whose result have one scale."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x + 1, x.log() * 2]).reshape(-1)


class Chosen(nn.Module):
    """Computes with the rows that begin with a positive number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.gelu(self.norm(self.first(x[x[:, 0] > 0]))))


SOME = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
NONE = -SOME.abs()
METHODS = (None, *([name] for name in sorted(REGISTERED) if name != "awq"))


@pytest.mark.parametrize("methods", METHODS, ids=str)
def test_batches_that_leave_nothing_tell_nothing(methods: list[str] | None) -> None:
    """Beside others, and where methods look at no others."""
    torch.manual_seed(0)
    model = Chosen().eval()
    options: dict[str, Any] = {} if methods is None else {"methods": methods}
    for batches in ([NONE, SOME], [SOME, NONE], [NONE] * 33 + [SOME]):
        program = compile(batches, model, SOME, **options)
        (got,) = [torch.as_tensor(edgewise.load(program.buffer)(SOME))]
        with torch.no_grad():
            want = model(SOME)
        assert float((got - want).norm() / want.norm()) < 0.02
    with pytest.raises(ValueError, match=r"\[index: .* must show values; got no elements"):
        compile([NONE], model, SOME, **options)


def test_pieces_whose_sizes_data_decide() -> None:
    """They are not slices with numbers that no node computes."""

    class Pieces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            count: Any = (x[:, 0] > 0).sum().item()
            torch._check(count >= 0)
            torch._check(count <= x.shape[0])
            some, others = x.split([count, x.shape[0] - count])
            return torch.cat([self.first(some), self.last(others)])

    torch.manual_seed(0)
    model = Pieces().eval()
    program = compile([SOME], model, SOME)
    with torch.no_grad():
        want = model(SOME)
    got = torch.as_tensor(edgewise.load(program.buffer)(SOME))
    assert float((got - want).norm() / want.norm()) < 0.02


def test_what_has_no_elements_at_all_is_not_asked_for_any() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([torch.zeros(0, 8), self.fc(x)])

    compile([X], Growing().eval())


def test_what_is_not_finite_is_named() -> None:
    with pytest.raises(ValueError, match=r"\[mul_tensor: .*finite values"):
        compile([X.abs() + 1, -X.abs() - 1], Shared())


def test_each_value_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(checks, "is_finite", lambda value: looked.append(value) or True)
    exported = torch.export.export(Shared(), (X,))
    prepared = prepare_pt2e(exported.module(), XNNPACKQuantizer().set_global(CONFIG))
    observed = [n for n in prepared.graph.nodes if "activation_post_process" in n.name]
    observers = {prepared.get_submodule(str(n.target)) for n in observed}
    with checks.watched_activations(prepared):
        prepared(X.abs() + 1)
    assert len(looked) == len(observed) > len(observers)


def test_gradients_are_not_recorded() -> None:
    weight = torch.ones(8, requires_grad=True)
    seen = []

    def run(x: torch.Tensor) -> None:
        seen.append((x * weight).requires_grad)

    assert calibrate(run, [X, X], (X,), progress=False) == 2
    assert seen == [False, False]


def test_a_tensor_is_a_batch_of_one_input() -> None:
    assert as_batch(X) == (X,)
    assert as_batch([X, 1]) == (X, 1)


def test_the_model_is_not_changed() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    compile([X], model)
    assert model.training
    assert list(before) == list(model.state_dict())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic"])
def test_calibrating_leaves_no_trace_in_buffers(scheme: str) -> None:
    class Total(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4)
            self.register_buffer("total", torch.ones(2, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.fc(self.total)

    model = Total()
    program = edgewise.compile(
        model, X, quantize=scheme, calibration=[X, X, X], keep_float=["fc"], verbose=False
    )
    assert torch.equal(model.total, torch.ones(2, 8))
    run = edgewise.load(program.buffer)
    weight, bias = model.fc.weight.detach(), model.fc.bias.detach()
    for count in (1, 2):
        wanted = (1 + count * X) @ weight.T + bias
        # The sum itself is quantized by "int8": in steps of some 0.02, eight of them added up.
        # A call too many would be off by several units.
        torch.testing.assert_close(torch.as_tensor(run(X)), wanted, rtol=0, atol=0.1)


def test_what_was_quantized_is_not_kept() -> None:
    """Who quantizes many models in one process has the memory of one."""
    kept = []
    for _ in range(2):
        graph = torch.export.export(nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), (X,)).module()
        prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(CONFIG))
        prepared(X)
        kept += [weakref.ref(graph), weakref.ref(prepared), weakref.ref(convert_pt2e(prepared))]
        del graph, prepared
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)


KEYWORDS = {"scale": torch.rand(2, 8) + 0.5, "x": X}


@pytest.mark.parametrize(
    ("inputs", "keywords", "calibration"),
    [
        ((), KEYWORDS, [KEYWORDS]),
        ((), KEYWORDS, [dict(reversed(KEYWORDS.items()))]),
        ((X,), {"scale": KEYWORDS["scale"]}, [((X,), {"scale": KEYWORDS["scale"]})]),
    ],
)
def test_inputs_by_name(inputs: Any, keywords: Any, calibration: Any) -> None:
    torch.manual_seed(0)
    model = TwoInputs().eval()
    program = compile(calibration, model, inputs, example_kwargs=keywords)
    wanted = model(*inputs, **keywords).detach()
    given = [x.numpy() for x in inputs], {name: x.numpy() for name, x in keywords.items()}
    got = torch.from_numpy(edgewise.load(program.buffer)(*given[0], **given[1]))
    assert float((got - wanted).abs().max()) < 0.02 * float(wanted.abs().max())


class Normed(nn.Module):
    """Outliers behind a normalization, which methods find when they see the data."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 8)
        with torch.no_grad():
            self.norm.weight[3] = 300.0

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(self.norm(x * scale)).relu()) + shift


NAMED = [
    {"shift": torch.randn(4, 8), "x": torch.randn(4, 64), "scale": torch.rand(64) + 0.5}
    for _ in range(4)
]


class Placed(nn.Module):
    """The same by position."""

    def __init__(self, model: Normed) -> None:
        super().__init__()
        self.model = model

    def forward(self, shift: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.model(x, scale=scale, shift=shift)


@pytest.mark.parametrize(
    ("scheme", "methods", "group"),
    [
        ("int8", None, None),
        ("int8", ["smooth", "bias-correction", "percentile"], None),
        ("int8", ["gptq"], None),
        ("int4-weight", ["gptq"], 32),
        ("auto", None, None),
    ],
)
def test_methods_see_what_is_given_by_name(
    scheme: str, methods: list[str] | None, group: int | None
) -> None:
    """Integers and scales are those of the model that takes the same by position."""
    torch.manual_seed(0)
    model = Normed().eval()
    options = {"quantize": scheme, "methods": methods, "group_size": group, "verbose": False}
    by_name = edgewise.compile(
        model,
        example_kwargs=NAMED[0],
        calibration=NAMED,
        **options,  # type: ignore[arg-type]
    )
    by_place = edgewise.compile(
        Placed(model).eval(),
        tuple(NAMED[0].values()),
        calibration=[tuple(batch.values()) for batch in NAMED],
        **options,  # type: ignore[arg-type]
    )
    named = {name: value.numpy() for name, value in NAMED[1].items()}
    got = torch.as_tensor(edgewise.load(by_name.buffer)(**named))
    wanted = torch.as_tensor(edgewise.load(by_place.buffer)(*named.values()))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    told = [one.delegation_report().settings for one in (by_name, by_place)]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ([(X, X)], r"batch 0 must be a dict of \['scale', 'x'\], as example_kwargs.*got tuple"),
        ([{"x": X}], r"got \['x'\]"),
        ([{**KEYWORDS, "x": X.double()}], r"input 'x' must be float32.*got float64"),
    ],
)
def test_what_does_not_fit_by_name_is_refused(calibration: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile(calibration, TwoInputs(), (), example_kwargs=KEYWORDS)


def test_nested_inputs_are_checked() -> None:
    class Nested(TwoInputs):
        def forward(self, both: Any) -> torch.Tensor:
            return super().forward(both["x"], both["s"][0])

    good = {"x": X, "s": [X]}
    compile([(good,)], Nested(), (good,))
    for bad, message in [
        ({"x": X, "s": [X.double()]}, r"input 0\['s'\]\[0\] must be float32"),
        (
            {"x": X, "s": (X,)},
            r"must be nested as example_inputs; got .*try \(\{'x': x, 's': \[x\]\},\)",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            compile([(bad,)], Nested(), (good,))


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_exported_program_is_quantized(dynamic: bool) -> None:
    torch.manual_seed(0)
    model = TwoInputs().eval()
    rows = torch.export.Dim("rows", min=1, max=6)
    sizes = {"x": {0: rows}, "scale": {0: rows}} if dynamic else None
    given = X, {"scale": KEYWORDS["scale"]}
    exported = torch.export.export(model, (X,), given[1], dynamic_shapes=sizes)
    program = edgewise.compile(
        exported, quantize="int8", calibration=[((X,), given[1])], verbose=False
    )
    assert "aten.linear" not in str(program.delegation_report())
    loaded = edgewise.load(program.buffer)
    x = torch.cat([X, X, X])[: 6 if dynamic else 2]
    scale = KEYWORDS["scale"].repeat(3, 1)[: len(x)]
    wanted = model(x, scale).detach()
    got = torch.from_numpy(loaded(x.numpy(), scale.numpy()))
    assert 0 < float((got - wanted).abs().max()) < 0.02 * float(wanted.abs().max())
    with pytest.raises(ValueError, match="quantize='int4-weight' is of layers"):
        edgewise.compile(exported, quantize="int4-weight")
