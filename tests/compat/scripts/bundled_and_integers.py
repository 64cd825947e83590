# Integers at a quantized program's borders, and calls to try a file by, as ExecuTorch's
# documentation and examples do it.
import torch
from executorch.backends.nxp.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from executorch.backends.nxp.quantizer.utils import calibrate_and_quantize
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir import EdgeCompileConfig, to_edge
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.passes.quantize_io_pass import (
    QuantizeInputs,
    QuantizeOutputs,
    extract_io_quant_params,
    get_config_method_name,
)
from executorch.extension.export_util.utils import export_to_edge, save_pte_program
from executorch.extension.pybindings.portable_lib import (
    _load_bundled_program_from_buffer,
    _load_for_executorch,
    _load_for_executorch_from_bundled_program,
)
from executorch.extension.pytree import tree_flatten

model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
x = torch.randn(2, 8)

# Integers in and out.
quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
quantized = calibrate_and_quantize(torch.export.export(model, (x,)), [(x,)], quantizer)
config = EdgeCompileConfig(_check_ir_validity=False)
edge = to_edge(torch.export.export(quantized, (x,)), compile_config=config)
both = edge.transform([QuantizeInputs(edge, [0]), QuantizeOutputs(edge, [0])])
alike = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
assert both.config_methods == alike.config_methods
prog = both.to_backend(XnnpackPartitioner()).to_executorch()
path = save_pte_program(prog, "integers", ".")
module = _load_for_executorch(path)
scale, zero = (
    module.run_method(get_config_method_name(None, kind, 0, key), ())[0]
    for kind, key in (("input", "scale"), ("input", "zp"))
)
told = extract_io_quant_params(edge, input_idxs=(0,), output_idxs=(0,))
assert list(told["inputs"].values()) == [{"scale": scale, "zero_point": zero}]
assert list(told["outputs"].values())[0]["scale"] == module.run_method("output0_scale", ())[0]
stored = (x / scale + zero).round().clamp(-128, 127).to(torch.int8)
(y,) = module.forward((stored,))
assert y.dtype == torch.int8
real = (y.int() - module.run_method("output0_zp", ())[0]) * module.run_method("output0_scale", ())[0]
torch.testing.assert_close(real, quantized(x), rtol=0, atol=0.01)

# A file with calls.
edge = export_to_edge(model, (x,))
assert "call_delegate" in str(to_backend(edge.exported_program(), XnnpackPartitioner()).graph)
prog = edge.to_backend(XnnpackPartitioner()).to_executorch()
cases = [MethodTestCase(tree_flatten((x,))[0], model(x)), MethodTestCase((x,), model(x + 1))]
bundle = BundledProgram(prog, [MethodTestSuite("forward", cases)])
data = serialize_from_bundled_program_to_flatbuffer(bundle)
assert deserialize_from_flatbuffer_to_bundled_program(data).version == 2
module = _load_bundled_program_from_buffer(data)
module.verify_result_with_bundled_expected_output("forward", 0, 1e-4, 1e-5)
try:
    module.verify_result_with_bundled_expected_output("forward", 1, 1e-4, 1e-5)
except RuntimeError:
    pass
else:
    raise AssertionError("another result was taken")
(y,) = _load_for_executorch_from_bundled_program(module).forward((x,))
torch.testing.assert_close(y, model(x))
