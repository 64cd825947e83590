"""A release's own lowering of a net of the matrix. Runs in the release's environment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import (
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)


def lower(variant: Any) -> tuple[bytes, bytes | None]:
    """The `.pte` file, and the weights beside it, or None if they stay in it."""
    model, inputs = variant.model(), variant.calls()[0]
    modules = model if isinstance(model, dict) else {"forward": model}
    if variant.quantize is not None:
        modules = {name: quantized(m, inputs, variant) for name, m in modules.items()}
    with torch.no_grad():
        programs = {
            name: torch.export.export(m, inputs, dynamic_shapes=variant.net.dynamic)
            for name, m in modules.items()
        }
    if variant.net.config == "packed":
        made = with_packed_embeddings(programs)
    else:
        made = edge(programs, variant.net.config == "bfloat16")
    if variant.net.config != "external":
        return made.to_executorch().buffer, None
    program = made.to_executorch(ExecutorchBackendConfig(external_constants=True))
    with tempfile.TemporaryDirectory() as folder:
        program.write_tensor_data_to_file(folder)
        (file,) = Path(folder).iterdir()
        return program.buffer, file.read_bytes()


def edge(programs: dict[str, Any], bfloat16: bool) -> Any:
    """In one step; in two where the release keeps linear layers of branches whole, and then
    refuses them. bfloat16: in the delegate, too, where the release knows of it."""
    try:
        partitioner = XnnpackPartitioner(**({"enable_bf16": True} if bfloat16 else {}))
    except TypeError:
        partitioner = XnnpackPartitioner()
    try:
        return to_edge_transform_and_lower(programs, partitioner=[partitioner])
    except RuntimeError as cause:
        if "was not decomposed or delegated" not in str(cause):
            raise
        return to_edge(programs).to_backend(partitioner)


def with_packed_embeddings(programs: dict[str, Any]) -> Any:
    """Its embedding kernels on packed 4 and 8 bits, in place of torchao's dequantization. Nothing
    is delegated: its passes for XNNPACK do not take such a program."""
    from executorch.exir.passes.constant_prop_pass import constant_prop_pass
    from executorch.exir.passes.quant_fusion_pass import QuantFusionPass, _get_node_value_dict
    from release_facts import load_libraries

    load_libraries()
    made = to_edge(programs, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    values = _get_node_value_dict(made.exported_program())
    made = made.transform([QuantFusionPass(_fix_node_meta_val=True, node_value_dict=values)])
    constant_prop_pass(made.exported_program())
    return made


def four_bits() -> Any:
    """torchao's configuration for dynamic 8-bit inputs and 4-bit weights in groups of 32, under
    the name that it has there."""
    try:
        from torchao.quantization import Int8DynamicActivationInt4WeightConfig as Config
    except ImportError:
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.granularity import PerGroup

        return Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(32)
        )
    return Config(group_size=32)


def quantized(module: Any, inputs: tuple[Any, ...], variant: Any) -> Any:
    """Its XNNPACKQuantizer for 8 bits, torchao's configuration for 4."""
    if variant.quantize == "int4-dynamic":
        from torchao.quantization import quantize_

        quantize_(module, four_bits())
        return module
    if variant.quantize not in ("int8", "int8-dynamic"):
        raise NotImplementedError(f"no {variant.quantize} in the release's recipes")
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    dynamic = variant.quantize == "int8-dynamic"
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    exported = torch.export.export(module, inputs, dynamic_shapes=variant.net.dynamic).module()
    prepared = prepare_pt2e(exported, XNNPACKQuantizer().set_global(config))
    prepared(*inputs)
    return convert_pt2e(prepared)
