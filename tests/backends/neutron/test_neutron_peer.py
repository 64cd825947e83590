"""The peer's own backend on the same stand-in: the same payloads, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from neutron_cases import IMAGE, Fn, act, conv
from torch import nn
from torch.export import ExportedProgram

import edgewise
from edgewise.backends.neutron import NeutronPartitioner, generate_neutron_compile_spec

pytest.importorskip("ai_edge_litert")
pytest.importorskip("executorch")
pytestmark = [pytest.mark.peer, pytest.mark.litert]

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "conv-relu": (lambda: act(conv(8, 8, 3), nn.ReLU()), (IMAGE,)),
    "linear": (lambda: nn.Linear(16, 8), ((3, 16),)),
    "add": (lambda: Fn(lambda a, b: a + b), (IMAGE, IMAGE)),
    "bmm": (lambda: Fn(torch.bmm), ((2, 8, 8), (2, 8, 8))),
    "pool": (lambda: act(conv(8, 8, 3), nn.MaxPool2d(2)), (IMAGE,)),
}


def quantized(name: str) -> ExportedProgram:
    """By the peer's quantizer."""
    from executorch.backends.nxp.backend.neutron_target_spec import NeutronTargetSpec
    from executorch.backends.nxp.quantizer.neutron_quantizer import NeutronQuantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    make, shapes = MODELS[name]
    torch.manual_seed(0)
    inputs = tuple(torch.randn(shape) for shape in shapes)
    module = torch.export.export(make().eval(), inputs, strict=True).module()
    prepared = prepare_pt2e(module, NeutronQuantizer(NeutronTargetSpec("imxrt700")))
    prepared(*inputs)
    return torch.export.export(convert_pt2e(prepared), inputs, strict=True)


def payloads(manager: Any) -> list[bytes]:
    found = manager.exported_program().graph_module.named_children()
    return [bytes(module.processed_bytes) for _, module in found]


def peers(program: ExportedProgram, **options: Any) -> list[bytes]:
    from executorch.backends.nxp.backend.neutron_target_spec import NeutronTargetSpec
    from executorch.backends.nxp.edge_passes.neutron_edge_pass_manager import (
        NeutronEdgePassManager,
    )
    from executorch.backends.nxp.neutron_partitioner import NeutronPartitioner as PeersPartitioner
    from executorch.backends.nxp.nxp_backend import generate_neutron_compile_spec as spec
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    partitioner = PeersPartitioner(
        spec("imxrt700", **options),
        NeutronTargetSpec("imxrt700"),
        post_quantization_state_dict=program.state_dict,
    )
    return payloads(
        to_edge_transform_and_lower(
            program,
            partitioner=[partitioner],
            transform_passes=NeutronEdgePassManager(),
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
    )


def ours(program: ExportedProgram, **options: Any) -> list[bytes]:
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700", **options))
    return payloads(edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner]))


@pytest.mark.parametrize("converts", [True, False], ids=["npu-converts", "runtime-converts"])
@pytest.mark.parametrize("failing", ["fixed", "version1"])
@pytest.mark.parametrize("name", MODELS)
def test_payloads(stand_in: Callable[..., None], name: str, failing: str, converts: bool) -> None:
    """`fixed`: the blocks do not depend on the program, so that all of the payload is equal;
    else the header is."""
    stand_in("sdk", failing=failing)
    program = quantized(name)
    options = {"use_neutron_for_format_conversion": converts}
    (mine,), (theirs,) = ours(program, **options), peers(program, **options)
    if failing == "fixed":
        assert mine == theirs
    else:
        assert mine[:16] == theirs[:16]
