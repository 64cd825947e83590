"""Programs on Java's virtual machine, with its checks of native code (-Xcheck:jni): what they give
there is what eager PyTorch gives, and what cannot be is an exception.

`make java-test` builds the library and the jar first; skipped where they are not there.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewise
from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from examples.models import MODELS
from support import DEEP, assert_close, eager, lower

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "dev" / "native" / "java"
JAR = BUILD / "edgewise.jar"
pytestmark = pytest.mark.skipif(not JAR.exists(), reason="nothing built for Java: make java")

TYPES = {
    torch.float32: "FLOAT32",
    torch.float64: "FLOAT64",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
    torch.int64: "INT64",
    torch.int32: "INT32",
    torch.int16: "INT16",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.bool: "BOOL",
}


@cache
def jdk() -> Path:
    """Where the compiler is that the build found."""
    found = shutil.which("javac")
    assert found is not None, "a JDK is missing: tools/install_cross.sh java"
    return Path(found).resolve().parents[1]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    sources = [str(one) for one in sorted(Path(__file__).parent.glob("*.java"))]
    command = [jdk() / "bin" / "javac", "--release", "8", "-Xlint:all,-options", "-Werror"]
    subprocess.run([*command, "-cp", JAR, "-d", folder, *sources], check=True)
    return folder


def java(
    classes: Path, *arguments: object, script: str = "", folder: Path | None = None
) -> list[str]:
    """The lines that a program prints. Java's own handler of signals is found by ours through its
    library for that, without which -Xcheck:jni names whoever has installed one."""
    command = [
        jdk() / "bin" / "java", "-Xcheck:jni", "-Xmx256m", f"-Djava.library.path={BUILD}",
        "-cp", f"{classes}:{JAR}", *map(str, arguments),
    ]  # fmt: skip
    environment = {"LD_PRELOAD": str(jdk() / "lib" / "libjsig.so"), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, timeout=300, env=environment,
        cwd=folder,
    )  # fmt: skip
    told = done.stdout[-2000:] + done.stderr[-2000:]
    assert done.returncode == 0, told
    assert done.stderr == "", told
    assert not re.search(r"^(WARNING|Warning|FATAL)", done.stdout, re.MULTILINE), told
    return done.stdout.splitlines()


def spell(value: Any) -> str:
    """A value as Run.java reads it."""
    match value:
        case torch.Tensor():
            channels_last = value.dim() == 4 and not value.is_contiguous()
            dense = value.permute(0, 2, 3, 1) if channels_last else value
            plain = dense.contiguous().reshape(-1).view(torch.uint8)
            data = base64.b64encode(plain.numpy().tobytes()).decode()
            shape = ",".join(map(str, value.shape))
            return f"{TYPES[value.dtype]}:{shape}:{data}" + (":nhwc" if channels_last else "")
        case bool():
            return f"bool:{str(value).lower()}"
        case int():
            return f"int:{value}"
        case float():
            return f"number:{value}"
        case None:
            return "none"
        case _:
            return f"text:{value}"


def read(line: str) -> Any:
    """A value as Run.java writes it."""
    for dtype, name in TYPES.items():
        if line.startswith(f"{name}:"):
            _, shape, data = line.split(":")
            sizes = [int(size) for size in shape.split(",") if size]
            if not data:
                return torch.empty(sizes, dtype=dtype)
            return torch.frombuffer(bytearray(base64.b64decode(data)), dtype=dtype).reshape(sizes)
    return line


def script(path: Path | str, *lines: str, load: str = "load") -> str:
    return "\n".join([f"{load} {path}", *lines]) + "\n"


def image(size: int = 224) -> torch.Tensor:
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))


class Types(torch.nn.Module):
    """Integers, halves, booleans and numbers; an output whose channels are last."""

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, i: torch.Tensor, b: torch.Tensor, u: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        last = (x * 2).to(memory_format=torch.channels_last)
        return last, h + h, i.sort(-1).values, ~b, u.to(torch.int32) + 1, i.sum()


class Scaled(torch.nn.Module):
    """Numbers that are no tensors."""

    def forward(self, x: torch.Tensor, by: float, times: int) -> tuple[torch.Tensor, int]:
        return x * by + times, times + 1


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x)
        return self.seen + 0


def types_inputs() -> tuple[torch.Tensor, ...]:
    return (
        image(5)[:, :, :, :4].contiguous(),
        torch.tensor([0.5, -2.0, 1e-7, 65504.0 / 2], dtype=torch.float16),
        torch.tensor([[3, -(1 << 40), 2]]),
        torch.tensor([True, False]),
        torch.tensor([[0], [255]], dtype=torch.uint8),
    )


@dataclass(frozen=True)
class Case:
    make: Any
    inputs: Any
    """A function of nothing: tensors and numbers."""

    backend: str = "xnnpack"
    load: str = "load"
    floor: float = 2e-6


def mobilenet() -> torch.nn.Module:
    return MODELS["mobilenet_v2"].build(0)


CASES = {
    "mobilenet_v2": Case(mobilenet, lambda: (image(),), floor=DEEP),
    "mobilenet_v2, of bytes": Case(mobilenet, lambda: (image(),), load="bytes", floor=DEEP),
    "mobilenet_v2, channels last": Case(
        mobilenet, lambda: (image().to(memory_format=torch.channels_last),), floor=DEEP
    ),
    "types": Case(Types, types_inputs, backend="none", load="heap"),
    "numbers": Case(Scaled, lambda: (torch.arange(3.0), 0.5, 7), backend="none"),
    "empty": Case(torch.nn.ReLU, lambda: (torch.zeros(0, 3),), backend="none"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_gives_what_eager_gives(case: Case, classes: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = case.make().eval(), case.inputs()
    rows_last = tuple(x.contiguous() if isinstance(x, torch.Tensor) else x for x in inputs)
    path = tmp_path / "model.pte"
    edgewise.compile(model, rows_last, backend=case.backend, verbose=False).save(path)
    run = "run " + " ".join(map(spell, inputs))
    lines = java(classes, "Run", script=script(path, "method forward", run, run, load=case.load))
    assert lines[0] == "[forward]"
    wanted = eager(model, inputs)
    got = [read(line) for line in lines[1:]]
    got = [int(y) if isinstance(want, int) else y for y, want in zip(got, wanted * 2, strict=True)]
    for half in (got[: len(wanted)], got[len(wanted) :]):
        assert_close(half, wanted, floor=case.floor)


def test_int8(classes: Path, tmp_path: Path) -> None:
    """To the bit what the runtime gives here, and near PyTorch's quantized program, which computes
    in float32 between quantizations: each of 53 layers rounds some numbers to another integer."""
    x, path = image(), tmp_path / "model.pte"
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(mobilenet().eval(), (x,)).module(), quantizer)
    prepared(x)
    quantized = convert_pt2e(prepared)
    edgewise.compile(torch.export.export(quantized, (x,)), verbose=False).save(path)
    lines = java(classes, "Run", script=script(path, "method forward", f"run {spell(x)}"))
    got, wanted = read(lines[1]).numpy(), quantized(x).detach().numpy()
    np.testing.assert_array_equal(got, np.asarray(edgewise.load(path)(x.numpy())))
    ratio = 20 * np.log10(np.linalg.norm(wanted) / np.linalg.norm(got - wanted))
    print(f"signal to noise: {ratio:.1f} dB")
    assert ratio > 16  # of float32 it is 14, of another image 11


def test_what_a_method_takes_and_gives(classes: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    edgewise.compile(Types(), types_inputs(), backend="none", verbose=False).save(path)
    assert java(classes, "Run", script=script(path, "method forward", "describe"))[1] == (
        "[FLOAT32 [1, 3, 5, 4], FLOAT16 [4], INT64 [1, 3], BOOL [2], UINT8 [2, 1]] -> "
        "[FLOAT32 [1, 3, 5, 4], FLOAT16 [4], INT64 [1, 3], BOOL [2], INT32 [2, 1], INT64 []]"
    )


def test_state_is_kept_shared_and_reset(classes: Path, tmp_path: Path) -> None:
    from edgewise.emit import ExecutorchBackendConfig, MemoryPlanningConfig

    path, x = tmp_path / "model.pte", torch.arange(4.0)
    exported = torch.export.export(Counter(), (x,))
    shared = MemoryPlanningConfig(share_mutable_buffers=True)
    manager = edgewise.to_edge_transform_and_lower(
        {"one": exported, "other": torch.export.export(Counter(), (x,))},
        constant_methods={"name": "klein\u00e4\U0001f680"},
    )
    manager.to_executorch(ExecutorchBackendConfig(memory_planning=shared)).save(path)
    run = f"run {spell(x)}"
    lines = java(
        classes, "Run",
        script=script(path, "method one", run, run, "reset", run, "session shared", "method one",
                      run, "method other", run, "session", "method other", run, "method name",
                      "run"),
    )  # fmt: skip
    assert sorted(lines[0].strip("[]").split(", ")) == ["name", "one", "other"]
    seen = [read(line).tolist() for line in lines[1:-1]]
    assert seen == [(x * times).tolist() for times in (1, 2, 1, 1, 2, 1)]
    assert lines[-1] == "klein\u00e4\U0001f680"


def test_packed_weights_are_kept(classes: Path, tmp_path: Path) -> None:
    path, folder, x = tmp_path / "model.pte", tmp_path / "cache", image(64)
    lower(mobilenet(), (x,)).save(path)
    lines = ["method forward", f"run {spell(x)}"]
    first = java(classes, "Run", script=script(f"{path} {folder}", *lines))
    kept = sorted(one.stat().st_size for one in (folder / "packed").rglob("*"))
    assert sum(kept) > path.stat().st_size / 2
    assert java(classes, "Run", script=script(f"{path} {folder}", *lines)) == first
    assert java(classes, "Run", script=script(path, *lines)) == first


# Case of Refusals.java | what its exception says.
REFUSED = {
    "no file": "NOT_FOUND: [load] '{folder}/none\U0001f680.pte' cannot be opened",
    "a folder": "IO: [load] '{folder}' is not a regular file",
    "null path": "NullPointerException: [Program.load] must not be null",
    "zero in path": "IllegalArgumentException: [Program.load] must have no character 0",
    "null bytes": "NullPointerException: ",
    "no bytes": "INVALID_PROGRAM: [load] the bytes are empty",
    "damaged": "INVALID_PROGRAM: [load] ",
    "null options": "NullPointerException: ",
    "threads": "INVALID_ARGUMENT: [edgewise_load_options] threads must be 0",
    "memory": "IllegalArgumentException: [LoadOptions] bytes must be 0 or more; got -1",
    "little memory": "OUT_OF_MEMORY: [forward] max_memory is 1 bytes",
    "no data file": "NOT_FOUND: [load] 'none.ptd'",
    "null data file": "NullPointerException: [LoadOptions.dataFiles] must not be null",
    "no method": "NOT_FOUND: [load_method] the program has the methods 'forward'; got 'backward'",
    "null method": "NullPointerException: [Program.method] must not be null",
    "closed program": "IllegalStateException: [Program] must be open",
    "closed program's names": "IllegalStateException: [Program] must be open",
    "closed program's session": "IllegalStateException: [Program] must be open",
    "too few inputs": "IllegalArgumentException: [Method.run] the method has 1 inputs; got 0",
    "too many inputs": "IllegalArgumentException: [Method.run] the method has 1 inputs; got 2",
    "null inputs": "NullPointerException: [Method.run] inputs must be an array",
    "none for a tensor": "INVALID_ARGUMENT: [forward] input 0 must be float32[2, 3]; got None",
    "number for a tensor": "INVALID_ARGUMENT: [forward] input 0 must be float32[2, 3]; got int",
    "text for a tensor": "INVALID_ARGUMENT: [forward] input 0 must be float32[2, 3]; got str",
    "an array": "IllegalArgumentException: [Method.run] input 0 must be a Tensor",
    "another type": "INVALID_ARGUMENT: [forward] input 0 must be float32[2, 3]; got int32[2, 3]",
    "another shape": "INVALID_ARGUMENT: [forward] input 0 must be float32[2, 3]; got float32[3",
    "another rank": "INVALID_ARGUMENT: [forward] input 0 must be float32[2, 3]; got float32[6]",
    "data between": "INVALID_ARGUMENT: [Tensor.wrap] the data must lie at a multiple",
    "too few values": "IllegalArgumentException: [Tensor.of] shape [2, 4] has 8 elements; got 6",
    "a negative size": "IllegalArgumentException: [Tensor] sizes must be 0 or more; got [-2, -3]",
    "a huge shape": "IllegalArgumentException: [Tensor] a tensor in Java has at most",
    "a huge tensor": "IllegalArgumentException: [Tensor] a tensor in Java has at most",
    "many dimensions": "IllegalArgumentException: [Tensor] a tensor has at most 16 dimensions",
    "null values": "NullPointerException: ",
    "null shape": "NullPointerException: ",
    "null type": "NullPointerException: ",
    "heap memory": "IllegalArgumentException: [Tensor.wrap] data must be a direct buffer",
    "small memory": "IllegalArgumentException: [Tensor.wrap] data of INT8 [6] must have 6 bytes",
    "channels of a matrix": "IllegalArgumentException: [Tensor.asChannelsLast] the tensor must",
    "ints of floats": "IllegalArgumentException: [Tensor.ints] the tensor must be of [INT32",
    "closed method": "IllegalStateException: [Method] must be open",
    "closed method's inputs": "IllegalStateException: [Method] must be open",
    "closed method's state": "IllegalStateException: [Method] must be open",
    "cut short": "IO: [forward] '{folder}/cut.pte' must stay as it is while it is loaded",
}


@pytest.fixture(scope="module")
def refusals(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder, and the lines that Refusals.java prints."""
    folder = tmp_path_factory.mktemp("refusals")
    lower(torch.nn.Linear(3, 2000), (torch.ones(2, 3),)).save(folder / "model.pte")
    return folder, java(classes, "Refusals", folder / "model.pte", folder)


@pytest.mark.parametrize("case", REFUSED)
def test_it_says_what_is_wrong(case: str, refusals: tuple[Path, list[str]]) -> None:
    folder, lines = refusals
    (line,) = (one for one in lines if one.startswith(f"{case}: "))
    assert line.removeprefix(f"{case}: ").startswith(REFUSED[case].format(folder=folder))


def test_every_refusal_has_its_case_and_leaves_others_alone(
    refusals: tuple[Path, list[str]],
) -> None:
    *lines, last = refusals[1]
    assert [line.split(": ")[0] for line in lines] == list(REFUSED)
    name, sums = last.split(": ")
    assert name == "after all"
    assert len(set(sums.split())) == 1


def test_many_at_once_and_one_after_the_other(classes: Path, tmp_path: Path) -> None:
    x = image(64)
    lower(mobilenet(), (x,)).save(tmp_path / "model.pte")
    told = dict(line.split(": ") for line in java(classes, "Use", tmp_path / "model.pte"))
    grown = int(told.pop("grown"))
    assert told == {"programs": "same", "methods": "same", "method": "same", "closing": "told"}
    print(f"60 times loaded and run: {grown} KB more")
    assert grown < 30_000  # 60 that are not closed take 66 MB


def test_the_documentation(classes: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "android.md").read_text()
    (block,) = re.findall(r"```java\n(.*?)```", page, re.DOTALL)
    edgewise.compile(mobilenet(), (image(),), verbose=False).save(tmp_path / "model.pte")
    (tmp_path / "Main.java").write_text(
        "import org.edgewise.*;\nclass Main { public static void main(String[] none) {\n"
        f"{block}}} }}\n"
    )
    command = [jdk() / "bin" / "javac", "-cp", JAR, "-d", tmp_path, tmp_path / "Main.java"]
    subprocess.run(command, check=True)
    assert java(tmp_path, "Main", folder=tmp_path) == ["[FLOAT32 [1, 3, 224, 224]]", "1000"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number_of_16_bits(dtype: torch.dtype, classes: Path, tmp_path: Path) -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    lower(torch.nn.ReLU(), (torch.ones(1),)).save(tmp_path / "model.pte")
    lines = java(classes, "Run", script=script(tmp_path / "model.pte", "method forward",
                                               f"floats {spell(every)}"))  # fmt: skip
    got, wanted = read(lines[1]), every.float()
    number = ~wanted.isnan()
    assert torch.equal(got[number].view(torch.int32), wanted[number].view(torch.int32))
    assert got[~number].isnan().all()
