"""What people get wrong at first: every message names the place and says what to do."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_support import Command

import edgewise
from edgewise import to_edge, to_edge_transform_and_lower
from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewise.errors import ExportError, UnsupportedOperatorError
from edgewise.runtime import (
    InvalidArgumentError,
    InvalidProgramError,
    NotFoundError,
    Runtime,
)

X = torch.ones(1, 4)
CONV = torch.nn.Conv2d(3, 2, 3)
NCHW, NHWC = torch.ones(1, 3, 8, 8), torch.ones(1, 8, 8, 3)


class Sum(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


class Rows(torch.nn.Module):
    """As many as data choose."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x[x[:, 0] > 0])


class Branch(torch.nn.Module):
    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return a + 1 if a.sum() > 0 else a


@dataclass
class Given:
    """model; program: compiled from it; file: that on disk; folder: to write to."""

    model: torch.nn.Module
    exported: torch.export.ExportedProgram
    program: Any
    file: Path
    folder: Path

    def written(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def compile(self, *arguments: Any, **options: Any) -> Any:
        given = arguments or (self.model, (X,))
        return edgewise.compile(*given, verbose=False, **options)

    def run(self, *inputs: Any, **keywords: Any) -> Any:
        return edgewise.load(self.file)(*inputs, **keywords)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    folder = tmp_path_factory.mktemp("newcomers")
    model = torch.nn.Sequential(torch.nn.Linear(4, 2)).eval()
    program = edgewise.compile(model, (X,), verbose=False)
    program.save(folder / "model.pte")
    exported = torch.export.export(model, (X,))
    torch.export.save(exported, folder / "saved.pt2")
    return Given(model, exported, program, folder / "model.pte", folder)


Mistake = tuple[Callable[[Given], Any], type[BaseException], str]

COMPILING: list[Mistake] = [
    (lambda g: g.compile((X,), g.model), TypeError, "the model comes first; got tuple, then"),
    (lambda g: g.compile(torch.jit.script(g.model), (X,)), TypeError, "that it was made from"),
    (lambda g: g.compile(torch.jit.trace(g.model, X), (X,)), TypeError, "of torch.jit; try"),
    (
        lambda g: g.compile(g.model, (X.to("meta"),)),
        ValueError,
        "example_inputs must be in the CPU",
    ),
    (
        lambda g: g.compile(torch.nn.Linear(4, 2, device="meta"), (X,)),
        ValueError,
        "model must be in",
    ),
    (lambda g: g.compile(CONV, (NHWC,)), ExportError, "[N, H, W, C]: x.permute(0, 3, 1, 2)"),
    (lambda g: g.compile(backend="cpu"), ValueError, "got 'cpu'; try 'xnnpack'"),
    (lambda g: g.compile(quantize="int4-weight", group_size="32"), TypeError, "an int; got '32'"),
    (
        lambda g: g.compile(torch.nn.Linear(48, 2), torch.ones(1, 48), quantize="int4-weight"),
        ValueError,
        "got 32 for the model itself (48); try another group_size",
    ),
    (
        lambda g: g.compile(quantize="int8-weight", keep_float=[g.model[0]]),
        TypeError,
        "keep_float must be a list of names; got Linear; try '0'",
    ),
    (lambda g: g.compile("m.pt2", (X,)), TypeError, "got str; try torch.export.load('m.pt2')"),
    (lambda g: g.compile("model.pth", (X,)), TypeError, "try the module itself, with its weights"),
    (lambda g: g.compile(g.model.state_dict(), (X,)), TypeError, "after model.load_state_dict"),
    (lambda g: g.compile(torch.nn.ReLU, (X,)), TypeError, "try an instance, such as ReLU(...)"),
    (lambda g: g.compile(torch.relu, (X,)), TypeError, "try a torch.nn.Module whose forward"),
    (
        lambda g: g.compile(g.model),
        TypeError,
        "example_inputs must be given for a module; got None",
    ),
    (lambda g: g.compile(g.model, {"x": X}), TypeError, "got dict; try example_kwargs=inputs"),
    (lambda g: g.compile(g.model, X.numpy()), TypeError, "got ndarray; try (torch.from_numpy(x),)"),
    (lambda g: g.compile(g.model, [X.numpy()]), TypeError, "for input 0; try torch.from_numpy"),
    (lambda g: g.compile(g.model, 4), TypeError, "one item for each argument of forward; got int"),
    (lambda g: g.compile(Sum(), X), ExportError, "missing 1 required positional argument: 'b'"),
    (lambda g: g.compile(g.model, (1, 4)), ExportError, "takes 2 positional arguments but 3"),
    (
        lambda g: g.compile(g.model, (torch.ones(1, 5),)),
        ExportError,
        "[export] the model must run with its example inputs; got RuntimeError: mat1 and mat2",
    ),
    (lambda g: g.compile(Branch(), (X,)), ExportError, "try torch.cond for a branch that data"),
    (lambda g: g.compile(Branch(), (X,)), ExportError, f"at {__file__}:"),
    (
        lambda g: g.compile(Rows(), (torch.ones(4, 32),), quantize="int4-dynamic"),
        ExportError,
        "try quantize='int8-dynamic' or 'int4-weight'",
    ),
    (
        lambda g: g.compile(g.model, (X,), dynamic_shapes={"y": {0: torch.export.Dim("n")}}),
        ExportError,
        "top-level keys must be the arg names ['input']",
    ),
    (lambda g: g.compile(backend="XNNPACK"), ValueError, "got 'XNNPACK'; try 'xnnpack'"),
    (lambda g: g.compile(backend="ethosu55-128"), ValueError, "try 'ethos-u55-128'"),
    (lambda g: g.compile(backend=XnnpackPartitioner()), TypeError, "to_edge_transform_and_lower"),
    (lambda g: g.compile(backend="neutron-imxrt700"), Exception, "try installing eiq_neutron_sdk"),
    (lambda g: g.compile(quantize=True), TypeError, "got True; try quantize='int8'"),
    (lambda g: g.compile(quantize="qint8"), ValueError, "got 'qint8'; try 'int8'"),
    (lambda g: g.compile(quantize="int8"), ValueError, "int8 needs calibration data; got none"),
    (lambda g: g.compile(calibration=[X]), ValueError, "calibration is for quantize"),
    (lambda g: g.compile(keep_float=["0"]), ValueError, "keep_float is for quantize"),
    (
        lambda g: g.compile(quantize="int8-weight", keep_float="0"),
        TypeError,
        "keep_float must be a list of names; got '0'; try ['0']",
    ),
    (
        lambda g: g.compile(quantize="int8-dynamic", backend="ethos-u55-128"),
        ValueError,
        "computes in integers; got int8-dynamic; try quantize='int8'",
    ),
    (
        lambda g: g.compile(g.exported, quantize="int4-weight"),
        ValueError,
        "try the module that it was exported from",
    ),
]

CALIBRATING: list[tuple[Any, type[BaseException], str]] = [
    (5, TypeError, "got int; try a list of them"),
    ([], ValueError, "must hold at least one batch; got none"),
    (torch.ones(8, 4), ValueError, "try x[None], or data.split(1)"),
    ([torch.ones(8, 4)], ValueError, "try batches of 1, or dynamic_shapes"),
    ([X.double()], ValueError, "try x.to(torch.float32)"),
    ([X.numpy()], ValueError, "got ndarray; try torch.from_numpy"),
    ([{"x": X}], ValueError, "got dict; try a tuple of its values"),
    ([(X, torch.tensor(1))], ValueError, "of (inputs, label) pairs the inputs alone"),
    ([X * float("nan")], ValueError, "must hold finite numbers; got NaN or infinity"),
]

LOWERING: list[Mistake] = [
    (lambda g: to_edge("m.pt2"), TypeError, "got str; try torch.export.load('m.pt2')"),
    (lambda g: to_edge((g.exported,)), TypeError, 'got tuple; try a dict, {"forward": program}'),
    (
        lambda g: to_edge_transform_and_lower(g.exported, [XnnpackPartitioner()]),
        TypeError,
        "transform_passes must be functions of a graph module; got XnnpackPartitioner; try partiti",
    ),
    (
        lambda g: XnnpackPartitioner(config_precisions="FP32"),
        TypeError,
        "got 'FP32'; try ConfigPrecisionType.",
    ),
    (lambda g: XnnpackPartitioner(configs=["lineer"]), ValueError, "got lineer; try some of: "),
    (
        lambda g: XNNPACKQuantizer().set_module_type(g.model[0], None),
        TypeError,
        "must be a class; got an instance of Linear; try Linear",
    ),
    (lambda g: XNNPACKQuantizer().set_global("int8"), TypeError, "get_symmetric_quantization_conf"),
    (lambda g: g.program.save(io.BytesIO()), TypeError, "got BytesIO; try write_to_file(file)"),
    (lambda g: to_edge(g.model), TypeError, "try torch.export.export(model, inputs)"),
    (
        lambda g: to_edge(g.exported, compile_config={}),
        TypeError,
        "try edgewise.EdgeCompileConfig(",
    ),
    (
        lambda g: to_edge_transform_and_lower(g.exported, partitioner=[XnnpackPartitioner]),
        TypeError,
        "try an instance, such as XnnpackPartitioner()",
    ),
    (
        lambda g: to_edge_transform_and_lower(g.exported, partitioner="xnnpack"),
        TypeError,
        "got 'xnnpack'; try an instance",
    ),
    (lambda g: to_edge(g.exported).to_executorch({}), TypeError, "ExecutorchBackendConfig(...)"),
    (lambda g: g.program.save(g.folder), IsADirectoryError, "[save] a program is a file; try"),
    (lambda g: g.program.save(g.folder / "a" / "b.pte"), FileNotFoundError, "no such folder"),
    (lambda g: g.program.write_to_file("m.pte"), TypeError, "open(path, 'wb'), or save(path)"),
    (lambda g: g.program.write_to_file(io.StringIO()), TypeError, "open for writing bytes"),
    (lambda g: g.program.delegation_report("encode"), KeyError, "one of forward; got 'encode'"),
    (lambda g: g.program.memory_plan("encode"), KeyError, "one of forward; got 'encode'"),
    (lambda g: edgewise.complie, AttributeError, "has no attribute 'complie'"),
]

RUNNING: list[Mistake] = [
    (
        lambda g: edgewise.load(g.compile(CONV, (NCHW,)).buffer)(NHWC),
        InvalidArgumentError,
        "got float32[1, 8, 8, 3]; try moving the channels: transpose(0, 3, 1, 2)",
    ),
    (
        lambda g: Runtime.get().load_program(g.file).load_method("forward").execute({"x": X}),
        InvalidArgumentError,
        "in the order of forward's arguments; got dict; try execute([*inputs.values()])",
    ),
    (
        lambda g: edgewise.profile(g.model),
        TypeError,
        "try `with edgewise.profile() as p: model(x)`",
    ),
    (lambda g: edgewise.profile(record=g.file), ValueError, "try the file that program.save('mode"),
    (
        lambda g: edgewise.runtime.register_kernel("scale"),
        ValueError,
        "must have a namespace and the operator's name; got 'scale'; try \"my_ns::my_op.out\"",
    ),
    (lambda g: edgewise.report.write("r.html", []), ValueError, "one or more files; got none; try"),
    (
        lambda g: edgewise.report.write("r.html", [g.program]),
        TypeError,
        "try its save('model.pte', ",
    ),
    (lambda g: edgewise.report.write("no/r.html", [g.file]), FileNotFoundError, "no such folder"),
    (lambda g: edgewise.inspect.read_contents(None), TypeError, "try 'model.pte', or program.buff"),
    (lambda g: edgewise.inspect.open_program(g.folder), IsADirectoryError, "a program is a file"),
    (
        lambda g: edgewise.inspect.suggest(g.exported, X, quantize="int8"),
        TypeError,
        "try the module that it was",
    ),
    (
        lambda g: edgewise.inspect.compare(g.model, g.program, [X.numpy()]),
        TypeError,
        "got ndarray for input 0; try torch.from_numpy",
    ),
    (
        lambda g: edgewise.scale.calibrate(g.model, [X]),
        TypeError,
        "must come from prepare_pt2e; got",
    ),
    (lambda g: edgewise.load("no.pte"), FileNotFoundError, "no such file; looked from"),
    (lambda g: edgewise.load(g.folder), IsADirectoryError, "a program is a file"),
    (lambda g: edgewise.load(g.program), TypeError, "try its .buffer, or save it"),
    (lambda g: edgewise.load(None), TypeError, "a path, bytes or a file open for reading"),
    (lambda g: edgewise.load(g.folder / "saved.pt2"), InvalidProgramError, "edgewise.compile("),
    (lambda g: edgewise.load(g.written("a.pte", b"")), InvalidProgramError, "is empty"),
    (
        lambda g: edgewise.load(g.written("b.pte", b"version https://git-lfs.github.com/spec")),
        InvalidProgramError,
        "try git lfs pull",
    ),
    (
        lambda g: edgewise.load(g.written("c.tflite", b"\x1c\0\0\0TFL3" + bytes(64))),
        InvalidProgramError,
        "which is TFLite's",
    ),
    (
        lambda g: edgewise.load(g.program.buffer[:-500]),
        InvalidProgramError,
        "the file may be truncated",
    ),
    (lambda g: edgewise.load(g.file, method="f"), NotFoundError, "one of ['forward']; got 'f'"),
    (lambda g: edgewise.load(g.file, threads=0), InvalidArgumentError, "between 1 and 1024"),
    (lambda g: edgewise.load(g.file, data_path="w.ptd"), FileNotFoundError, "no such file"),
    (lambda g: g.run(), InvalidArgumentError, "takes 1 positional argument; got 0"),
    (lambda g: g.run(x=X), InvalidArgumentError, "got 0; input missing"),
    (lambda g: g.run((X,)), InvalidArgumentError, "got tuple; try model(*inputs)"),
    (lambda g: g.run({"x": X}), InvalidArgumentError, "try model(*inputs.values())"),
    (lambda g: g.run([[1.0, 2.0]]), InvalidArgumentError, "got list; try numpy.asarray()"),
    (lambda g: g.run(X.numpy().astype("f8")), InvalidArgumentError, "try converting it to float32"),
    (lambda g: g.run(torch.ones(2, 4)), InvalidArgumentError, "try exporting the model with dynam"),
    (lambda g: g.run(torch.ones(4)), InvalidArgumentError, "try a tensor of 2 dimensions"),
    (lambda g: g.run(X.clone().requires_grad_()), InvalidArgumentError, "try tensor.detach()"),
    (
        lambda g: Runtime.get().load_program(g.file).load_method("forward").execute(X),
        InvalidArgumentError,
        "got Tensor; try execute([x])",
    ),
    (
        lambda g: edgewise.inspect.compare(g.model, g.file, [X]),
        ValueError,
        "try the program, not its file",
    ),
    (
        lambda g: edgewise.inspect.compare(g.program, g.model, [X]),
        TypeError,
        "try compare(model, program, batches)",
    ),
    (
        lambda g: edgewise.inspect.compare(g.model, g.program, X),
        TypeError,
        "got one tensor; try [x]",
    ),
    (
        lambda g: edgewise.inspect.read_contents(g.folder / "saved.pt2"),
        ValueError,
        "a file has 'ET12' at byte 4",
    ),
]


@pytest.mark.parametrize(
    ("mistake", "kind", "message"),
    [*COMPILING, *LOWERING, *RUNNING],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_in_python(
    given: Given, mistake: Callable[[Given], Any], kind: type[BaseException], message: str
) -> None:
    with pytest.raises(kind) as raised:
        mistake(given)
    assert message in str(raised.value)


def test_calibration(given: Given) -> None:
    for batches, kind, message in CALIBRATING:
        with pytest.raises(kind) as raised:
            given.compile(quantize="int8", calibration=batches)
        assert message in str(raised.value)


def test_missing_kernel() -> None:
    """Of an operator of one's own: an error when compiling, or a warning; a runtime without it says
    so again."""
    library = torch.library.Library("newcomers", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: torch.empty_like(x), "Meta")

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.newcomers.twice(x) + 1

    told = r"got none for\n.*newcomers::twice.out.*\n.*try @edgew"
    with pytest.raises(UnsupportedOperatorError, match=told):
        edgewise.compile(Twice(), (X,), verbose=False)
    with pytest.warns(UserWarning, match=told):
        program = edgewise.compile(Twice(), (X,), verbose=False, missing_kernels="warn")
    with pytest.raises(NotFoundError, match=r"newcomers::twice\.out.*; try .*load_kernels"):
        edgewise.load(program.buffer)


@pytest.mark.parametrize(
    ("missing", "code", "message"),
    [
        ("torch", "import edgewise; edgewise.compile", "try pip install edgewise[export]"),
        ("edgewise.runtime._native", "import edgewise; edgewise.load", "try pip install . in the"),
        (
            "torch",
            "from edgewise.backends.xnnpack import XnnpackPartitioner",
            "[edgewise.backends.xnnpack.XnnpackPartitioner] lowering needs torch and flatbuffers; "
            "got no torch; try pip install edgewise[export]",
        ),
    ],
)
def test_missing_parts(missing: str, code: str, message: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; {code}"
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 1
    assert message in shown.stderr.splitlines()[-1]


COMMANDS: list[tuple[str, int, str]] = [
    ("compiel", 2, "No such command 'compiel'"),
    ("compile", 2, "Missing argument 'MODEL'. Try: edgewise compile --help"),
    ("compile {}/model.py:make --backnd x", 2, "No such option: --backnd"),
    ("compile {}/model.py", 1, "/model.py:make with the function that makes the model"),
    ("compile {}/nope.py:make", 1, "[MODEL] no such file: "),
    ("compile {}/model.py:mak", 1, "got no 'mak'; try one of: "),
    ("compile {}/model.py:not_a_model", 1, "must be, or return, a torch.nn.Module"),
    ("compile {}/model.py:broken", 1, "broken] raised TypeError"),
    ("compile {}/model.py:branch -o {}/x.pte", 1, "try torch.cond for a branch"),
    ("compile {}/model.py:pair", 1, "or a tuple (model, example_inputs, dynamic_shapes)"),
    ("compile no.such.module:make", 1, "must be a Python file or a module that can be imported"),
    ("compile {}/data.npy", 1, "must be model.py:make, package.module:make or a .pt2 file"),
    ("compile {}/weights.pt", 1, "got a file of weights"),
    ("compile {}/broken.pt2", 1, "must be a file of torch.export.save of this torch"),
    ("compile {}/model.py:make -b XNNPACK", 1, "got 'XNNPACK'; try 'xnnpack'"),
    ("compile {}/model.py:make --quantize int", 1, "must be one of none, auto, int8, int8-dyn"),
    ("compile {}/model.py:make --quantize int8", 1, "try --calibration FOLDER of pictures"),
    ("compile {}/model.py:make --quantize int8 -c {}/nope", 1, "no such file, and not 'random'"),
    ("compile {}/model.py:make --quantize int4-weight --group-size 5", 1, "a multiple of 32"),
    ("compile {}/model.py:make -b none -b xnnpack -o {}/x.pte", 1, "must have different names"),
    ("compile {}/model.py:make -o {}/no/x.pte", 1, "no such folder"),
    ("run {}/nope.pte", 1, "no such file; looked from"),
    ("run {}/weights.pt", 1, "which is a file of torch.save or torch.export.save"),
    ("run {}/cut.pte", 1, "the file may be truncated"),
    ("run {}/float.pte -i {}/small.npy", 1, "must hold float32 1x3x16x16"),
    ("run {}/float.pte -i random -i random", 1, "the model takes 1 inputs"),
    ("run {}/float.pte -m encode", 1, "must be one of the file's: forward; got encode"),
    ("run {}/float.pte --preprocess resnet", 1, "must be one of imagenet, unit, symmetric, raw"),
    ("run {}/float.pte -o y.txt", 1, "must end in .npy or .npz"),
    ("run {}/float.pte --threads 0", 2, "Invalid value for '--threads'"),
    ("inspect {}/cut.pte", 1, "try making or copying the file again"),
    ("inspect {}/nope.pte", 1, "No such file or directory"),
    ("inspect {}", 1, "Is a directory"),
    ("explain {}/conv.pte", 1, "a .pte file does not hold reasons: its record does"),
    ("explain {}/float.pte -f nothing", 1, "[--find] must be part of a node's name"),
    ("explain {}/model.py:make --runtime", 1, "[--runtime] SOURCE must be a .pte file"),
    ("explain {}/float.pte --runtime -f nothing", 1, "[--find] must be part of an operation"),
    ("compare {}/model.py:make --program {}/nope.pte", 1, "[--program] no such file"),
    ("bench {}/float.pte --eager {}/model.py:broken -n 3", 1, "raised TypeError"),
    ("diff {}/float.pte {}/nope.pte", 1, "No such file or directory"),
    ("compile {}/model.py:make -c {}/data.npy", 1, "[--calibration] is for --quantize int8; got"),
    ("compile {}/model.py:make --quantize int8 -c {}/no.npy", 1, "[--calibration] no such file"),
    ("compare {}/float.pte", 1, "got a .pte file; try model.py:make, or edgewise inspect"),
    ("bench {}/model.py:make", 1, "must be a .pte file; got"),
    ("profile {}/nope.pte", 1, "no such file; looked from"),
    ("profile {}/float.pte -n 1 --trace {}/no/t.json", 1, "/no: no such folder"),
    ("profile {}/float.pte --by layer", 2, "is not one of 'operator', 'kind', 'module', 'line'"),
    ("report {}/nope.pte", 1, "No such file or directory"),
    ("report {}/float.pte -o {}/no/r.html", 1, "[report] no such folder"),
    ("report {}/float.pte --profile {}/float.pte", 1, "got bytes that are no text; try what `edge"),
    ("sweep {}/nope.yaml", 1, "a file must be there; got none at"),
    ("llm run {}/float.pte --prompt-tokens 1", 1, "try a file of edgewise llm export"),
    ("llm run {}/float.pte --prompt-tokens a", 1, "numbers with spaces between; got 'a'; try"),
    ("llm run {}/float.pte", 2, "must be given --prompt or --prompt-tokens; got neither"),
    ("llm run {}/float.pte --prompt a", 1, "--prompt needs --tokenizer"),
    ("llm export -o {}/x.pte", 2, "must be given --config or --checkpoint; got neither"),
    ("llm export --config tiny -o {}/no/x.pte", 1, "no such folder"),
    ("ops qnn", 1, "BACKEND must be one of xnnpack, ethos-u,"),
    ("ops xnnpack -f fft", 1, "xnnpack takes no operator with 'fft'"),
    ("doctor --need exprot", 1, "must be an extra: "),
    ("ethosu disassemble {}/float.pte", 1, "has no Ethos-U delegate"),
    ("ethosu trace {}/float.pte", 1, "has no Ethos-U delegate"),
]


@pytest.mark.parametrize(("words", "code", "message"), COMMANDS, ids=lambda v: str(v)[:40])
def test_on_the_command_line(
    folder: Path, command: Command, words: str, code: int, message: str
) -> None:
    if not (folder / "cut.pte").exists():
        whole = (folder / "float.pte").read_bytes()
        (folder / "cut.pte").write_bytes(whole[: len(whole) // 2])
        np.save(folder / "small.npy", np.zeros((2, 2), np.float32))
        torch.save({"w": X}, folder / "weights.pt")
        (folder / "broken.pt2").write_bytes(b"no archive")
    shown = command(*words.replace("{}", str(folder)).split())
    assert (shown.code, message in shown.err) == (code, True), shown.err
    assert "error: " in shown.err or words.startswith("ethosu")
    assert "Traceback" not in shown.err


def test_errors_as_json(command: Command) -> None:
    shown = command("inspect", "nope.pte", "--json")
    assert shown.json["error"]["exit_code"] == shown.code == 1
    assert "nope.pte" in shown.json["error"]["message"]
    assert "nope.pte" in shown.err


def test_defects_show_where(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewise.cli import doctor

    monkeypatch.setattr(doctor, "_processor", lambda: 1 // 0)
    shown = command("doctor")
    assert shown.code == 5
    assert "Traceback" in shown.err
    assert "unforeseen ZeroDivisionError" in shown.err
