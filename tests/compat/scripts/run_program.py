# A file is run and looked at as ExecuTorch's documentation does it.
import io
import tempfile
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.extension.pybindings.portable_lib import (
    _load_for_executorch,
    _load_for_executorch_from_buffer,
    _load_program,
)
from executorch.runtime import Program, Runtime, Verification

runtime = Runtime.get()
assert runtime.backend_registry.is_available("XnnpackBackend")
assert "aten::add.out" in runtime.operator_registry.operator_names

program: Program = runtime.load_program(
    Path("mv2_xnnpack.pte"), verification=Verification.InternalConsistency
)
assert program.method_names == {"forward"}
method = program.load_method("forward")
assert method.metadata.input_tensor_meta(0).sizes() == (1, 3, 224, 224)

x = torch.ones(1, 3, 224, 224)
(output,) = method.execute([x])
assert isinstance(output, torch.Tensor)
assert output.shape == (1, 1000)

module = _load_for_executorch("mv2_xnnpack.pte")
assert module.method_names() == ["forward"]
assert torch.equal(module.forward((x,))[0], output)
assert torch.equal(module.run_method("forward", (x,))[0], output)
assert torch.equal(module(x)[0], output)
program = _load_program("mv2_xnnpack.pte")
assert program.get_method_name(0) == "forward"
try:
    program.get_method_name(1)
except RuntimeError:
    pass
else:
    raise AssertionError("there is one method")

# Weights beside a program, both in memory.
model = torch.nn.Linear(3, 2).eval()
x = torch.randn(1, 3)
made = to_edge(torch.export.export(model, (x,))).to_executorch(
    ExecutorchBackendConfig(external_constants=True)
)
with tempfile.TemporaryDirectory() as folder:
    made.write_tensor_data_to_file(folder)
    (data,) = Path(folder).iterdir()
    module = _load_for_executorch_from_buffer(made.buffer, data.read_bytes())
torch.testing.assert_close(module.forward([x])[0], model(x))
made.dump_executorch_program(out=(text := io.StringIO()))
assert "execution_plan" in text.getvalue()
