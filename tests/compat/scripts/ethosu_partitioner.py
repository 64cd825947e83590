import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import (
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import PartitionResult
from torch.fx.passes.operator_support import OperatorSupportBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.ReLU()).eval()
sample_inputs = (torch.randn(1, 4, 8, 8),)

compile_spec = EthosUCompileSpec(
    "ethos-u55-128",
    system_config="Ethos_U55_High_End_Embedded",
    memory_mode="Shared_Sram",
)
quantizer = EthosUQuantizer(compile_spec)
quantizer.set_global(get_symmetric_quantization_config())

prepared = prepare_pt2e(torch.export.export(model, sample_inputs).module(), quantizer)
prepared(*sample_inputs)
quantized = convert_pt2e(prepared)


class Everything(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        return True


partitioner = EthosUPartitioner(compile_spec, additional_checks=[Everything()])
exported = torch.export.export(quantized, sample_inputs)
kept, keep = partitioner.ops_to_not_decompose(exported)
assert all(isinstance(op, torch._ops.OpOverload) for op in kept)
assert keep is None or callable(keep)

edge = to_edge_transform_and_lower(
    exported, partitioner=[partitioner], compile_config=EdgeCompileConfig(_check_ir_validity=False)
)
result = partitioner.partition(to_edge_transform_and_lower(exported).exported_program())
assert isinstance(result, PartitionResult)
assert len(result.partition_tags) == 1
et_program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
