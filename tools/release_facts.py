"""What releases of ExecuTorch can run, as JSON.

    python tools/release_facts.py probes FOLDER                         in this environment
    PYTHONPATH=RELEASE python tools/release_facts.py FOLDER > 1.3.json  in the release's
    python tools/release_facts.py join 1.0.json 1.1.json ...            the table, oldest first

operators: those with a kernel in its Python runtime, the quantized and the llama library's
included. nodes: kinds of the XNNPACK delegate's payload, from the schema that the wheel carries.
limits: what a kernel has to be asked for to be refused or to compute something else, by `probes`.
The table, `src/edgewise/inspect/releases.json`, says of each since when it is there, or right;
`make interop` checks it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def probes() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What some releases refuse or get wrong: an operator, a space, and of what."""
    import torch

    aten = torch.ops.aten
    whole, line = torch.tensor([[7, -7, 2], [0, 5, -1]]), torch.linspace(-2, 2, 768)
    rows, picked = line.reshape(32, 24), torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    return {
        "aten::_log_softmax.out float16": (
            lambda x: aten._log_softmax(x, 1, False), (rows.half(),),
        ),
        "aten::_log_softmax.out bfloat16": (
            lambda x: aten._log_softmax(x, 1, False), (rows.bfloat16(),),
        ),
        "aten::_upsample_bilinear2d_aa.out bytes": (
            lambda x: aten._upsample_bilinear2d_aa(x, [5, 7], False),
            ((line * 60 + 128).to(torch.uint8).reshape(1, 3, 16, 16),),
        ),
        "aten::_upsample_bilinear2d_aa.out images": (
            lambda x: aten._upsample_bilinear2d_aa(x, [5, 7], False), (line.reshape(1, 3, 16, 16),),
        ),
        "aten::remainder.Scalar_out integers": (lambda i: aten.remainder(i, 4), (whole,)),
        "aten::remainder.Tensor_out integers": (aten.remainder, (whole, whole.abs() + 1)),
        "aten::gather.out int32 indices": (lambda x, i: aten.gather(x, 1, i), (rows, picked)),
        "aten::scatter.src_out int32 indices": (
            lambda x, i: aten.scatter(x, 1, i, x), (rows, picked),
        ),
        "aten::scatter.value_out int32 indices": (
            lambda x, i: aten.scatter(x, 1, i, 3.0), (rows, picked),
        ),
        "aten::scatter_add.out int32 indices": (
            lambda x, i: aten.scatter_add(x, 1, i, x), (rows, picked),
        ),
        "aten::_log_softmax.out float64": (
            lambda x: aten._log_softmax(x, 1, False), (rows.double(),),
        ),
        "aten::add.out alpha and one element first": (
            lambda a, b: aten.add(a, b, alpha=3), (line[:1], rows),
        ),
        "aten::sub.out alpha and one element first": (
            lambda a, b: aten.sub(a, b, alpha=3), (line[:1], rows),
        ),
        "aten::index_select.out int32 indices": (
            lambda x, i: aten.index_select(x, 0, i), (rows, picked[0]),
        ),
        "aten::index.Tensor_out int32 indices": (
            lambda x, i: aten.index(x, [i]), (rows, picked[0]),
        ),
    }  # fmt: skip


def write_probes(folder: Path) -> None:
    """A program for each, undelegated, with its inputs and the outputs of eager PyTorch."""
    import torch

    import edgewise
    from edgewise.emit import ExecutorchBackendConfig

    class Module(torch.nn.Module):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, *inputs: Any) -> Any:
            return self.function(*inputs)

    folder.mkdir(parents=True, exist_ok=True)
    for name, (function, inputs) in probes().items():
        edge = edgewise.to_edge_transform_and_lower(
            torch.export.export(Module(function), inputs), partitioner=[]
        )
        file = folder / f"{name}.pte"
        edge.to_executorch(ExecutorchBackendConfig(runtime="edgewise")).save(file)
        torch.save({"inputs": inputs, "output": function(*inputs)}, file.with_suffix(".pt"))


def limits(folder: Path) -> dict[str, bool]:
    """Whether the release is right, by probe. Each in a process of its own: it may crash."""
    found = {}
    for file in sorted(folder.glob("*.pte")):
        child = os.fork()
        if child == 0:
            os._exit(0 if _is_right(file) else 1)
        found[file.stem] = os.waitpid(child, 0)[1] == 0
    return found


def _is_right(file: Path) -> bool:
    import torch
    from executorch.extension.pybindings import portable_lib

    record = torch.load(file.with_suffix(".pt"))
    try:
        module = portable_lib._load_for_executorch(str(file))
        (y,) = module.run_method("forward", tuple(record["inputs"]))
    except Exception:
        return False
    return torch.allclose(y.double(), record["output"].double(), rtol=1e-2, atol=1e-2)


def load_libraries() -> None:
    """The kernels beside the portable ones."""
    import executorch
    import torch

    # First: kernels register with the runtime that is loaded already.
    from executorch.extension.pybindings import portable_lib  # noqa: F401

    with contextlib.suppress(ImportError):
        import executorch.kernels.quantized
    try:
        import executorch.extension.llm.custom_ops.custom_ops
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


def joined(files: list[Path]) -> dict[str, dict[str, str | None]]:
    """The first release of those that follow each other up to the last one."""
    table: dict[str, dict[str, str | None]] = {"operators": {}, "nodes": {}, "limits": {}}
    for file in files:
        facts = json.loads(file.read_text().strip().splitlines()[-1])
        for kind, since in table.items():
            if kind != "limits":
                table[kind] = {name: since.get(name, file.stem) for name in sorted(facts[kind])}
            else:
                table[kind] = {
                    name: (since.get(name) or file.stem) if is_right else None
                    for name, is_right in sorted(facts[kind].items())
                }
    table["limits"] = {
        name: since for name, since in table["limits"].items() if since != files[0].stem
    }
    return table


if __name__ == "__main__":
    if sys.argv[1:2] == ["join"]:
        print(json.dumps(joined([Path(name) for name in sys.argv[2:]]), indent=0))
    elif sys.argv[1:2] == ["probes"]:
        write_probes(Path(sys.argv[2]))
    else:
        facts = {"operators": operators(), "nodes": nodes(), "limits": limits(Path(sys.argv[1]))}
        print(json.dumps(facts))
