"""Whole models, both ways: files made here on the peer's runtime, the peer's files on ours.

Each output within 1e-4, relative to the largest output, of eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import edgewise
from support import DEEP, assert_close, eager, eager64, export, operators, run_ours, run_peer

pytestmark = pytest.mark.peer

# The two largest (ResNet-50, ViT-B/16) run from benchmarks/.
MODELS = ["mobilenet_v2", "mobilenet_v3_small", "resnet18", "bert_small", "tiny_cnn", "tiny_mlp"]
Case = tuple[torch.export.ExportedProgram, tuple[torch.Tensor, ...], list[torch.Tensor]]


@pytest.fixture(scope="module")
def case() -> Callable[[str], Case]:
    """Exported once; inputs other than those of the export; eager's outputs."""
    from examples.models import MODELS as SPECS

    made: dict[str, Case] = {}

    def get(name: str) -> Case:
        if name not in made:
            spec = SPECS[name]
            module, inputs = spec.build(0), spec.example_inputs(1)
            # The language model's mask is made of float32's limits, which float64 refuses.
            reference = eager if name == "bert_small" else eager64
            made[name] = export(module, spec.example_inputs(0)), inputs, reference(module, inputs)
        return made[name]

    return get


@pytest.mark.parametrize("backend", ["xnnpack", "none"])
@pytest.mark.parametrize("name", MODELS)
def test_our_file_on_both_runtimes(name: str, backend: str, case: Callable[[str], Case]) -> None:
    if backend == "none" and name not in ("bert_small", "tiny_cnn", "tiny_mlp"):
        pytest.skip("portable kernels take seconds for an image of 224x224")
    program, inputs, expected = case(name)
    pte = edgewise.compile(program, backend=backend).buffer
    assert_close(run_ours(pte, inputs)[0], expected, floor=DEEP)
    assert_close(run_peer(pte, inputs)[0], expected, floor=DEEP)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_peers_file_on_our_runtime(
    name: str, case: Callable[[str], Case], peer_pte: Callable[..., bytes]
) -> None:
    program, inputs, expected = case(name)
    pte = peer_pte(name, program)
    assert "delegate" in operators(pte)
    assert_close(run_ours(pte, inputs)[0], expected, floor=DEEP)


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("tiny")])
def test_our_file_is_not_larger(name: str, case: Callable[[str], Case], peer_pte: Any) -> None:
    program, *_ = case(name)
    assert len(edgewise.compile(program).buffer) <= len(peer_pte(name, program))
