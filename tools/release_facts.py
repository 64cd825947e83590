"""Prints what a release of ExecuTorch can run, as JSON: run with the release's environment.

    PYTHONPATH=RELEASE python tools/release_facts.py

operators: those with a kernel in its Python runtime, the quantized and the llama library's
included. nodes: kinds of the XNNPACK delegate's payload, from the schema that the wheel carries.
`tests/interop/releases/matrix.py --facts` joins those of all releases in
`src/edgewise/emit/releases.json`.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path


def load_libraries() -> None:
    """The kernels beside the portable ones."""
    import executorch
    import torch

    with contextlib.suppress(ImportError):
        import executorch.kernels.quantized
    try:
        from executorch.extension.llm.custom_ops import custom_ops
    except ImportError:  # of a torchao that fits another release
        for root in map(Path, executorch.__path__):
            for library in root.rglob("libcustom_ops_aot_lib*"):
                torch.ops.load_library(str(library))


def operators() -> list[str]:
    from executorch.extension.pybindings import portable_lib

    load_libraries()
    return sorted(portable_lib._get_operator_names())


def nodes() -> list[str]:
    import executorch

    # A namespace: another release in the environment below comes after.
    folder = Path(next(iter(executorch.__path__)))
    schema = (folder / "backends/xnnpack/serialization/runtime_schema.fbs").read_text()
    union = re.search(r"union XNodeUnion \{(.*?)\}", schema, re.DOTALL)
    assert union is not None
    return re.findall(r"XNN(\w+)", re.sub(r":\s*\w+", "", union[1]))


if __name__ == "__main__":
    print(json.dumps({"operators": operators(), "nodes": nodes()}))
