import torch
from executorch.backends.nxp.backend.custom_delegation_options import CustomDelegationOptions
from executorch.backends.nxp.backend.neutron_target_spec import NeutronTargetSpec
from executorch.backends.nxp.neutron_partitioner import NeutronPartitioner
from executorch.backends.nxp.nxp_backend import (
    NeutronCompileSpecBuilder,
    generate_neutron_compile_spec,
)
from executorch.backends.nxp.quantizer.neutron_quantizer import NeutronQuantizer
from executorch.exir import to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.ReLU()).eval()
sample_inputs = (torch.randn(1, 8, 8, 8),)
target = NeutronTargetSpec("imxrt700")

prepared = prepare_pt2e(
    torch.export.export(model, sample_inputs).module(), NeutronQuantizer(target)
)
prepared(*sample_inputs)
quantized = convert_pt2e(prepared)

compile_spec = generate_neutron_compile_spec(
    "imxrt700", extra_flags=None, operators_not_to_delegate=[], neutron_converter_flavor="reference"
)
built = NeutronCompileSpecBuilder().neutron_compile_spec(
    "imxrt700", neutron_converter_flavor="reference"
).build()
assert [spec.key for spec in built] == [spec.key for spec in compile_spec]

et_program = to_edge_transform_and_lower(
    torch.export.export(quantized, sample_inputs),
    partitioner=[
        NeutronPartitioner(
            compile_spec,
            target,
            custom_delegation_options=CustomDelegationOptions(allow_no_op_partitions=False),
        )
    ],
).to_executorch()
