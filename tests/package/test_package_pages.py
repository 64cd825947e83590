"""Every block of C, C++ and CMake in the pages is built against the installed package, and runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from package_support import ROOT, configure_and_build, run

from support import Fn, lower

DOCS = ROOT / "docs"

# What a reader has around a page's blocks: includes, a main that calls them, a target to link.
HEADERS = "".join(
    f"#include <{name}>\n"
    for name in ("array", "cstdio", "cstdlib", "fstream", "string", "vector", "edgewise/program.h")
)
CPP_MAIN = """
int main(int argc, char** argv) {
  const auto must = [](const edgewise::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\\n", status.message().c_str());
    std::exit(1);
  };
  std::vector<float> nhwc(3 * 224 * 224);
  if (argc < 2) return 1;
  std::ifstream(argv[1], std::ios::binary)
      .read(reinterpret_cast<char*>(nhwc.data()), nhwc.size() * sizeof(float));
  must(look_at("model.pte"));
  auto program = edgewise::Program::load_file("model.pte", {});
  must(program.status());
  auto method = (*program)->load_method("forward");
  must(method.status());
  must(set_image(**method, nhwc));
  must((*method)->execute());
  print_sizes(**method);
  const float* first = (*method)->output(0)->get<edgewise::Tensor>()->data<float>();
  std::printf("%.6f %.6f %.6f\\n", first[0], first[1], first[2]);
  edgewise::Status wrong = run_once(**method, edgewise::Value(int64_t{1}));
  std::printf("%s\\n", wrong.message().c_str());
}
"""
RUNTIME_MAIN = """
int main() {
  const std::array<int64_t, 4> sizes{1, 3, 224, 224};
  const std::array<uint8_t, 4> order{0, 1, 2, 3};
  std::vector<float> pixels(3 * 224 * 224);
  auto image = edgewise::Tensor::make(edgewise::ScalarType::kFloat, sizes, order, pixels.data(),
                                      pixels.size() * sizeof(float), edgewise::Dynamism::kStatic);
  if (!image) return 1;
  return run_model(edgewise::Value(*image)).ok() ? 0 : 1;
}
"""
C_MAIN = """
int main(int argc, char** argv) {
  const size_t count = 3 * 224 * 224;
  float* pixels = malloc(count * sizeof(float));
  if (pixels == NULL || argc < 2) return 1;
  for (size_t i = 0; i < count; ++i) pixels[i] = 0.25f;
  const int failed = run(argv[1], pixels);
  free(pixels);
  return failed;
}
"""
C_HEADERS = "#include <stdio.h>\n#include <stdlib.h>\n\n#include <edgewise.h>\n"
ALL = """
cmake_minimum_required(VERSION 3.25)
project(pages LANGUAGES C CXX)
find_package(edgewise REQUIRED)
add_compile_options(-Wall -Wextra -Werror)
foreach(name cpp_page runtime_page)
  add_executable(${name} ${name}.cpp)
  target_link_libraries(${name} PRIVATE edgewise::runtime edgewise::kernels
                                        edgewise::xnnpack_backend)
endforeach()
add_subdirectory(c)
add_subdirectory(my_ops)
"""
C_TARGET = "add_executable(run_model main.c)\n"

# The model of docs/custom-operators.md, whose kernel is in a library.
SCALE = """
import sys
import torch
import edgewise

@torch.library.custom_op("my_ns::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor

@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.my_ns.scale(x, 2.0) + 1

print(*edgewise.runtime.load_kernels(sys.argv[1]))
x = torch.arange(3.0)
file = edgewise.to_edge(torch.export.export(Model(), (x,))).to_executorch().buffer
print(edgewise.load(file)(x).tolist())
"""


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def built(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages in one project: each block in the file that its page puts it into."""
    folder = tmp_path_factory.mktemp("pages")
    functions = [text for text in blocks("cpp.md", "cpp") if "int main" not in text]
    (runtime,) = blocks("runtime.md", "cpp")
    (c,) = blocks("c.md", "c")
    (c_cmake,) = blocks("c.md", "cmake")
    (my_ops,) = blocks("custom-operators.md", "cpp")
    (my_ops_cmake,) = blocks("custom-operators.md", "cmake")
    write(
        folder,
        {
            "CMakeLists.txt": ALL,
            "cpp_page.cpp": HEADERS + "".join(functions) + CPP_MAIN,
            "runtime_page.cpp": HEADERS + runtime + RUNTIME_MAIN,
            "c/CMakeLists.txt": C_TARGET + c_cmake,
            "c/main.c": C_HEADERS + c + C_MAIN,
            "my_ops/CMakeLists.txt": my_ops_cmake,
            "my_ops/my_ops.cpp": my_ops,
        },
    )
    return configure_and_build(folder, folder / "build", prefix)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model.pte`: the mean of each channel times a number, and that number."""
    folder = tmp_path_factory.mktemp("page_models")
    model = Fn(lambda image, number: (image.mean((2, 3)) * number, number))
    lower(model, (torch.zeros(1, 3, 224, 224), 7)).save(folder / "model.pte")
    lower(Fn(lambda image: image.mean((2, 3)) * 7), (torch.zeros(1, 3, 224, 224),)).save(
        folder / "image.pte"
    )
    return folder


def test_the_program_is_the_example() -> None:
    example = ROOT / "examples" / "cpp"
    assert (example / "CMakeLists.txt").read_text() in blocks("cpp.md", "cmake")
    assert (example / "main.cpp").read_text() in blocks("cpp.md", "cpp")
    # The other one is run by test_package_subdirectory.py.
    assert len(blocks("cpp.md", "cmake")) == 2


def test_cpp(built: Path, place: Path) -> None:
    image = np.random.default_rng(0).random((224, 224, 3), np.float32)
    image.tofile(place / "nhwc.bin")
    said = run("env", "-C", place, built / "cpp_page", "nhwc.bin").splitlines()
    assert said[:3] == ["forward: 2 inputs", "float32[1, 3]", "7"]
    got = [float(word) for word in said[3].split()]
    assert got == pytest.approx(image.astype(np.float64).mean((0, 1)) * 7, rel=1e-5)
    assert said[4].startswith("[forward] input 0 must be")


def test_runtime(built: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes((place / "image.pte").read_bytes())
    assert run("env", "-C", tmp_path, built / "runtime_page") == "float32[1, 3]\n"


def test_c(built: Path, place: Path) -> None:
    said = run(built / "c" / "run_model", place / "image.pte").split()
    assert said[:3] == ["12", "bytes,", "first"]
    assert float(said[3]) == pytest.approx(0.25 * 7, rel=1e-4)  # XNNPACK adds 50,176 floats


def test_python_without_the_extension(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = blocks("c.md", "python")
    exec(text, {"LIBEDGEWISE": str(library)})
    assert "missing.pte" in capsys.readouterr().out


def test_kernels(built: Path) -> None:
    said = run(sys.executable, "-W", "ignore", "-c", SCALE, built / "my_ops" / "libmy_ops.so")
    assert said.splitlines() == ["my_ns::scale.out", "[1.0, 3.0, 5.0]"]
