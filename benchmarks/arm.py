"""What one inference executes on 64-bit Arm: our runtime and ExecuTorch's, on one thread.

No Arm machine is needed: both run under qemu-user as --cpu, whose plugin (`arm_counts/count.c`)
counts instructions by class. An inference is the difference of a run of 1 + --calls calls and a run
of one, divided by --calls, so that neither start nor load are in it. **These are counts, not
times**: cores differ in width, and what misses a cache costs most. Of each framework's hottest
loops llvm-mca (Debian's llvm-19) says what they would take on four cores: cycles per multiply-add
instruction, with every load a hit in the first cache.

Ours is build/cross/aarch64 (`make cross-aarch64`); the peer's are the wheels of executorch 1.1.0
and torch 2.10.0 for aarch64, the last that are CPU builds, in a Debian Python for Arm: unpacked in
--cache/arm, nothing is installed. Its XNNPACK has KleidiAI. The files are those of latency.py,
quantized.py and, for one token of a Llama of 30 million parameters at position 128, llm.py; the
peer's are written by the release of the `peer` extra. "xnnpack": our runtime without fused kernels.
"products-1-8bit" and its like are two linear layers (1024 to 1024 to 512) with weights of 8 or 4
bits by channel for that many rows, quantized at run time; one file of ours for all.

A large model takes minutes for each run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import quantized
from _common import ROOT, add_cache_options, report, report_wrong, table
from _frameworks import ensure, load_arrays, model_file
from _mca import cycles_of, filtered, mca
from latency import decibels

import llm

FLOATS = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "vit_b_16")
INTEGERS = ("mobilenet_v2-int8", "resnet50-int8")
TOKEN = "llama_30m-8da4w"
PRODUCTS = tuple(f"products-{rows}-{bits}bit" for bits in (8, 4) for rows in (1, 64))
GROUP_SIZE, POSITION, CONTEXT = 32, 128, 1024
"""Of that model: weights that share a scale; where the token is; positions of the cache."""
TOKEN_CALLS = 200
"""Of small models at least: Python's start differs from run to run by as much as a token takes."""
HERE = Path(__file__).parent / "arm_counts"
PYTHON = "3.11"
WHEELS = ("executorch==1.1.0", "torch==2.10.0", "numpy==2.2.6")
LIBRARIES = "/usr/aarch64-linux-gnu"
CORES = ("cortex-a55", "cortex-a76", "neoverse-n1", "neoverse-v2")
MULTIPLY_ADDS = (
    "float multiply-adds",
    "dot products",
    "matrix products",
    "integer multiply-adds",
)
FEWEST_DECIBELS = 90
"""Of float32 outputs."""
LOOPS = 3
"""Loops of each framework that llvm-mca looks at."""


@dataclass(frozen=True)
class Case:
    """A model, and each framework's file of it; files of arrays, and what outputs are compared
    with, if there is something: the peer's Llama has weights of its own."""

    files: Mapping[str, Path]
    inputs: Path
    expected: Mapping[str, Path]
    least_calls: int = 1


@dataclass(frozen=True)
class Block:
    """Instructions in a row. runs: in one inference. worth: its multiply-add instructions."""

    address: int
    symbol: str
    code: tuple[int, ...]
    worth: int
    runs: float

    @classmethod
    def of(cls, block: Mapping[str, Any], runs: float) -> "Block":
        """From what the plugin writes."""
        worth = sum(block[name] for name in MULTIPLY_ADDS)
        return cls(block["address"], block["symbol"], tuple(block["code"]), worth, runs)


@dataclass(frozen=True)
class Counts:
    """Of one inference: by class of instruction, and the blocks that matter; how near its outputs
    are to eager PyTorch's, or to the quantized program's there."""

    total: dict[str, float]
    blocks: list[Block]
    decibels: float


def case(model: str, frameworks: list[str], options: argparse.Namespace) -> Case:
    """Its files, lowered if they are not there."""
    cache = options.cache
    if model == TOKEN:
        return token_case(frameworks, options)
    if model in PRODUCTS:
        return products_case(model, frameworks, options)
    if not model.endswith("-int8"):
        ensure(frameworks, model, cache, options.refresh)
        files = {framework: model_file(framework, model, cache) for framework in frameworks}
        expected = dict.fromkeys(frameworks, cache / f"{model}-eager.npz")
        return Case(files, cache / f"{model}-inputs.npz", expected)
    plain = model.removesuffix("-int8")
    for framework in {"ours" if framework == "xnnpack" else framework for framework in frameworks}:
        quantized.ensure(framework, plain, cache, options.refresh and framework == "ours")
    files = {framework: quantized.file_of(framework, plain, cache) for framework in frameworks}
    expected = {framework: file.with_suffix(".expected.npz") for framework, file in files.items()}
    return Case(files, files[frameworks[0]].with_suffix(".inputs.npz"), expected)


def products_case(model: str, frameworks: list[str], options: argparse.Namespace) -> Case:
    """Of two linear layers with weights by channel, rows quantized at run time."""
    file, inputs, expected = (
        options.cache / f"{model}{end}" for end in (".pte", "-inputs.npz", "-eager.npz")
    )
    if options.refresh or not file.exists():
        import torch
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
        from torchao.quantization.granularity import PerAxis

        import edgewise

        rows, bits = int(model.split("-")[1]), model.split("-")[2]
        torch.manual_seed(0)
        layers = (torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
        net = torch.nn.Sequential(*layers).eval()
        x = torch.randn(rows, 1024)
        dtype = torch.int8 if bits == "8bit" else torch.int4
        quantize_(
            net,
            Int8DynamicActivationIntxWeightConfig(
                weight_dtype=dtype, weight_granularity=PerAxis(0)
            ),
        )
        edgewise.compile(net, (x,), backend="xnnpack", verbose=False).save(file)
        with torch.no_grad():
            np.savez(expected, net(x).numpy())
        np.savez(inputs, x.numpy())
    files, outputs = dict.fromkeys(frameworks, file), dict.fromkeys(frameworks, expected)
    return Case(files, inputs, outputs, TOKEN_CALLS)


def token_case(frameworks: list[str], options: argparse.Namespace) -> Case:
    """Of one token. The peer's export takes minutes."""
    of_llm = argparse.Namespace(
        config="30m",
        group_size=GROUP_SIZE,
        context=CONTEXT,
        files=sorted({"ours" if framework == "xnnpack" else framework for framework in frameworks}),
        others=(),
        cache=options.cache,
        refresh=options.refresh,
    )
    files = llm.files(of_llm)
    files |= {"xnnpack": files["ours"]} if "xnnpack" in frameworks else {}
    inputs, expected = (options.cache / f"{TOKEN}-{name}.npz" for name in ("inputs", "eager"))
    if options.refresh or not expected.exists():
        script = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("_arm_token.py"))]
        numbers = ["30m", str(GROUP_SIZE), str(POSITION)]
        subprocess.run([*script, *numbers, str(inputs), str(expected)], check=True)
    compared = {framework: expected for framework in frameworks if framework != "peer"}
    return Case(files, inputs, compared, TOKEN_CALLS)


def program(name: str, try_: str) -> str:
    """A program's path; ends if it is missing."""
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"[arm] {name} is needed; try {try_}")
    return found


def plugin(folder: Path) -> Path:
    """The counter, built once for each of its texts against the header of Debian's QEMU."""
    made, source = folder / "count.so", HERE / "count.c"
    if made.exists() and made.stat().st_mtime > source.stat().st_mtime:
        return made
    subprocess.run([str(HERE / "build.sh"), str(folder)], check=True)
    return made


def peer_python(folder: Path) -> list[str]:
    """The command that runs Python for Arm with the peer's packages."""
    root, packages = folder / "python", folder / "packages"
    if not (root / ".complete").exists():
        script = str(ROOT / "tools" / "debian_arm_python.sh")
        subprocess.run([script, PYTHON, str(root)], check=True)
        (root / ".complete").touch()
    if not (packages / ".complete").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:"]
        where = ["--target", str(packages), "--python-version", PYTHON, "--implementation", "cp"]
        kinds = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
        platforms = [word for kind in kinds for word in ("--platform", kind)]
        small = ("typing_extensions", "sympy", "mpmath", "networkx", "filelock", "jinja2", "fsspec")
        subprocess.run([*pip, *where, *platforms, *WHEELS, *small, "markupsafe"], check=True)
        (packages / ".complete").touch()
    return ["-L", str(root), "-E", f"PYTHONPATH={packages}", str(root / f"usr/bin/python{PYTHON}")]


def counted(command: list[str], counter: Path) -> dict[str, Any]:
    """What the plugin wrote of a run."""
    emulator = program("qemu-aarch64", "tools/install_cross.sh aarch64")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "counts.json")
        done = subprocess.run(
            [emulator, "-plugin", str(counter), *command],
            env={**os.environ, "COUNT_FILE": str(file), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{done.stdout}\n[arm] {' '.join(command)} failed; see above")
        made: dict[str, Any] = json.loads(file.read_text())
        return made


def command(framework: str, case: Case, calls: int, outputs: Path, options: Any) -> list[str]:
    """What qemu-user runs, without its plugin: so many calls, whose outputs are written."""
    cpu = ["-cpu", options.cpu]
    if framework == "peer":
        arguments = [str(case.files[framework]), str(case.inputs), str(calls), str(outputs)]
        return [*cpu, *peer_python(options.cache / "arm"), str(HERE / "peer.py"), *arguments]
    runner = ROOT / "build" / "cross" / "aarch64" / "native" / "tools" / "edgewise_run"
    if not runner.exists():
        raise SystemExit("[arm] our runtime for Arm is needed; try make cross-aarch64")
    arguments = [str(case.files[framework]), "--threads", "1", "--output-dir", str(outputs)]
    for number, array in enumerate(load_arrays(case.inputs)):
        np.save(outputs / f"input_{number}.npy", array)
        arguments += ["--input", str(outputs / f"input_{number}.npy")]
    arguments += ["--iterations", str(calls)] + ["--no-own-kernels"] * (framework == "xnnpack")
    return [*cpu, "-L", LIBRARIES, str(runner), *arguments]


def measure(framework: str, case: Case, options: argparse.Namespace) -> Counts:
    """One inference."""
    counter = plugin(options.cache / "arm")
    counted_calls = max(options.calls, case.least_calls)
    with tempfile.TemporaryDirectory() as folder:
        once, more = (
            counted(command(framework, case, calls, Path(folder), options), counter)
            for calls in (1, 1 + counted_calls)
        )
        files = sorted(Path(folder).glob("output_*.npy"))
        outputs = [np.load(file) for file in files]
    total = {
        name: (count - once["total"][name]) / counted_calls for name, count in more["total"].items()
    }
    before = {block["address"]: block["runs"] for block in once["blocks"]}
    blocks = []
    for block in more["blocks"]:
        runs = block["runs"] - before.get(block["address"], 0)
        if runs > 0:
            blocks.append(Block.of(block, runs / counted_calls))
    expected = case.expected.get(framework)
    near = decibels(outputs, load_arrays(expected)) if expected else float("nan")
    return Counts(total, blocks, near)


def loops_of(counts: Counts) -> list[dict[str, Any]]:
    """What llvm-mca says of the blocks with most multiply-adds."""
    whole = sum(counts.total[name] for name in MULTIPLY_ADDS)
    hottest = sorted(counts.blocks, key=lambda block: block.runs * block.worth, reverse=True)
    found = []
    for block in hottest[:LOOPS]:
        share = block.runs * block.worth / whole
        line: dict[str, Any] = {
            "function": block.symbol or hex(block.address),
            "of all": f"{share:.0%}",
        }
        line |= {"instructions": len(block.code), "multiply-adds": block.worth}
        found.append(line | cycles(block))
    return found


def functions(counts: Counts, most: int) -> list[dict[str, Any]]:
    """The functions that execute most instructions."""
    by_name: dict[str, float] = {}
    for block in counts.blocks:
        by_name[block.symbol] = by_name.get(block.symbol, 0) + block.runs * len(block.code)
    hottest = sorted(by_name.items(), key=lambda item: item[1], reverse=True)[:most]
    whole = counts.total["instructions"]
    return [
        {"function": name or "?", "M instructions": count / 1e6, "of all": f"{count / whole:.1%}"}
        for name, count in hottest
    ]


def row_of(model: str, counts: Mapping[str, Counts]) -> dict[str, Any]:
    """Instructions of each framework, in millions, and ours to the others'."""
    row: dict[str, Any] = {"model": model}
    for framework, of in counts.items():
        row[f"{framework} M"] = of.total["instructions"] / 1e6
        row[f"{framework} loads"] = of.total["loads"] / 1e6
        row[f"{framework} multiply-adds"] = sum(of.total[name] for name in MULTIPLY_ADDS) / 1e6
        row[f"{framework} dB"] = of.decibels
    for framework, of in counts.items():
        if framework != "ours" and "ours" in counts:
            row[f"ours/{framework}"] = (
                counts["ours"].total["instructions"] / of.total["instructions"]
            )
    return row


def cycles(block: Block) -> dict[str, float]:
    """By core, of a loop of this code for each of its multiply-adds: llvm-mca's, if it is here; of
    cores that it knows."""
    program = mca()
    if program is None or not block.worth:
        return {}
    code = b"".join(word.to_bytes(4, "little") for word in block.code)
    flags = ["-mattr=+all", "--triple=aarch64", "--disassemble"]
    text = filtered([program.replace("mca", "mc"), *flags], " ".join(f"0x{b:02x}" for b in code))
    found = {}
    for core in CORES:
        try:
            taken = cycles_of(program, text, core, ["-mattr=+all", "--mtriple=aarch64"])
        except subprocess.CalledProcessError:
            continue
        found[core] = taken / block.worth
    return found


def main() -> int:
    """Prints the table and the hottest loops; the exit code says whether outputs are right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=[*FLOATS, *INTEGERS, TOKEN], metavar="NAME")
    parser.add_argument("--frameworks", nargs="+", default=["ours", "peer"])
    parser.add_argument("--cpu", default="cortex-a76", help="as qemu-aarch64 -cpu help lists them")
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--top", type=int, default=0, help="functions of ours to list")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser)
    options = parser.parse_args()
    (options.cache / "arm").mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    loops: list[dict[str, Any]] = []
    lists: dict[str, list[dict[str, Any]]] = {}
    for model in options.models:
        of = case(model, options.frameworks, options)
        counts = {}
        for framework in options.frameworks:
            print(f"{model} ({framework}) ...", file=sys.stderr, flush=True)
            counts[framework] = measure(framework, of, options)
        rows.append(row_of(model, counts))
        loops += [
            {"model": model, "framework": framework, **loop}
            for framework in options.frameworks
            for loop in loops_of(counts[framework])
        ]
        if options.top and "ours" in counts:
            lists[model] = functions(counts["ours"], options.top)
    report(
        "Instructions of one inference on 64-bit Arm",
        rows,
        [
            f"counts, not times: under qemu-user as a {options.cpu}, one thread; in millions",
            "dB: signal to noise of the outputs, against eager PyTorch or the quantized program",
        ],
        options.json,
        {"loops": loops, "functions": lists},
    )
    print("\nhottest loops: cycles per multiply-add instruction, by llvm-mca\n")
    print(table(loops))
    for model, found in lists.items():
        print(f"\n{model}: functions of ours\n")
        print(table(found))
    lost = {
        f"{row['model']} ({framework})": FEWEST_DECIBELS - row[f"{framework} dB"]
        for row in rows
        for framework in options.frameworks
        if not row["model"].endswith(("-int8", "-8da4w", "bit"))
    }
    return report_wrong(lost, 0.0)


if __name__ == "__main__":
    raise SystemExit(main())
