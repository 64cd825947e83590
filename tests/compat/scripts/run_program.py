# A file is run and looked at as ExecuTorch's documentation does it.
from pathlib import Path

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
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
