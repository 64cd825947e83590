"""Which releases run a file: said before it is tried. Measured by `make interop`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise.emit import ExecutorchBackendConfig
from edgewise.inspect.needs import facts, needs_of, runs_on
from edgewise.releases import KNOWN, Target, target_of
from support import Fn, export, lower

M = torch.linspace(-2, 3, 24).reshape(3, 8)
IMAGE = torch.linspace(-2, 3, 240).reshape(2, 4, 6, 5)
HALF = IMAGE.half()
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
        {},
        ALL,
        "",
    ),
    "sorting": (Fn(lambda x: x.sort()[0]), (M,), {}, OURS, "aten::sort.values"),
    "no bound": (nn.Linear(8, 8), (M,), {"dynamic_shapes": ({0: N},)}, OURS, "without a bound"),
    "convolution in float16": (nn.Conv2d(4, 4, 3).half(), (HALF,), {}, ALL, ""),
    "the same, for 1.5": (
        nn.Conv2d(4, 4, 3).half(),
        (HALF,),
        {"config": ExecutorchBackendConfig(runtime="executorch>=1.5")},
        LATER.format("1.5"),
        "float16 weights of Conv2d",
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


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (None, Target((1, 0))),
        ("edgewise", Target(None)),
        ("executorch>=1.3", Target((1, 3))),
        ("executorch >= 1.4.1", Target((1, 4))),
    ],
)
def test_targets(text: str | None, target: Target) -> None:
    assert target_of(text) == target


@pytest.mark.parametrize("text", ["executorch", "executorch>=0.7", "executorch>=9.0", "1.3", ""])
def test_other_targets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\[runtime\].*try"):
        ExecutorchBackendConfig(runtime=text)


def test_what_a_target_lacks_is_said() -> None:
    config = ExecutorchBackendConfig(runtime="executorch>=1.0")
    with pytest.warns(UserWarning, match=r"executorch>=1.0; it uses XNNPACK node Sin \(from 1.1"):
        lower(Fn(torch.sin), (M,), config=config)


def test_compile_takes_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = nn.Conv2d(16, 16, 3).half()
    inputs = (torch.rand(1, 16, 8, 8).half(),)
    plain = edgewise.compile(module, inputs)
    small = edgewise.compile(module, inputs, runtime="executorch>=1.5")
    assert len(small.buffer) < 0.8 * len(plain.buffer)
    said = capsys.readouterr().err
    assert f"runs on {ALL}" in said
    assert "runs on ExecuTorch 1.5 and later" in said


@pytest.mark.peer
def test_files_of_the_peer() -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = export(nn.Linear(8, 8), (M,))
    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    assert runs_on(needs_of(edge.to_executorch().buffer)) == ALL
