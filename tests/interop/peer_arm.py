"""The nets of ExecuTorch's own tests for Arm's NPUs, through our Ethos-U backend.

The peer tests each operator by handing a net and its data to a "pipeline", one class for each kind
of target. Here its test files are imported with stand-ins for these classes, which only note what
they are given. Each case of an Ethos-U pipeline is then quantized by our quantizer as the case asks
(8 or 16 bits), lowered by our partitioner, run in the simulator and compared with the quantized
program in eager PyTorch, in steps of the result's scale. Each case has its own process and time.

Run by hand, with the extras `ethosu` and `peer`, and with the peer's folder `backends/arm/test`
(of a checkout, or of the installed package):

    python tests/interop/peer_arm.py DIR --json results.jsonl
    python tests/interop/peer_arm.py DIR --targets ethos-u85-256 --only test_softmax.py

`--json` appends a line for each case, and leaves out the cases that the file already has. The table
in the end is of all the lines of the file.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from io import StringIO
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from torch.utils._pytree import tree_flatten

import edgewise
from edgewise.backends.ethosu import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from edgewise.edge.graph import op_name
from edgewise.partition.lowered_module import is_delegate_call
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e

PEER = "executorch.backends.arm.test"
SECONDS = 120
BORDERS = ("quantize_per_tensor", "dequantize_per_tensor", "_to_copy", "getitem")
OPTIONS = ("run_on_fvp", "symmetric_io", "per_channel_quantization", "a16w8_quantization")
"""The names of what may follow the operators in the call of an Ethos-U pipeline."""


@dataclass
class Case:
    name: str
    family: str
    module: torch.nn.Module
    inputs: tuple[Any, ...]
    bits: int = 8
    weight_bits: int = 8
    per_channel: bool = True
    mark: str = ""
    """Why the peer skips it or expects that it fails."""
    refused: bool = False
    """Whether the peer expects that the NPU does not take it."""


@dataclass
class Result:
    name: str
    target: str
    bits: int
    mark: str
    refused: bool
    crash: str = ""
    """Of quantizing, lowering or running: the stage, and the last line of the traceback."""
    delegates: int = 0
    left: list[str] = field(default_factory=list)
    """Operators that are not in a delegate; conversions at the borders are not counted."""
    steps: float = -1
    nan: bool = False
    """Whether the quantized program computes NaN somewhere: no integer is right there."""
    seconds: float = 0

    @property
    def full(self) -> bool:
        return not self.crash and not self.left


class Pipeline:
    """Stands for each of the peer's pipelines. `noted` holds what ran since it was emptied."""

    family = ""
    noted: list[Case]

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __init__(self, module: Any, test_data: Any, *others: Any, **options: Any) -> None:
        options |= dict(zip(OPTIONS, others[2:], strict=False))
        family, refused = self.family, type(self).__name__ == "OpNotSupportedPipeline"
        if refused and options.get("quantize") and options.get("u55_subset"):
            family = "u55"
        self.case = Case("", family, module, tuple(test_data), refused=refused)
        self.case.per_channel = options.get("per_channel_quantization", True)
        self.case.bits = 16 if options.get("a16w8_quantization") else 8

    @property
    def quantizer(self) -> Pipeline:
        return self

    def __getattr__(self, name: str) -> Any:
        return MagicMock()

    def set_global(self, config: Any) -> Any:
        self.case.bits = torch.iinfo(config.input_activation.dtype).bits
        if config.weight is not None:
            self.case.weight_bits = 4 if (config.weight.quant_max or 127) < 8 else 8
            self.case.per_channel = config.weight.qscheme == torch.per_channel_symmetric
        return self

    def run(self) -> None:
        if self.case.family:
            Pipeline.noted.append(self.case)


def parametrize(
    name: str, rows: dict[str, Any], xfails: Any = None, skips: Any = None, *_: Any, **__: Any
) -> Callable[[Any], Any]:
    """Stands for the peer's own: notes the rows at the function."""
    marks = {**(xfails or {}), **(skips or {})}

    def noted(test: Any) -> Any:
        found = [(name, key, row, str(marks.get(key, ""))) for key, row in rows.items()]
        test.peer_rows = [*getattr(test, "peer_rows", []), found]
        return test

    return noted


def stand_in(folder: Path) -> None:
    """Makes `import executorch.backends.arm.test` the folder, without what would run its tests."""

    classes: dict[str, type] = {}

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(("Skip", "Xfail")):
            return lambda test=None: test or (lambda wrapped: wrapped)
        if "Pipeline" not in name:
            return MagicMock()
        family = name[5:8].lower() if name.startswith("EthosU") else ""
        return classes.setdefault(name, type(name, (Pipeline,), {"family": family}))

    tester = [f"tester{x}" for x in ("", ".test_pipeline", ".arm_tester", ".quantize")]
    own = [f"{PEER}.{name}" for name in ("common", *tester, "tester.analyze_output_utils")]
    for name in (PEER, *own, "conftest"):
        module: Any = ModuleType(name)
        module.__getattr__, module.parametrize = attribute, parametrize
        module.__path__ = [str(folder)] if name == PEER else []
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(importlib.import_module(parent), last, module)


def cases_of(file: str) -> Iterator[Case]:
    """What the tests of a file give to Ethos-U pipelines. What cannot be noted is printed."""
    torch.manual_seed(0)
    try:
        module = importlib.import_module(f"{PEER}.ops.{file}")
    except Exception as error:
        print(f"not imported: {file}: {error!r}")
        return
    for name, test in list(vars(module).items()):
        if not (name.startswith("test_") and inspect.isfunction(test)):
            continue
        if "_tosa_" in name or "_vgf_" in name:
            continue
        marks = [m for m in getattr(test, "pytestmark", []) if m.name in ("skip", "xfail")]
        mark = "; ".join(f"{m.name} {m.kwargs.get('reason', m.args)}" for m in marks)
        for row in itertools.product(*getattr(test, "peer_rows", [])):
            key = "-".join(found[1] for found in row)
            Pipeline.noted = []
            torch.manual_seed(0)
            try:
                test(**{found[0]: found[2] for found in row})
            except Exception as error:
                if "u55" in name.lower() or "u85" in name.lower():
                    print(f"not noted: {file}.py::{name}[{key}]: {error!r}")
            for i, case in enumerate(Pipeline.noted):
                case.name = f"{file}.py::{name}[{key}]" + (f"#{i}" if i else "")
                case.mark = "; ".join(filter(None, [mark, *(found[3] for found in row)]))
                yield case


def step_of(node: Any) -> float:
    """A result's scale; 1 for integers and booleans, 0 where nothing says it."""
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        if "dequantize_per_tensor" in str(node.target):
            return float(node.args[1])  # type: ignore[arg-type]
        if not (isinstance(value := node.meta["val"], torch.Tensor) and value.is_floating_point()):
            return 0.0 if isinstance(value, tuple) else 1.0
        node = node.all_input_nodes[0] if node.all_input_nodes else None
    value = node.meta["val"] if isinstance(node, torch.fx.Node) else torch.ones(())
    return 0.0 if value.is_floating_point() else 1.0


def outside_of_delegates(nodes: Iterable[torch.fx.Node]) -> list[str]:
    """Operators of calls, without conversions at the borders."""
    names = [op_name(n) for n in nodes if not is_delegate_call(n)]
    return [name for name in names if not any(border in name for border in BORDERS)]


def off(found: Any, expected: Any, step: float) -> float:
    """The greatest difference in steps; without a step, in 255ths of the range."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    found, expected = found.double(), expected.double()
    same = (found == expected) | (found.isnan() & expected.isnan())
    if bool(same.all()):
        return 0.0
    step = step or float(expected.max() - expected.min()) / 255 or 1.0
    difference = torch.where(same, 0.0, (found - expected).abs() / step)
    return float(difference.nan_to_num(float("inf")).max())


class Watching(torch.fx.Interpreter):
    """Notes whether something is NaN."""

    nan = False

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            self.nan |= bool(value.isnan().any())
        return value


def shuffled(x: Any) -> Any:
    """The elements in another order, if they are no indices."""
    if not (isinstance(x, torch.Tensor) and x.is_floating_point()):
        return x
    return x.reshape(-1)[torch.randperm(x.numel())].reshape(x.shape)


def run(case: Case, target: str, result: Result) -> Iterator[str]:
    """Fills in the result; yields the name of each stage before it."""
    yield "quantize"
    spec = EthosUCompileSpec(target)
    most = 7 if case.weight_bits == 4 else 127
    config = get_symmetric_quantization_config(
        case.per_channel, weight_qmin=-most, weight_qmax=most
    )
    if case.bits == 16:
        config = get_symmetric_a16w8_quantization_config(case.per_channel)
    quantizer = EthosUQuantizer(spec).set_global(config)
    exported = torch.export.export(case.module.eval(), case.inputs)
    prepared = prepare_pt2e(exported.module(), quantizer)
    with torch.no_grad():
        prepared(*case.inputs)
        converted = convert_pt2e(prepared)
        program = torch.export.export(converted, case.inputs)
        yield "eager"
        calls = [case.inputs, tuple(map(shuffled, case.inputs))]
        watching = Watching(converted)
        expected = [tree_flatten(watching.run(*inputs))[0] for inputs in calls]
        result.nan = watching.nan
    yield "lower"
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])
    nodes = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    result.delegates = sum(map(is_delegate_call, nodes))
    result.left = outside_of_delegates(nodes)
    pte = edge.to_executorch().buffer
    yield "run"
    model = edgewise.load(bytes(pte))
    ends = next(reversed(program.graph.nodes)).args[0]
    for inputs, wanted in zip(calls, expected, strict=True):
        found, _ = tree_flatten(model(*inputs))
        assert len(found) == len(wanted) == len(ends), f"{len(found)} results"
        steps = [off(y, w, step_of(n)) for y, w, n in zip(found, wanted, ends, strict=True)]
        result.steps = max([result.steps, 0.0, *steps])


def warm_up(targets: list[str]) -> None:
    """What the first run imports and fills is there for the processes that are forked."""
    for target in targets:
        case = Case("", "", torch.nn.ReLU(), (torch.randn(2, 3),))
        for _ in run(case, target, Result("", target, 8, "", False)):
            pass


def child(case: Case, target: str, sender: Connection) -> None:
    result = Result(case.name, target, case.bits, case.mark, case.refused)
    stage, begun = "", time.monotonic()
    try:
        torch.manual_seed(0)
        with redirect_stdout(StringIO()):
            for stage in run(case, target, result):
                sender.send(stage)
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        words = traceback.format_exception_only(error)[-1].strip()[:600]
        result.crash = f"{stage}: {words} ({Path(last.filename).name}:{last.lineno} {last.name})"
    result.seconds = round(time.monotonic() - begun, 2)
    sender.send(result)


def results_of(work: Iterator[tuple[Case, str]], jobs: int) -> Iterator[Result]:
    """Each case's, from a process of its own, which ends after SECONDS."""
    context = multiprocessing.get_context("fork")
    running: dict[Connection, list[Any]] = {}
    more = True
    while more or running:
        while more and len(running) < jobs:
            given = next(work, None)
            if given is None:
                more = False
                break
            case, target = given
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=child, args=(case, target, sender))
            process.start()
            sender.close()
            empty = Result(case.name, target, case.bits, case.mark, case.refused)
            running[receiver] = [process, time.monotonic() + SECONDS, "", empty]
        ready = wait(list(running), 1.0)
        for receiver, state in list(running.items()):
            process, end, stage, result = state
            if receiver in ready:
                try:
                    got = receiver.recv()
                except EOFError:
                    process.join()
                    got, result.crash = result, f"{stage}: ended with {process.exitcode}"
                if isinstance(got, str):
                    state[2] = got
                    continue
                result = got
            elif time.monotonic() < end:
                continue
            else:
                process.kill()
                result.crash, result.seconds = f"{stage}: not through in {SECONDS} s", SECONDS
            del running[receiver]
            process.join()
            yield result


def table(results: list[Result]) -> None:
    rows: list[tuple[str, ...]] = [
        ("target", "cases", "crashes", "full on NPU", "more than a step")
    ]
    for target in sorted({r.target for r in results}):
        own = [r for r in results if r.target == target]
        counts = (
            [bool(r.crash) for r in own],
            [r.full for r in own],
            [r.steps > 1.01 and not r.nan for r in own],
        )
        rows.append((target, str(len(own)), *(str(sum(c)) for c in counts)))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    for r in results:
        if r.crash:
            print(f"crash: {r.name} {r.target}: {r.crash}")
        elif r.steps > 1.01:
            print(f"{r.steps:.1f} steps{', with NaN' * r.nan}: {r.name} {r.target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the peer's backends/arm/test")
    parser.add_argument("--targets", nargs="+", default=["ethos-u55-128", "ethos-u85-256"])
    parser.add_argument("--only", default="", help="part of the cases' names")
    parser.add_argument("--begin", default="", help="the first file; those before it come last")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warm_up(args.targets)
    stand_in(args.folder.resolve())
    results = []
    if args.json and args.json.exists():
        results = [Result(**json.loads(line)) for line in args.json.read_text().splitlines()]
    done = {(r.name, r.target) for r in results}
    files = sorted(path.stem for path in (args.folder / "ops").glob("test_*.py"))
    files.sort(key=lambda file: file < args.begin)
    work = (
        (case, target)
        for file in files
        if "::" not in args.only or args.only.startswith(f"{file}.py")
        for case in cases_of(file)
        for target in args.targets
        if f"-{case.family}-" in target and args.only in case.name
        if (case.name, target) not in done
    )
    for result in results_of(work, args.jobs):
        results.append(result)
        note = result.crash or f"{result.steps:.2f} steps, left {result.left}"
        print(f"{result.name} {result.target}: {note} ({result.seconds} s)", flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
    table(results)


if __name__ == "__main__":
    main()
