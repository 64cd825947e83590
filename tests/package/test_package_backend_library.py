"""A backend in a shared library (examples/backend_library), and a program whose delegates it runs,
made by a partitioner and backend of a few lines: from Python, C and the runner."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from package_support import BUILD, ROOT, configure_and_build, run
from test_package_c import Library, array_of
from torch.export import ExportedProgram

import edgewise
from edgewise import runtime
from edgewise.partition import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from support import assert_close, eager, export

EXAMPLE = ROOT / "examples" / "backend_library"
RUNNER = BUILD / "native" / "tools" / "edgewise_run"
X = torch.linspace(-2, 3, 6).reshape(2, 3)

OTHERS = {
    "version": '#include "version.h"',
    "layout": '#include "layout.h"',
    "empty": '#include "edgewise/backend_library.h"',
    "twice": """
#include "edgewise/backend_library.h"
struct Twice : edgewise::Backend {
  edgewise::Result<std::unique_ptr<edgewise::Delegate>> init(
      const edgewise::DelegateInit&) override {
    return edgewise::error(edgewise::Code::kUnsupported, "takes nothing");
  }
};
EDGEWISE_REGISTER_BACKEND("TwiceBackend", Twice)
EDGEWISE_REGISTER_BACKEND("TwiceBackend", Twice)""",
}
"""Libraries that are refused."""
CHANGES = {
    "version.h": ("kBackendLibraryVersion = 2;", "kBackendLibraryVersion = 7;"),
    "layout.h": ("{sizeof(Backend),", "{sizeof(Backend) + 8,"),
}
"""What other releases' or compilers' headers would say."""


class ScaleBackend(BackendDetails):
    """One product with a constant of one number becomes that number."""

    @staticmethod
    def preprocess(program: ExportedProgram, specs: list[CompileSpec]) -> PreprocessResult:
        ((name, constant),) = {**program.state_dict, **program.constants}.items()
        assert constant.numel() == 1, name
        return PreprocessResult(struct.pack("<f", float(constant)))


class ScalePartitioner(Partitioner):
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        signature = exported_program.graph_signature
        for node in exported_program.graph.nodes:
            if node.op != "call_function" or not str(node.target).endswith("mul.Tensor"):
                continue
            factor = node.args[1]
            if factor.name not in signature.inputs_to_buffers:
                continue
            tag = f"scale_{len(tags)}"
            tags[tag] = DelegationSpec("ScaleBackend", [])
            node.meta["delegation_tag"] = factor.meta["delegation_tag"] = tag
        return PartitionResult(exported_program, tags)


class Scales(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("two", torch.tensor(2.0))
        self.register_buffer("quarter", torch.tensor(0.25))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.two).sin() * self.quarter


@pytest.fixture(scope="module")
def built(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's library, and those that are refused."""
    folder = tmp_path_factory.mktemp("backend_library")
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(all LANGUAGES CXX)"]
    lines += ["find_package(edgewise REQUIRED)", f"add_subdirectory({EXAMPLE} example)"]
    header = (prefix / "include" / "edgewise" / "backend_library.h").read_text()
    for name, (text, changed) in CHANGES.items():
        assert text in header
        (folder / name).write_text(header.replace(text, changed))
    for name, text in OTHERS.items():
        (folder / f"{name}.cpp").write_text(text + "\n")
        lines.append(f"edgewise_add_backend_library({name} {name}.cpp)")
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    return configure_and_build(folder, folder / "build", prefix)


@pytest.fixture(scope="module")
def example(built: Path) -> Path:
    return built / "example" / "libscale_backend.so"


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    edge = edgewise.to_edge(export(Scales(), (X,))).to_backend(ScalePartitioner())
    path = tmp_path_factory.mktemp("backend_file") / "scales.pte"
    edge.to_executorch().save(path)
    return path


@pytest.fixture(scope="module")
def loaded(example: Path, pte: Path) -> list[str]:
    """For the rest of the process: what Python says before, and the ids."""
    with pytest.raises(runtime.NotFoundError, match="ScaleBackend"):
        runtime.Runtime.get().load_program(pte).load_method("forward")
    return runtime.load_backends(example)


def test_python(loaded: list[str], pte: Path, example: Path) -> None:
    assert loaded == ["ScaleBackend"]
    registry = runtime.Runtime.get().backend_registry
    assert "ScaleBackend" in registry.registered_backend_names
    assert registry.is_available("ScaleBackend")
    method = runtime.Runtime.get().load_program(pte).load_method("forward")
    assert [d.backend for d in method.metadata.delegates] == ["ScaleBackend"] * 2
    for x in (X, X * 3):
        assert_close(method.execute([x.numpy()]), eager(Scales(), (x,)))
    with pytest.raises(runtime.InvalidArgumentError, match="registered once; got 'ScaleBackend'"):
        runtime.load_backends(example)


def test_a_profile_times_its_delegates(loaded: list[str], pte: Path) -> None:
    method = runtime.Runtime.get().load_program(pte).load_method("forward")
    with edgewise.profile() as profile:
        method.execute([X.numpy()])
    assert str(profile).count("ScaleBackend") == 2


def test_what_its_delegates_refuse(
    loaded: list[str], pte: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures of the library's own code arrive as errors of the program."""
    module = Scales().double()
    edge = edgewise.to_edge(export(module, (X.double(),))).to_backend(ScalePartitioner())
    method = runtime.Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward")
    with pytest.raises(runtime.BackendError, match="float32 input and output"):
        method.execute([X.double().numpy()])
    monkeypatch.setattr(
        ScaleBackend, "preprocess", staticmethod(lambda program, specs: PreprocessResult(b"12345"))
    )
    edge = edgewise.to_edge(export(Scales(), (X,))).to_backend(ScalePartitioner())
    program = runtime.Runtime.get().load_program(edge.to_executorch().buffer)
    with pytest.raises(runtime.InvalidProgramError, match="must have 4 bytes; got 5"):
        program.load_method("forward")


def test_the_runner(example: Path, pte: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    arguments = [RUNNER, pte, "--input", tmp_path / "x.npy", "--output-dir", tmp_path]
    run(*arguments, "--backends", example)
    assert_close([np.load(tmp_path / "output_0.npy")], eager(Scales(), (X,)))
    without = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    assert without.returncode == 1
    assert "ScaleBackend" in without.stderr
    missing = subprocess.run(
        [*map(str, arguments), "--kernels", "missing.so"], capture_output=True, text=True
    )
    assert missing.returncode == 1
    assert "[load_kernels] a library must load; got ./missing.so" in missing.stderr


def test_c(library: Path, example: Path, pte: Path) -> None:
    c = Library(library)
    c.call("load_backends", str(example).encode())
    method = c.load(pte)
    c.set(method, 0, X.numpy())
    c.call("method_execute", method)
    got = array_of(c.value("method_output", method, 0))
    assert_close([got], eager(Scales(), (X,)))
    c.raw.edgewise_method_free(ctypes.c_void_p(method.value))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("version", runtime.UnsupportedError, r"version 2 of the interface.*; got version 7 in"),
        ("layout", runtime.UnsupportedError, r"its types laid out alike; got other layouts in"),
        ("empty", runtime.InvalidArgumentError, "must register something; got nothing in"),
        ("twice", runtime.InvalidArgumentError, "registered once; got 'TwiceBackend' again"),
    ],
)
def test_libraries_that_are_refused(
    built: Path, name: str, error: type[Exception], message: str
) -> None:
    before = runtime.Runtime.get().backend_registry.registered_backend_names
    with pytest.raises(error, match=rf"\[load_backends\].*{message}"):
        runtime.load_backends(built / f"lib{name}.so")
    assert runtime.Runtime.get().backend_registry.registered_backend_names == before


def test_files_that_are_no_library(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(runtime.NotFoundError, match=r"\[load_backends\] a library must load"):
        runtime.load_backends(tmp_path / "text.so")
    with pytest.raises(runtime.InvalidArgumentError, match="must export edgewise_backend_library"):
        runtime.load_backends(runtime._native.__file__)


def test_nothing_else_is_exported(example: Path) -> None:
    exported = [
        line.split()[-1] for line in run("nm", "-D", "--defined-only", example).splitlines()
    ]
    assert [s for s in exported if "edgewise" in s] == ["edgewise_backend_library"]


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "native-backends.md").read_text()
    for file in ("CMakeLists.txt", "scale_backend.cpp"):
        assert (EXAMPLE / file).read_text().strip() in page


def test_python_in_a_process_of_its_own(example: Path, pte: Path) -> None:
    """A program and its delegates outlive nothing: the process ends cleanly with both loaded."""
    code = """
import sys
import numpy as np
import edgewise.runtime as runtime
print(*runtime.load_backends(sys.argv[1]))
model = runtime.load(sys.argv[2])
print(model(np.ones((2, 3), np.float32)).shape)
"""
    said = run(sys.executable, "-c", code, example, pte).splitlines()
    assert said == ["ScaleBackend", "(2, 3)"]
