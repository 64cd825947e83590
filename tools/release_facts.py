"""What releases of ExecuTorch can run, as JSON.

    PYTHONPATH=RELEASE python tools/release_facts.py > 1.3.json     in the release's environment
    python tools/release_facts.py join 1.0.json 1.1.json ...        the table of all, oldest first

operators: those with a kernel in its Python runtime, the quantized and the llama library's
included. nodes: kinds of the XNNPACK delegate's payload, from the schema that the wheel carries.
The table, `src/edgewise/inspect/releases.json`, says of each since when it is there;
`make interop` checks it.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path


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


def joined(files: list[Path]) -> dict[str, dict[str, str]]:
    """The first release of those that follow each other up to the last one."""
    table: dict[str, dict[str, str]] = {"operators": {}, "nodes": {}}
    for file in files:
        facts = json.loads(file.read_text().strip().splitlines()[-1])
        for kind, since in table.items():
            here = {"nodes": facts["nodes"], "operators": facts["operators"]}[kind]
            table[kind] = {name: since.get(name, file.stem) for name in sorted(here)}
    return table


if __name__ == "__main__":
    if sys.argv[1:2] == ["join"]:
        print(json.dumps(joined([Path(name) for name in sys.argv[2:]]), indent=0))
    else:
        print(json.dumps({"operators": operators(), "nodes": nodes()}))
