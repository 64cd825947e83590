"""Operators of the user's own: their kernels in Python and in a C++ library, and what is said
where there is none."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
from edgewise import runtime
from edgewise.emit import ExecutorchBackendConfig
from edgewise.emit.missing_kernels import MissingKernelWarning
from edgewise.errors import UnsupportedOperatorError
from support import Fn, assert_close, eager, export, lower, operators, run_ours

ROOT = Path(__file__).parents[2]
X = torch.linspace(-2, 3, 6).reshape(2, 3)
Tensor = torch.Tensor


@torch.library.custom_op("edgewise_test::affine", mutates_args=())
def affine(x: Tensor, scale: float, shift: int, names: list[int] | None = None) -> Tensor:
    return x * scale + shift


@affine.register_fake
def _(x: Tensor, scale: float, shift: int, names: list[int] | None = None) -> Tensor:
    return torch.empty_like(x)


@runtime.register_kernel("edgewise_test::affine.out")
def affine_kernel(x: Any, scale: float, shift: int, names: Any, out: Any) -> Any:
    assert names is None or names == [1, 2]
    if out.shape != x.shape:  # the largest one
        return x * scale + np.float32(shift)
    out[...] = x * scale + shift
    return None


@torch.library.custom_op("edgewise_test::halves", mutates_args=())
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:1] * 1, x[1:] * 1


@halves.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((1, *x.shape[1:])), x.new_empty((x.shape[0] - 1, *x.shape[1:]))


@runtime.register_kernel("edgewise_test::halves.out")
def halves_kernel(x: Any, out0: Any, out1: Any) -> Any:
    return x[:1], x[1:]


@torch.library.custom_op("edgewise_test::positives", mutates_args=())
def positives(x: Tensor) -> Tensor:
    return x[x > 0]


@positives.register_fake
def _(x: Tensor) -> Tensor:
    size = torch.library.get_ctx().new_dynamic_size(max=x.numel())
    return x.new_empty(size)


@runtime.register_kernel("edgewise_test::positives.out")
def positives_kernel(x: Any, out: Any) -> Any:
    return x[x > 0]


@torch.library.custom_op("edgewise_test::scale_", mutates_args={"x"})
def scale_(x: Tensor, by: float) -> None:
    x.mul_(by)


@runtime.register_kernel("edgewise_test::scale_")
def scale_kernel(x: Any, by: float) -> None:
    x *= by


@torch.library.custom_op("edgewise_test::failing", mutates_args=())
def failing(x: Tensor) -> Tensor:
    return x + 1


@failing.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@runtime.register_kernel("edgewise_test::failing.out")
def failing_kernel(x: Any, out: Any) -> Any:
    raise ValueError("no such luck")


@torch.library.custom_op("edgewise_test::nowhere", mutates_args=())
def nowhere(x: Tensor, k: float) -> Tensor:
    return x + k


@nowhere.register_fake
def _(x: Tensor, k: float) -> Tensor:
    return torch.empty_like(x)


class WritesABuffer(torch.nn.Module):
    """Writes a computed tensor, a view of it, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        ops.scale_(y, 3.0)
        ops.scale_(self.state, 2.0)
        ops.scale_(y[:1], 0.5)
        return y + self.state


ops = torch.ops.edgewise_test
ROWS = torch.export.Dim("rows", min=3, max=5)

# Module | calls | dynamic shapes.
CASES: dict[str, tuple[Callable[[], torch.nn.Module], list[tuple[Tensor, ...]], Any]] = {
    "one output": (lambda: Fn(lambda x: ops.affine(x, 2.0, 3) * 2), [(X,)], None),
    "a list": (lambda: Fn(lambda x: ops.affine(x.sin(), 0.5, 1, [1, 2])), [(X,)], None),
    "integers": (lambda: Fn(lambda x: ops.affine(x, 2.0, 3).long()), [(X,)], None),
    "several outputs": (lambda: Fn(lambda x: ops.halves(x + 1)), [(X,)], None),
    "dynamic": (
        lambda: Fn(lambda x: ops.halves(ops.affine(x, 2.0, 1))),
        [(X.repeat(2, 1),), (X.repeat(3, 1)[:5],), (X.repeat(2, 1)[:3],)],
        (({0: ROWS},),),
    ),
    "sizes that data tell": (
        lambda: Fn(lambda x: ops.positives(x) * 2),
        [(X,), (-X,), (-X.abs(),)],
        None,
    ),
    "in a branch": (
        lambda: Fn(
            lambda x: torch.cond(x.sum() > 0, lambda x: ops.affine(x, 2.0, 1), torch.sin, (x,))
        ),
        [(X,), (-X,)],
        None,
    ),
    "written arguments": (WritesABuffer, [(X,), (X + 1,)], None),
}


@pytest.mark.parametrize("name", CASES)
def test_python_kernels(name: str) -> None:
    make, calls, dynamic_shapes = CASES[name]
    module = make().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingKernelWarning)
        pte = lower(module, calls[0], dynamic_shapes=dynamic_shapes).buffer
    for got, inputs in zip(run_ours(pte, *calls), calls, strict=True):
        assert_close(got, eager(module, inputs))


def test_an_exception_names_the_operator() -> None:
    pte = lower(Fn(lambda x: ops.failing(x)), (X,)).buffer
    with pytest.raises(
        runtime.Error, match=r"edgewise_test::failing\.out.*ValueError: no such luck"
    ) as raised:
        run_ours(pte, (X,))
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x.astype(np.float64), r"must be float32\[2, 3\]; got float64"),
        (lambda x: x[None], "of rank 3"),
        (lambda x: (x, x), "its 1 outputs; got 2"),
        (lambda x: x[:1], "its shape is static"),
        (lambda x: "text", "must be an array"),
    ],
    ids=["type", "rank", "count", "shape", "no array"],
)
def test_results_that_do_not_fit(result: Any, message: str) -> None:
    name = f"wrong_{abs(hash(message))}"
    library = torch.library.custom_op(f"edgewise_test::{name}", mutates_args=())

    @library
    def wrong(x: Tensor) -> Tensor:
        return x.clone()

    wrong.register_fake(lambda x: torch.empty_like(x))
    runtime.register_kernel(f"edgewise_test::{name}.out")(lambda x, out: result(x))
    pte = lower(Fn(wrong), (X,)).buffer
    with pytest.raises(runtime.Error, match=message):
        run_ours(pte, (X,))


def test_names_are_registered_once() -> None:
    with pytest.raises(runtime.InvalidArgumentError, match=r"edgewise_test::affine\.out"):
        runtime.register_kernel("edgewise_test::affine.out")(lambda *a: None)
    with pytest.raises(TypeError, match="register_kernel"):
        runtime.register_kernel(lambda x, out: None)  # type: ignore[arg-type]


def test_a_missing_kernel_is_said_at_lowering_and_at_load() -> None:
    edge = edgewise.to_edge(export(Fn(lambda x: ops.nowhere(x, 2.0).sin()), (X,)))
    call = r'register_kernel\("edgewise_test::nowhere\.out"\)'
    said = rf"(?s)nowhere\S*default, \S+:\d+\].*Tensor x, float k\) -> Tensor.*{call}"
    with pytest.warns(MissingKernelWarning, match=said):
        pte = edge.to_executorch(ExecutorchBackendConfig(missing_kernels="warn")).buffer
    with pytest.raises(UnsupportedOperatorError, match=said):
        edge.to_executorch()
    report = edge.delegation_report()
    assert list(report.missing_kernels.values()) == ["edgewise_test::nowhere.out"]
    assert "no kernel: edgewise_test::nowhere.out" in str(report)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edge.to_executorch(ExecutorchBackendConfig(missing_kernels="ignore"))
    schema = r"edgewise_test::nowhere\.out\(Tensor, float, Tensor out\) \(instruction 0\)"
    with pytest.raises(runtime.NotFoundError, match=rf"{schema}.*{call}"):
        run_ours(pte, (X,))


# --- a library of C++ kernels -------------------------------------------------------------


@torch.library.custom_op("edgewise_test::axpb", mutates_args=())
def axpb(x: Tensor, a: float, b: float) -> Tensor:
    return x * a + b


@axpb.register_fake
def _(x: Tensor, a: float, b: float) -> Tensor:
    return torch.empty_like(x)


def _build(source: Path, folder: Path) -> Path:
    """Installs the runtime's development files and builds a project against them."""
    build = ROOT / "build" / "dev"
    if not (build / "build.ninja").exists():
        pytest.skip("the native build is not in build/dev: make native")
    prefix = folder / "installed"
    commands = [
        ["cmake", "--build", str(build), "--target", "edgewise_runtime", "edgewise_kernels"],
        ["cmake", "--build", str(build), "--target", "edgewise_xnnpack_backend", "edgewise_c"],
        ["cmake", "--install", str(build), "--component", "devel", "--prefix", str(prefix)],
        ["cmake", "-S", str(source), "-B", str(folder / "build"), f"-DCMAKE_PREFIX_PATH={prefix}"],
        ["cmake", "--build", str(folder / "build")],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return folder / "build" / "libmy_ops.so"


def test_a_library_of_kernels(tmp_path: Path) -> None:
    library = _build(Path(__file__).parent / "kernel_library", tmp_path)
    module = Fn(lambda x: ops.axpb(x.cos(), 2.0, 0.5) + 1)
    with pytest.raises(UnsupportedOperatorError, match=r"axpb\.out"):
        lower(module, (X,))
    edge = edgewise.to_edge(export(module, (X,)))
    with pytest.warns(MissingKernelWarning):
        pte = edge.to_executorch(ExecutorchBackendConfig(missing_kernels="warn")).buffer
    assert operators(pte).count("edgewise_test::axpb.out") == 1
    assert runtime.load_kernels(library) == ["edgewise_test::axpb.out"]
    assert_close(run_ours(pte, (X,))[0], eager(module, (X,)))
    wrong = lower(Fn(lambda x: ops.axpb(x, 2.0, 0.5)), (X.double(),)).buffer
    with pytest.raises(runtime.UnsupportedError, match=r"axpb\.out\] computes in float32"):
        run_ours(wrong, (X.double(),))
    with pytest.raises(runtime.InvalidArgumentError, match="registered once"):
        runtime.load_kernels(library)
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True
    )
    exported = [line.split()[-1] for line in symbols.stdout.splitlines()]
    assert [s for s in exported if "edgewise" in s] == ["edgewise_kernel_library"]


def test_files_that_are_no_library_of_kernels(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(runtime.NotFoundError, match="load_kernels"):
        runtime.load_kernels(tmp_path / "text.so")
    with pytest.raises(runtime.InvalidArgumentError, match="must export edgewise_kernel_library"):
        runtime.load_kernels(runtime._native.__file__)


# --- the peer's files ------------------------------------------------------------------------

LIBRARY = torch.library.Library("edgewise_peer", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")


@torch.library.impl(LIBRARY, "twice", "CompositeExplicitAutograd")
def _twice(x: Tensor) -> Tensor:
    return x * 2


@torch.library.impl(LIBRARY, "twice.out", "CompositeExplicitAutograd")
def _twice_out(x: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_(x * 2)


@runtime.register_kernel("edgewise_peer::twice.out")
def twice_kernel(x: Any, out: Any) -> None:
    np.multiply(x, 2, out=out)


@pytest.mark.peer
@pytest.mark.parametrize("maker", ["ours", "peer"])
def test_the_peers_file(maker: str) -> None:
    module = Fn(lambda x: torch.ops.edgewise_peer.twice(x + 1).sin())
    if maker == "ours":
        pte = lower(module, (X,)).buffer
    else:
        from executorch.exir import EdgeCompileConfig, to_edge

        config = EdgeCompileConfig(_check_ir_validity=False)
        pte = to_edge(export(module, (X,)), compile_config=config).to_executorch().buffer
    assert "edgewise_peer::twice.out" in operators(pte)
    assert_close(run_ours(pte, (X,))[0], eager(module, (X,)))


def test_inputs_that_a_kernel_in_python_writes() -> None:
    """And no others: its schema is not known here."""
    x, y = X.numpy().copy(), X.numpy().copy()
    pte = lower(
        Fn(lambda x, y: (ops.scale_(x, 3.0), ops.affine(y, 2.0, 3))[1] + x), (X, X + 1)
    ).buffer
    (got,) = run_ours(pte, (x, y))[0]
    np.testing.assert_allclose(x, X * 3)
    np.testing.assert_array_equal(y, X)
    np.testing.assert_allclose(got, X * 2 + 3 + X * 3)
