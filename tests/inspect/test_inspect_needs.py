"""Which releases run a file: said before it is tried. Measured by `make interop`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import edgewise
import edgewise.edge.cache_operators
from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.passes.older_nodes import replace_newer
from edgewise.emit import ExecutorchBackendConfig
from edgewise.errors import EmitError
from edgewise.format.file import read
from edgewise.inspect.needs import facts, needs_of, needs_of_program, runs_on
from edgewise.releases import KNOWN, Target, target_of
from edgewise.runtime import Runtime
from support import Fn, lower

pytestmark = pytest.mark.matrix

M = torch.linspace(-2, 3, 24).reshape(3, 8)
IMAGE = torch.linspace(-2, 3, 240).reshape(2, 4, 6, 5)
HALF = IMAGE.half()
BYTES = torch.arange(240).reshape(2, 4, 6, 5).to(torch.uint8)
N = torch.export.Dim("n", min=2)

ALL, OURS = "ExecuTorch 1.0 and later, edgewise", "edgewise only"
LATER = "ExecuTorch {} and later, edgewise"

# Module, inputs, options | what runs it, why.
CASES: dict[str, tuple[nn.Module, Any, dict[str, Any], str, str]] = {
    "a constant": (Fn(lambda x: x + 1), (M,), {}, ALL, ""),
    "weights": (nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), (M,), {}, ALL, ""),
    "sine": (Fn(torch.sin), (M,), {}, LATER.format("1.1"), "node Sin"),
    "sine undelegated": (Fn(torch.sin), (M,), {"partitioner": None}, ALL, ""),
    "variance": (
        Fn(lambda x: torch.var_mean(x, -1)),
        (M,),
        {"partitioner": None},
        LATER.format("1.3"),
        "aten::var_mean.correction_out",
    ),
    "pooling to a size": (
        nn.AdaptiveAvgPool2d((4, 3)),
        (IMAGE,),
        {"partitioner": None},
        LATER.format("1.3"),
        "aten::_adaptive_avg_pool2d.out",
    ),
    "keys in a cache of another type": (
        Fn(lambda q, k: torch.ops.edgewise.custom_sdpa(q, k, k, 0)),
        (torch.zeros(1, 1, 2, 4), torch.zeros(1, 3, 2, 4, dtype=torch.float16)),
        {},
        OURS,
        "operator llama::custom_sdpa.out of caches of another type",
    ),
    "sorting": (Fn(lambda x: x.sort()[0]), (M,), {}, OURS, "aten::sort.values"),
    "no bound": (nn.Linear(8, 8), (M,), {"dynamic_shapes": ({0: N},)}, OURS, "without a bound"),
    "a kernel that refused float16": (
        Fn(lambda x: F.log_softmax(x, 1)),
        (HALF,),
        {"partitioner": None},
        LATER.format("1.4"),
        "aten::_log_softmax.out, right for float16",
    ),
    "a kernel that was wrong": (
        Fn(lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True)),
        (IMAGE,),
        {},
        LATER.format("1.4"),
        "aten::_upsample_bilinear2d_aa.out, right for images",
    ),
    "the same of bytes": (
        Fn(lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True)),
        (BYTES,),
        {},
        LATER.format("1.4"),
        "aten::_upsample_bilinear2d_aa.out, right for images",
    ),
    "a kernel that refused bfloat16": (
        Fn(lambda x: F.log_softmax(x, 1)),
        (IMAGE.bfloat16(),),
        {"partitioner": None},
        LATER.format("1.4"),
        "aten::_log_softmax.out, right for bfloat16",
    ),
    "convolution in float16": (nn.Conv2d(4, 4, 3).half(), (HALF,), {}, ALL, ""),
    "the same, for 1.5": (
        nn.Conv2d(4, 4, 3).half(),
        (HALF,),
        {"config": ExecutorchBackendConfig(runtime="executorch>=1.5")},
        LATER.format("1.5"),
        "float16 weights of Conv2d",
    ),
    "volumes, in the delegate": (nn.Conv3d(1, 2, 2), (IMAGE.reshape(1, 1, 4, 6, 10),), {}, ALL, ""),
    "volumes": (
        nn.Conv3d(1, 2, 2),
        (IMAGE.reshape(1, 1, 4, 6, 10),),
        {"partitioner": None},
        OURS,
        "aten::convolution.out of volumes",
    ),
    "transposed, for 1.5": (
        nn.ConvTranspose2d(4, 4, 3).half(),
        (HALF,),
        {"config": ExecutorchBackendConfig(runtime="executorch>=1.5")},
        ALL,
        "",
    ),
    "transposed, for edgewise": (
        nn.ConvTranspose2d(4, 4, 3).half(),
        (HALF,),
        {"config": ExecutorchBackendConfig(runtime="edgewise")},
        OURS,
        "float16 weights of ConvTranspose2d",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_needs(name: str) -> None:
    module, inputs, options, expected, why = CASES[name]
    program = lower(module, inputs, **options)
    needs = needs_of(program.buffer)
    assert program.needs() == needs
    assert runs_on(needs) == expected
    assert any(why in str(need) for need in needs) == bool(why)


# Function, inputs: what no release has right as it is, and the default goes around.
RIGHT_EVERYWHERE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "remainder": (lambda i: (i % 4, i % -3, i % (i.abs() + 1), i.int() % 5), (-7, 3)),
    "remainder in a branch": (
        lambda i: torch.cond(i.sum() > 0, lambda i: i % 4, lambda i: i % -4, (i,)),
        (-7, 5),
    ),
    "int32 indices": (
        lambda i: torch.arange(8.0).reshape(2, 4).gather(1, (i.abs() % 4).int()[:, None]),
        (-7, 3),
    ),
    "int32 indices of where to write": (
        lambda i: (
            torch.zeros(2, 4).scatter(1, i.int()[:, None], torch.ones(2, 1)),
            torch.zeros(2, 4).scatter(1, i.int()[:, None], 2.0),
            torch.zeros(2, 4).scatter_add(1, i.int()[:, None], torch.ones(2, 1)),
        ),
        (2, 3),
    ),
    "a share of more, added to one": (lambda i: torch.add(i[:1], i, alpha=3), (2, 5)),
    "a share of truth values, added to one": (
        lambda i: torch.add(i[0].to(torch.int8), i > 3, alpha=3),
        (2, 5),
    ),
    "logarithms in float64": (lambda i: i.double().log_softmax(0), (2, 5)),
}


@pytest.mark.parametrize("name", RIGHT_EVERYWHERE)
def test_what_no_release_has_right_is_gone_around(name: str) -> None:
    function, ends = RIGHT_EVERYWHERE[name]
    x = torch.tensor(ends)
    for runtime, expected in {None: ALL, "executorch>=1.0": ALL, "edgewise": OURS}.items():
        config = ExecutorchBackendConfig(runtime=runtime)
        program = lower(Fn(function), (x,), config=config)
        assert runs_on(program.needs()) == expected
        method = Runtime.get().load_program(program.buffer).load_method("forward")
        for y, wanted in zip(method.execute([x]), tree_leaves(function(x)), strict=True):
            torch.testing.assert_close(torch.from_numpy(y), wanted, rtol=1e-15, atol=0)


# Of others' files: an operator, or None, and a delegate's id | what runs them, why.
FOREIGN: dict[str, tuple[str | None, str, str, str]] = {
    "an operator of ExecuTorch alone": (
        "aten::_fft_r2c.out",
        "XnnpackBackend",
        "ExecuTorch 1.0 and later",
        "operator aten::_fft_r2c.out (from 1.0 on; not in edgewise)",
    ),
    "an operator of nobody": (
        "mine::op.out",
        "XnnpackBackend",
        "applications that add what is missing",
        "operator mine::op.out (no release; not in edgewise)",
    ),
    "a delegate of nobody here": (
        None,
        "CoreMLBackend",
        "ExecuTorch 1.0 and later",
        "delegate CoreMLBackend, where an application has it (from 1.0 on; not in edgewise)",
    ),
}


@pytest.mark.parametrize(
    ("a", "b", "added"),
    [
        ((None, 8), (None, 8), 1),
        ((2, None), (2, None), 1),
        ((None,), (2, None), 2),
        ((1,), (None,), 2),
    ],
)
def test_what_may_be_one_element_is_gone_around(a: Any, b: Any, added: int) -> None:
    """None: an open size, up to 8. How many kernels the sum of one and a share of the other has."""
    inputs = [
        torch.arange(float(math.prod(n or 8 for n in s))).reshape([n or 8 for n in s])
        for s in (a, b)
    ]
    size = torch.export.Dim("n", max=8)
    shapes = tuple({i: size for i, n in enumerate(s) if n is None} for s in (a, b))
    program = lower(
        Fn(lambda x, y: torch.add(x, y, alpha=3)),
        inputs,
        partitioner=None,
        dynamic_shapes=(shapes,),
    )
    assert runs_on(program.needs()) == ALL
    (plan,) = read(program.buffer).program.execution_plan
    assert len(plan.chains[0].instructions) == added


@pytest.mark.parametrize("name", FOREIGN)
def test_needs_of_others(name: str) -> None:
    operator, delegate, expected, why = FOREIGN[name]
    made = lower(nn.Sequential(nn.Linear(8, 8), Fn(torch.atan)), (M,))
    program = read(made.buffer)
    (plan,) = program.program.execution_plan
    if operator is not None:
        plan.operators[0].name, plan.operators[0].overload = operator.split(".")
    plan.delegates[0].id = delegate
    needs = needs_of_program(program.program, program.segments)
    assert runs_on(needs) == expected
    assert [str(need) for need in needs] == [why]


def test_integer_weights_in_floating_point() -> None:
    program = edgewise.compile(
        nn.Linear(64, 8), (torch.rand(2, 64),), quantize="int4-weight", group_size=32, verbose=False
    )
    assert runs_on(program.needs()) == OURS


def test_the_table_is_of_the_releases() -> None:
    table = facts()
    assert table["operators"]["aten::add.out"] == (1, 0)
    assert table["nodes"]["Sin"] == (1, 1)
    assert set(table["operators"].values()) | set(table["nodes"].values()) == set(KNOWN)
    assert table["limits"]["aten::_log_softmax.out float16"] == (1, 4)
    assert table["limits"]["aten::remainder.Scalar_out integers"] is None


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (None, Target((1, 0))),
        ("edgewise", Target(None)),
        ("executorch>=1.3", Target((1, 3), is_strict=True)),
        ("executorch >= 1.4.1", Target((1, 4), is_strict=True)),
    ],
)
def test_targets(text: str | None, target: Target) -> None:
    assert target_of(text) == target


@pytest.mark.parametrize(
    "text", ["executorch", "executorch>=0.7", "executorch>=9.0", "1.3", "", 1.3, ["edgewise"]]
)
def test_other_targets_are_refused(text: Any) -> None:
    error = ValueError if isinstance(text, str) else TypeError
    with pytest.raises(error, match=r"\[runtime\].*try"):
        ExecutorchBackendConfig(runtime=text)
    with pytest.raises(error, match=r"\[runtime\].*try"):
        edgewise.compile(nn.ReLU(), (M,), runtime=text, verbose=False)


def _weighed(module: nn.Module, bits: int) -> nn.Module:
    """torchao's integer weights, which edgewise computes in floating point."""
    from torchao.quantization import quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig

    kind = {4: torch.int4, 8: torch.int8}[bits]
    quantize_(module, IntxWeightOnlyConfig(weight_dtype=kind, granularity=PerGroup(32)))
    return module


ANGLES = torch.linspace(-9000, 9000, 4001)
TOKENS = torch.tensor([1, 5, 3, 7, 3, 0])
COUNTS = torch.arange(-6, 6).reshape(3, 4)
GRID = torch.linspace(-1.2, 1.2, 40).reshape(2, 5, 2, 2)

# Module, inputs, partitioner | what the default needs, the largest difference from eager PyTorch.
# What no release has, or not the first, and what `runtime="executorch>=1.0"` makes of it.
AROUND: dict[str, tuple[Callable[[], nn.Module], Any, bool, str, float]] = {
    "sine": (lambda: Fn(torch.sin), (ANGLES,), True, "node Sin", 1e-6),
    "cosine": (lambda: Fn(lambda x: x.cos() * 2), (ANGLES,), True, "node Cos", 2e-6),
    "variance": (lambda: Fn(lambda x: torch.var_mean(x, 1)), (M,), False, "var_mean", 1e-6),
    "pooling to a size": (
        lambda: nn.AdaptiveAvgPool2d((4, 3)), (IMAGE,), False, "_adaptive_avg_pool2d", 1e-6,
    ),
    "a grid": (
        lambda: Fn(lambda x, g: F.grid_sample(x, g, align_corners=False)),
        (IMAGE, GRID), True, "grid_sampler_2d", 1e-5,
    ),
    "greatest of windows": (
        lambda: nn.AdaptiveMaxPool2d((4, 5), return_indices=True), (torch.rand(1, 2, 7, 8),), True,
        "max_pool2d", 0.0,
    ),
    "sums of bags": (
        lambda: nn.EmbeddingBag(8, 4, mode="sum"), (TOKENS, torch.tensor([0, 2, 2])), True,
        "_embedding_bag", 1e-6,
    ),
    "means of bags": (
        lambda: nn.EmbeddingBag(8, 4, padding_idx=3), (TOKENS.reshape(2, 3),), True,
        "_embedding_bag", 1e-6,
    ),
    "weighted bags": (
        lambda: Fn(
            lambda i, w, t: F.embedding_bag(i, t, mode="sum", per_sample_weights=w),
            t=torch.rand(8, 4),
        ),
        (TOKENS.reshape(3, 2), torch.rand(3, 2)), True, "_embedding_bag", 1e-6,
    ),
    "sorting": (lambda: Fn(lambda x: x.sort(0, descending=True)), (M,), True, "sort", 0.0),
    "shifts": (
        lambda: Fn(lambda i: (i << 2, i >> 1, i << (i & 3))), (COUNTS,), True, "shift", 0.0,
    ),
    "cubic": (
        lambda: nn.Upsample(scale_factor=2, mode="bicubic"), (IMAGE,), True, "bicubic2d", 1e-5,
    ),
    "integer weights": (
        lambda: _weighed(nn.Linear(64, 8), 4), (torch.rand(2, 64),), True, "integer weights", 1e-5,
    ),
    "in a branch": (
        lambda: Fn(
            lambda x: torch.cond(x.sum() > 0, lambda x: x.sort()[0], lambda x: x.sin(), (x,))
        ),
        (M,), True, "sort", 1e-6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_what_a_release_lacks_is_made_of_what_it_has(name: str) -> None:
    make, inputs, delegated, why, tolerance = AROUND[name]
    module = make()
    options: dict[str, Any] = {} if delegated else {"partitioner": None}
    assert any(why in str(need) for need in lower(module, inputs, **options).needs())
    config = ExecutorchBackendConfig(runtime="executorch>=1.0")
    program = lower(module, inputs, config=config, **options)
    assert program.needs() == []
    cost = program.delegation_report().cost_of_target
    assert why in cost
    assert cost in " ".join(str(program.delegation_report()).split())
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    outputs = method.execute(list(inputs))
    for y, expected in zip(outputs, tree_leaves(module(*inputs)), strict=True):
        wide = expected.double()
        scale = max(1.0, float(wide.abs().max()))
        assert float((torch.from_numpy(y).double() - wide).abs().max()) <= tolerance * scale


def test_a_copy_is_a_clamp_without_bounds() -> None:
    source, copied = Value((2, 3), torch.float32), Value((2, 3), torch.float32)
    graph = Graph([Node("Copy", [source], [copied])], [source], [copied])
    for text, kind in {"executorch>=1.0": "Clamp", "executorch>=1.1": "Copy"}.items():
        (node,) = replace_newer(graph, target_of(text)).nodes
        assert (node.kind, node.inputs, node.outputs) == (kind, [source], [copied])
        assert node.clamp == ((-math.inf, math.inf) if kind == "Clamp" else None)


# Module, inputs, options | what is refused.
REFUSED: dict[str, tuple[nn.Module, Any, dict[str, Any], str]] = {
    "a stable sort": (Fn(lambda x: x.sort(stable=True)[0]), (M,), {}, "aten::sort.values_stable"),
    "a running product": (Fn(lambda x: x.cumprod(1)), (M,), {}, "aten::cumprod.out"),
    "no bound": (nn.Linear(8, 8), (M,), {"dynamic_shapes": ({0: N},)}, "a size without a bound"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_target_lacks_is_refused(name: str) -> None:
    module, inputs, options, why = REFUSED[name]
    config = ExecutorchBackendConfig(runtime="executorch>=1.0")
    with pytest.raises(EmitError, match=rf"a file for executorch>=1\.0.*{why}"):
        lower(module, inputs, config=config, **options)
    config = ExecutorchBackendConfig(runtime="executorch>=1.0", missing_kernels="warn")
    with pytest.warns(UserWarning, match=why):
        assert lower(module, inputs, config=config, **options).needs()


def test_the_report_marks_what_needs_a_later_release() -> None:
    report = lower(Fn(torch.sin), (M,)).delegation_report()
    assert report.uses == ["XNNPACK node Sin (from 1.1 on)"]
    assert "runs on ExecuTorch 1.1 and later, edgewise\n  uses XNNPACK node Sin" in str(report)
    assert report.to_dict()["uses"] == report.uses
