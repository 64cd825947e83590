"""Commands that compile, run and look at files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cli_support import Command

import edgewise
from edgewise.runtime._native import cpu_level


def test_compile(folder: Path, command: Command, tmp_path: Path) -> None:
    shown = command(
        "compile", f"{folder}/model.py:make", "-b", "xnnpack", "-b", "none", "-o", tmp_path
    )
    assert shown.code == 0, shown.err
    assert "1 x aten.cumsum.default: not an operator of the XNNPACK table" in shown.out
    names = {path.name for path in tmp_path.iterdir()}
    stems = ("model-xnnpack-float", "model-none-float")
    assert names == {f"{s}.pte" for s in stems} | {f"{s}.record.json.gz" for s in stems}


def test_compile_a_saved_program(folder: Path, command: Command, tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(4, 2).eval()
    torch.export.save(torch.export.export(model, (torch.ones(1, 4),)), tmp_path / "saved.pt2")
    out = tmp_path / "saved.pte"
    shown = command("compile", tmp_path / "saved.pt2", "-o", out, "--no-record", "--json")
    (told,) = shown.json["files"]
    assert told["bytes"] == out.stat().st_size
    assert told["delegated_nodes"] == 1.0
    assert "record" not in told
    np.testing.assert_allclose(
        edgewise.load(out)(np.ones((1, 4), np.float32)),
        model(torch.ones(1, 4)).detach().numpy(),
        rtol=1e-5,
    )


def test_shape_for_a_model_without_inputs(folder: Path, command: Command, tmp_path: Path) -> None:
    model = f"{folder}/model.py:alone"
    refused = command("compile", model)
    assert refused.code == 1
    assert "try (model, example_inputs) as what the function returns, or --shape" in refused.err
    out = tmp_path / "x.pte"
    assert command("compile", model, "--shape", "1x3x20x20", "-o", out).code == 0
    assert edgewise.load(out).metadata.input_tensor_meta(0).sizes() == (1, 3, 20, 20)


def test_run(folder: Path, command: Command, tmp_path: Path) -> None:
    """The outputs are those of the runtime's Python face; several inputs are several batches."""
    data = np.load(folder / "data.npy").astype(np.float32)
    model = edgewise.load(folder / "float.pte")
    wanted = [model(one[None]) for one in data]
    out = tmp_path / "y.npz"
    arguments = ("run", folder / "float.pte", "-i", folder / "data.npy", "-t", "1")
    shown = command(*arguments, "-o", out, "--json")
    assert shown.code == 0, shown.err
    np.testing.assert_array_equal(np.load(out)["output_0"], wanted)
    for told, one in zip(shown.json["batches"], wanted, strict=True):
        assert told["outputs"][0]["shape"] == [1, 4]
        np.testing.assert_allclose(told["outputs"][0]["values"], one)
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\n")
    shown = command(*arguments, "--top", "1", "--labels", tmp_path / "labels.txt")
    assert "data.npy[3]" in shown.out
    assert "abcd"[int(np.argmax(wanted[0]))] in shown.out.partition("class")[2].split()
    seeds = [command("run", folder / "float.pte", "--seed", s, "--json").out for s in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]
    assert command(*arguments, "--max-memory", "1000000").code == 0
    refused = command(*arguments, "--max-memory", "8")
    assert refused.code == 1
    assert "max_memory is 8 bytes; the program plans" in refused.err


def test_inspect(folder: Path, command: Command) -> None:
    told = command("inspect", folder / "int8.pte", "--json").json
    (method,) = told["methods"]
    assert sum(told["sizes"].values()) == told["nbytes"] == (folder / "int8.pte").stat().st_size
    assert [method["inputs"][0][key] for key in ("dtype", "shape")] == ["float32", [1, 3, 16, 16]]
    kinds = [node["kind"] for node in method["delegates"][0]["graph"]["nodes"]]
    assert "Conv2d" in kinds
    shown = command("inspect", folder / "int8.pte", "--all").out
    for part in ("method forward", "aten::cumsum.out", "XnnpackBackend", "8 scales along", "conv"):
        assert part in shown
    shown = command("inspect", folder / "float.pte", "--weights").out
    assert re.search(r"input 0\s+float32 1x3x16x16\s+x\b", shown)  # as `forward` calls it
    assert {"conv.weight", "head.weight", "head.bias"} <= set(shown.split())
    shown = command("inspect", folder / "conv.pte", "--instructions")
    assert "compiled by" not in shown.out  # no record beside it
    assert "\nruns on ExecuTorch 1.0 and later, edgewise\n" in shown.out


def test_inspect_tells_what_releases_lack(command: Command) -> None:
    file = Path(__file__).parents[1] / "data" / "releases" / "1.1.0" / "trigonometry.pte"
    shown = command("inspect", file).out
    nodes = [f"XNNPACK node {name} (from 1.1 on)" for name in ("Sin", "Cos")]
    told = ("ExecuTorch 1.1 and later, edgewise", *nodes)
    assert f"\nruns on {told[0]}\n  uses {told[1]}\n  uses {told[2]}\n" in shown
    told_json = command("inspect", file, "--json").json
    assert (told_json["runs_on"], *told_json["needs"]) == told


def test_explain(folder: Path, command: Command) -> None:
    """A file's record and the model say the same."""
    recorded = command("explain", folder / "float.pte", "--json").json["methods"]
    compiled = command("explain", f"{folder}/model.py:make", "--json").json["methods"]
    assert recorded == compiled
    (refused,) = [n for n in recorded[0]["nodes"] if n["delegate"] is None]
    assert refused["operator"] == "aten.cumsum.default"
    assert refused["refusals"][0]["backend"] == "XnnpackBackend"
    assert refused["splits"]
    assert refused["source"].endswith("model.py:14")
    shown = command("explain", folder / "float.pte", "--modules", "1").out
    assert "not an operator of the XNNPACK table" in shown
    assert "between delegates" in shown
    shown = command("explain", folder / "float.pte", "--find", "head").out
    assert "aten.linear.default" in shown
    assert "cumsum" not in shown


def test_diff(folder: Path, command: Command) -> None:
    same = command("diff", folder / "float.pte", folder / "float.pte", "--json", "--exit-code")
    assert same.code == 0
    assert same.json["identical"]
    assert same.json["differences"] == []
    other = command("diff", folder / "float.pte", folder / "int8.pte", "--json", "--exit-code")
    assert other.code == 4
    found = {row["what"]: (row["a"], row["b"]) for row in other.json["differences"]}
    assert found["constants in qcint8"] == (None, 2)
    assert found["bytes"] == tuple((folder / n).stat().st_size for n in ("float.pte", "int8.pte"))
    shown = command("diff", folder / "float.pte", folder / "int8.pte")
    assert shown.code == 0
    assert "only in B" in shown.out


def test_compare(folder: Path, command: Command, tmp_path: Path) -> None:
    model = f"{folder}/model.py:make"
    data = ("--input", folder / "data.npy")
    told = command("compare", model, "--program", folder / "float.pte", *data, "--json").json
    assert told["batches"] == 4
    assert told["outputs"][0]["sqnr_db"] > 100  # float32 in another order
    quantized = command(
        "compare", model, "--quantize", "int8", "-c", folder / "data.npy", *data,
        "--svg", tmp_path / "x.svg", "--min-db", "60", "--json",
    )  # fmt: skip
    assert quantized.code == 4
    worst = quantized.json["outputs"][0]["sqnr_db"]
    assert 15 < worst < 60  # 8 bits
    assert f"got {worst:.1f} dB" in quantized.err
    assert any(layer["module"] == "conv" for layer in quantized.json["layers"])
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    assert quantized.json["earlier"] is None
    shown = command(
        "compare", model, "--quantize", "int8", "-c", folder / "data.npy",
        "--quantize-method", "equalize", "--before", "none",
    )  # fmt: skip
    assert "rounding alone dB" in shown.out
    assert "more calibration data: 4 batches" in shown.out or "what to try" not in shown.out
    refused = command("compare", model, "--before", "none")
    assert "[--before] is for what --quantize makes; try --quantize int8" in refused.err


@pytest.mark.parametrize("sides", [(), pytest.param(("--peer",), marks=pytest.mark.peer)])
def test_bench(folder: Path, command: Command, sides: tuple[str, ...]) -> None:
    eager = ("--eager", f"{folder}/model.py:make") if sides else ()
    counts = ("-t", "1", "-t", "2") if not sides else ("-t", "1")
    shown = command("bench", folder / "float.pte", *eager, *sides, *counts, "-n", "20", "--json")
    assert shown.code == 0, shown.err
    rows = shown.json["results"]
    names = ["edgewise", "ExecuTorch", "eager"] if sides else ["edgewise", "edgewise"]
    assert [row["side"] for row in rows] == names
    for row in rows:
        assert row["calls"] == 20
        assert 0 < row["min_ms"] <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]
        assert row["error"] is None or row["error"] < 1e-5
    if not sides:
        slow = command("bench", folder / "float.pte", "-n", "3", "--max-ms", "0.000001")
        assert slow.code == 4
        assert "the median must be at most 1e-06 ms" in slow.err


@pytest.mark.parametrize(
    ("backend", "find", "part"),
    [
        ("xnnpack", "conv2d", "constant weight"),
        ("ethos-u55-128", "cumsum", "at most 1024 elements"),
        ("neutron", "softmax", "SOFTMAX"),
        ("runtime", "cumsum", "out"),
    ],
)
def test_ops(backend: str, find: str, part: str, command: Command) -> None:
    shown = command("ops", backend, "--find", find)
    assert shown.code == 0, shown.err
    assert find in shown.out
    told = command("ops", backend, "--json").json["operators"]
    assert len(told) > 20
    assert any(part in str(row) for row in told if row["name"] == find)


def test_doctor(command: Command) -> None:
    told = command("doctor", "--json").json
    assert told["runtime"]["backends"]["XnnpackBackend"] is True
    assert told["runtime"]["cpu_level"] == told["runtime"]["cpu_levels"][-1]
    assert told["processor"]["cores"] >= 1
    packages = {(p["extra"], p["name"]): p for p in told["packages"]}
    assert packages["", "numpy"]["installed"] == np.__version__
    assert packages["", "numpy"]["status"] == "ok"
    shown = command("doctor", "--need", "export")
    assert shown.code == 0, shown.err
    assert "XnnpackBackend" in shown.out


def test_explain_tells_the_kernels_of_this_machine(folder: Path, command: Command) -> None:
    """In the order in which they run, with the nodes that a profile gives them."""
    told = command("explain", "--runtime", folder / "int8.pte", "--json").json
    kernels = [one for part in told["delegates"] for one in part["operations"]]
    assert {part["backend"] for part in told["delegates"]} == {"XnnpackBackend"}
    assert all(one["kernel"].startswith(("XNNPACK ", "edgewise ")) for one in kernels)
    (product,) = [one for one in kernels if one["operation"] == "FullyConnected"]
    assert product["kernel"] == "XNNPACK fully_connected_nc_qs8_qc8w"
    assert product["sizes"] == "qint8[1, 8] -> qint8[1, 4]"
    shown = command("explain", "--runtime", folder / "int8.pte", "--find", "fullyconnected").out
    assert "XNNPACK fully_connected_nc_qs8_qc8w" in shown
    assert "Image" not in shown


def test_explain_tells_what_a_kernel_asks_for(folder: Path, command: Command) -> None:
    told = command("explain", "--runtime", folder / "conv.pte", "--json").json
    (kernels,) = [part["operations"] for part in told["delegates"]]
    (convolution,) = [one for one in kernels if "Conv2d" in one["operation"]]
    if convolution["kernel"].startswith("edgewise "):
        assert cpu_level() not in ("sse2", "sse4", "avx512", "avx512vnni")
    elif cpu_level().startswith("avx"):
        rules = dict(convolution["refused"])
        assert rules["Convolution Winograd"] == "32 channels or more, before and after"
        assert rules["GEMM"] == "a product of matrices or 1x1 convolution"


def test_a_bundled_program_checks_itself(folder: Path, command: Command, tmp_path: Path) -> None:
    import torch

    from edgewise.emit import BundledProgram, MethodTestCase, MethodTestSuite

    model, x = torch.nn.Linear(4, 2).eval(), torch.ones(1, 4)
    program = edgewise.compile(model, (x,), verbose=False)
    with torch.no_grad():
        right, wrong = MethodTestCase((x,), model(x)), MethodTestCase((x,), model(x) + 1)
    path = tmp_path / "model.bpte"
    BundledProgram(program, [MethodTestSuite("forward", [right])]).save(path)
    shown = command("run", path)
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"forward +0 +yes", shown.out)
    BundledProgram(program, [MethodTestSuite("forward", [right, wrong])]).save(path)
    shown = command("run", path, "--rtol", "1e-3", "--json")
    assert shown.code == 4
    assert [case["matches"] for case in shown.json["cases"]] == [True, False]
    assert "got 1 of 2 calls that are not" in shown.err
    assert command("run", path, "--atol", "1.1").code == 0
    for options in (("-i", folder / "data.npy"), ("--method", "forward"), ("--seed", "0")):
        refused = command("run", path, *options)
        assert refused.code == 1
        assert "has its own inputs" in refused.err
    program.save(tmp_path / "model.pte")
    refused = command("run", tmp_path / "model.pte", "--rtol", "1e-3")
    assert refused.code == 1
    assert "[--rtol] must come with a bundled program" in refused.err


def test_compile_for_integers(folder: Path, command: Command, tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(4, 2).eval()
    torch.export.save(torch.export.export(model, (torch.ones(1, 4),)), tmp_path / "saved.pt2")
    np.save(tmp_path / "data.npy", np.ones((1, 4), np.float32))
    out = tmp_path / "saved.pte"
    given = ("compile", tmp_path / "saved.pt2", "-o", out, "--quantized-inputs")
    refused = command(*given)
    assert refused.code == 1
    assert "got input 0: read by aten.linear.default" in refused.err
    whole = ("--quantized-outputs", "--quantize", "int8", "-c", tmp_path / "data.npy")
    assert command(*given, *whole).code == 0
    assert edgewise.load(out)(np.ones((1, 4), np.int8)).dtype == np.int8
