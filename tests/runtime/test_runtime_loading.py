"""Ways to load a program, what can be known of it, and what stands in the way."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

import edgewise
import edgewise.runtime as runtime
from edgewise.runtime import NotFoundError, OutOfMemoryError, Runtime, Verification


def test_every_source_gives_the_same_program(add_pte: bytes, x: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "größe.pte"
    path.write_bytes(add_pte)
    padded = bytearray(b"?" + add_pte)
    strided = memoryview(bytes(b for byte in add_pte for b in (byte, 0)))[::2]
    with path.open("rb") as file:
        sources = [
            path,
            str(path),
            add_pte,
            bytearray(add_pte),
            memoryview(padded)[1:],
            strided,
            io.BytesIO(add_pte),
            file,
        ]
        for source in sources:
            for verification in Verification:
                if hasattr(source, "seek"):
                    source.seek(0)
                program = Runtime.get().load_program(source, verification=verification)
                assert program.method_names == {"forward"}
                (y,) = program.load_method("forward").execute([x, x])
                np.testing.assert_array_equal(y, 2 * x)


def test_bytes_may_change_after_loading(add_pte: bytes, x: np.ndarray) -> None:
    data = bytearray(add_pte)
    program = Runtime.get().load_program(data)
    data[:] = bytes(len(data))
    (y,) = program.load_method("forward").execute([x, x])
    np.testing.assert_array_equal(y, 2 * x)


def test_a_method_outlives_its_program(add_pte: bytes, x: np.ndarray) -> None:
    method = Runtime.get().load_program(add_pte).load_method("forward")
    (y,) = method.execute([x, x])
    del method
    np.testing.assert_array_equal(y, 2 * x)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such file.*missing\.pte"):
        Runtime.get().load_program(tmp_path / "missing.pte")
    with pytest.raises(FileNotFoundError, match=r"missing\.pte"):
        runtime.load(str(tmp_path / "missing.pte"))
    with pytest.raises(IsADirectoryError):
        Runtime.get().load_program(tmp_path)


def test_missing_method_lists_those_there_are(two_methods_pte: bytes) -> None:
    program = Runtime.get().load_program(two_methods_pte)
    for look in (program.load_method, program.metadata):
        with pytest.raises(NotFoundError, match=r"decode.*encode|encode.*decode") as caught:
            look("embed")
        assert isinstance(caught.value, LookupError)
        assert not str(caught.value).startswith(('"', "'"))
    with pytest.raises(NotFoundError, match="decode"):
        runtime.load(two_methods_pte, method="embed")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"data": 3}, TypeError),
        ({"data": io.StringIO("text")}, TypeError),
        ({"data": "a\0b"}, ValueError),
        ({"threads": 0}, ValueError),
        ({"threads": -1}, ValueError),
        ({"threads": 2.0}, TypeError),
        ({"threads": True}, TypeError),
        ({"verification": 1}, TypeError),
        ({"own_kernels": 1}, TypeError),
        ({"max_memory": 0}, ValueError),
        ({"max_memory": 1.5}, ValueError),
        ({"max_memory": True}, ValueError),
    ],
)
def test_wrong_arguments(add_pte: bytes, arguments: dict, error: type[Exception]) -> None:
    arguments = {"data": add_pte} | arguments
    with pytest.raises(error, match=r"^\[load_program\].*got"):
        Runtime.get().load_program(arguments.pop("data"), **arguments)


def test_max_memory(add_pte: bytes) -> None:
    assert edgewise.load(add_pte, max_memory=1 << 20) is not None
    with pytest.raises(OutOfMemoryError, match="max_memory is 8 bytes; the program plans"):
        edgewise.load(add_pte, max_memory=8)


def test_max_memory_of_a_delegate() -> None:
    """What XNNPACK plans between a delegate's nodes: 3 rows of 20,000 numbers, then 2."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 20_000), torch.nn.Softmax(-1), torch.nn.Linear(20_000, 2)
    )
    rows = torch.export.Dim("rows", max=3)
    data = edgewise.compile(
        net.eval(), (torch.ones(2, 2),), dynamic_shapes=({0: rows},), verbose=False
    ).buffer
    needed = 2 * 3 * 20_000 * 4
    model = edgewise.load(data, max_memory=needed)
    assert model(np.ones((3, 2), np.float32)).shape == (3, 2)
    told = f"max_memory is {needed - 1} bytes; a delegate's intermediate results need {needed}"
    with pytest.raises(OutOfMemoryError, match=told):
        edgewise.load(data, max_memory=needed - 1)


def test_metadata(add_pte: bytes) -> None:
    program = Runtime.get().load_program(add_pte)
    for meta in (program.metadata("forward"), program.load_method("forward").metadata):
        assert meta.name() == "forward"
        assert (meta.num_inputs(), meta.num_outputs()) == (2, 1)
        for tensor in (meta.input_tensor_meta(1), meta.output_tensor_meta(0)):
            assert tensor.sizes() == (2, 3)
            assert tensor.dtype() == 6
            assert tensor.dtype_name == "float32"
            assert tensor.nbytes() == 24
            assert tensor.dim_order() == (0, 1)
            assert tensor.dynamism == "static"
        assert meta.input_kinds == ("Tensor", "Tensor")
        assert meta.operators == ("aten::add.out",)
        assert meta.delegates == ()
        assert meta.instruction_count >= 1
        assert sum(meta.planned_memory) >= 24
        assert "float32[2, 3]" in repr(meta)
        for index in (-1, 2):
            with pytest.raises(IndexError):
                meta.input_tensor_meta(index)


def test_metadata_of_delegates(delegated_pte: bytes) -> None:
    program = Runtime.get().load_program(delegated_pte)
    (delegate,) = program.metadata("forward").delegates
    assert delegate.backend == "XnnpackBackend"
    assert 0 < delegate.payload_bytes <= program.size_bytes


def test_registries() -> None:
    one = Runtime.get()
    assert one is Runtime.get()
    assert "aten::add.out" in one.operator_registry.operator_names
    assert "XnnpackBackend" in one.backend_registry.registered_backend_names
    assert one.backend_registry.is_available("XnnpackBackend")
    assert not one.backend_registry.is_available("NoSuchBackend")


def test_unknown_operator_and_backend(add_pte: bytes, delegated_pte: bytes) -> None:
    cases = [
        (add_pte.replace(b"aten::add", b"aten::bad"), "aten::bad"),
        (delegated_pte.replace(b"XnnpackBackend", b"UnknownBackend"), "UnknownBackend"),
    ]
    for data, name in cases:
        program = Runtime.get().load_program(data)
        with pytest.raises(NotFoundError, match=name):
            program.load_method("forward")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("verification", Verification)
def test_what_is_checked_whole_is_a_copy(
    add_pte: bytes, tmp_path: Path, verification: Verification
) -> None:
    """A file that is mapped may be another one after it was checked."""
    path = tmp_path / f"{verification.name}.pte"
    path.write_bytes(add_pte)
    program = Runtime.get().load_program(path, verification=verification)
    is_mapped = str(path) in Path("/proc/self/maps").read_text()
    assert is_mapped == (verification is not Verification.Full)
    del program
