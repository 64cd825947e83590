"""Runs a `.pte` file so many times on ExecuTorch's native module, under qemu-user.

    python peer.py MODEL.pte INPUTS.npz CALLS FOLDER

The outputs are written to FOLDER/output_0.npy, ....

`executorch` imports much that a run does not need; the packages above the module are stubs here.
"""

import sys
from pathlib import Path
from types import ModuleType

OPERATORS = (
    "kernels/quantized/libquantized_ops_aot_lib.so",
    "extension/llm/custom_ops/libcustom_ops_aot_lib.so",
)
"""Libraries of kernels beside the module's own: of quantized arrays and of language models."""


def stub(name: str, folder: Path) -> None:
    """A package without its `__init__`."""
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


def main(model: str, inputs: str, calls: int, folder: str) -> None:
    """One thread, as ours."""
    import numpy as np
    import torch

    (root,) = (Path(p, "executorch") for p in sys.path if Path(p, "executorch").is_dir())
    for name in ("", ".extension", ".extension.pybindings"):
        stub(f"executorch{name}", root.joinpath(*name.split(".")))
    from executorch.extension.pybindings import _portable_lib

    for name in OPERATORS:
        for library in root.glob(name):
            torch.ops.load_library(library)
    _portable_lib._unsafe_reset_threadpool(1)
    with np.load(inputs) as arrays:
        tensors = tuple(torch.from_numpy(arrays[name]) for name in arrays.files)
    program = _portable_lib._load_for_executorch(model)
    for _ in range(calls):
        outputs = program.run_method("forward", tensors)
    for number, output in enumerate(outputs):
        np.save(Path(folder, f"output_{number}.npy"), output.numpy())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
