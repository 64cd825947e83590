"""Linear layers by what their weights are: floats, 16, 8 and 4 bits, rows quantized or not.

Four pairs of linear layers of 768 and 3072 with random weights. Ours, beside XNNPACK's kernels
alone for the same file, ExecuTorch's runtime where it takes the file, and with --onnx ONNX
Runtime by its own quantization: `quantize_dynamic` for int8-dynamic, `MatMulNBits` in float32 for
int4-weight (needs onnx and onnx-ir). Each has a process of its own; all take turns.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import quantile, ratio, report
from _frameworks import SESSIONS
from _worker import Worker, serve

SCHEMES = ("float32", "float16", "int8-weight", "int4-weight", "int8-dynamic", "int4-dynamic")
PORTABLE = ("float32", "int8-weight", "int8-dynamic", "int4-dynamic")
"""Schemes whose files ExecuTorch's runtime takes."""
NARROW, WIDE, PAIRS = 768, 3072, 4


def network() -> Any:
    """The layers, with seed 0."""
    import torch

    torch.manual_seed(0)
    layers: list[Any] = []
    for _ in range(PAIRS):
        layers += [torch.nn.Linear(NARROW, WIDE), torch.nn.ReLU(), torch.nn.Linear(WIDE, NARROW)]
    return torch.nn.Sequential(*layers).eval()


def write_ours(scheme: str, rows: int, target: Path) -> None:
    """Compile for `rows` rows, with an .npy file of them beside it."""
    import numpy as np
    import torch

    import edgewise

    model, x = network(), torch.randn(rows, NARROW, generator=torch.Generator().manual_seed(1))
    if scheme == "float16":
        model, x = model.half(), x.half()
    options = {} if scheme in ("float32", "float16") else {"quantize": scheme}
    program = edgewise.compile(model, (x,), backend="xnnpack", verbose=False, **options)
    program.save(target)
    np.save(target.with_suffix(".npy"), x.numpy())


def write_onnx(scheme: str, rows: int, target: Path) -> None:
    """The same layers in ONNX Runtime's own quantization."""
    import onnx
    import torch
    from onnxruntime import quantization

    plain = target.with_suffix(".float.onnx")
    torch.onnx.export(network(), (torch.zeros(rows, NARROW),), str(plain), dynamo=False)
    if scheme == "int8-dynamic":
        quantization.quantize_dynamic(str(plain), str(target), per_channel=True)
    elif scheme == "int4-weight":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        # Its linear layers are Gemm; it quantizes MatMul.
        model = onnx.load(str(plain))
        _gemm_to_matmul(model)
        quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, accuracy_level=1)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))
    else:
        plain.rename(target)


def _gemm_to_matmul(model: Any) -> None:
    from onnx import helper, numpy_helper

    weights = {x.name: x for x in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        x, weight, bias = node.input
        turned = numpy_helper.to_array(weights[weight]).T.copy()
        model.graph.initializer.append(numpy_helper.from_array(turned, weight + ".t"))
        product = node.output[0] + ".product"
        nodes.append(helper.make_node("MatMul", [x, weight + ".t"], [product]))
        nodes.append(helper.make_node("Add", [product, bias], list(node.output)))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _files(options: argparse.Namespace, folder: Path, scheme: str, rows: int) -> dict[str, Path]:
    """The file of each side."""
    pte = folder / f"{scheme}-{rows}.pte"
    write_ours(scheme, rows, pte)
    files = {"ours": pte, "xnnpack": pte}
    if scheme in PORTABLE and options.only != "ours":
        files["peer"] = pte
    if options.onnx and scheme in ("float32", "int4-weight", "int8-dynamic"):
        files["onnx"] = folder / f"{scheme}-{rows}.onnx"
        write_onnx(scheme, rows, files["onnx"])
    return files


def _handler() -> Any:
    sessions: dict[str, Any] = {}

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        if "file" in request:
            import numpy as np

            inputs = [np.load(request["input"])]
            make = SESSIONS[request["framework"]]
            before = _resident()
            sessions["it"] = make(Path(request["file"]), inputs, request["threads"])
            sessions["it"].run()
            return {"MB": (_resident() - before) / 1e6}
        start = time.perf_counter()
        for _ in range(request["runs"]):
            sessions["it"].run()
        return {"ms": (time.perf_counter() - start) / request["runs"] * 1e3}

    return handle


def _resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def measure(options: argparse.Namespace, files: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """The times of each side, in ms, and the memory of its model."""
    workers = {name: Worker(Path(__file__), name) for name in files}
    results: dict[str, dict[str, Any]] = {}
    try:
        for name, worker in workers.items():
            answer = worker.ask(
                framework=name,
                file=str(files[name]),
                input=str(files["ours"].with_suffix(".npy")),
                threads=options.threads,
            )
            first = min(worker.ask(runs=1)["ms"] for _ in range(3))
            results[name] = {"MB": answer["MB"], "runs": max(2, int(120 / first)), "ms": []}
        for _ in range(options.rounds):
            for name, worker in workers.items():
                results[name]["ms"].append(worker.ask(runs=results[name]["runs"])["ms"])
                time.sleep(0.05)
    finally:
        for worker in workers.values():
            worker.close()
    return results


def main() -> int:
    """Measure each scheme and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 128])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", choices=("ours",), help="without ExecuTorch")
    parser.add_argument("--onnx", action="store_true", help="ONNX Runtime, too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(_handler())
        return 0
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for scheme in options.schemes:
            for rows in options.rows:
                print(f"{scheme}, {rows} rows ...", file=sys.stderr)
                files = _files(options, Path(folder), scheme, rows)
                results = measure(options, files)
                row: dict[str, Any] = {"weights": scheme, "rows": rows}
                for name, result in results.items():
                    row[f"{name} ms"] = quantile(result["ms"], 0.5)
                for name, result in results.items():
                    if name != "ours":
                        row[f"ours/{name}"] = ratio(results["ours"]["ms"], result["ms"])
                for name, result in results.items():
                    row[f"{name} MB"] = result["MB"]
                table.append(row)
    columns = list(dict.fromkeys(name for row in table for name in row))
    order = {"ms": 1, "MB": 3}
    columns[2:] = sorted(columns[2:], key=lambda name: order.get(name.split()[-1], 2))
    notes = [
        f"{options.threads} threads, medians of {options.rounds} turns; MB: growth of the process "
        "by the load and one run"
    ]
    filled = [{name: row.get(name) for name in columns} for row in table]
    report("Linear layers by their weights", filled, notes, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
