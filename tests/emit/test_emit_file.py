"""The file: header, segments, weights once, safe saving, and the peer's reader."""

from __future__ import annotations

import hashlib
import io
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewise
from edgewise.emit import ExecutorchBackendConfig, MemoryPlanningConfig
from edgewise.emit.scalar_types import scalar_type
from edgewise.errors import EmitError, InvalidGraphError, UnsupportedOperatorError
from edgewise.format import program as pte
from edgewise.format.file import read
from support import Fn, assert_close, eager64, export, lower, partitioners, run_ours

X = (torch.randn(3, 8),)


class Net(torch.nn.Module):
    """Weights in a delegate, a constant of a kernel, a state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 5)
        self.register_buffer("shift", torch.arange(5.0) / 3)
        self.register_buffer("steps", torch.ones(7))

    def forward(self, x: torch.Tensor) -> Any:
        self.steps.add_(1)
        return torch.atan(self.linear(x)) % (self.shift + 1), self.steps.sum()


@pytest.fixture(scope="module", params=[16, 128, 4096])
def written(request: pytest.FixtureRequest) -> tuple[int, bytes]:
    config = ExecutorchBackendConfig(segment_alignment=request.param)
    return request.param, lower(Net(), X, config=config).buffer


def test_header(written: tuple[int, bytes]) -> None:
    alignment, data = written
    root, identifier, magic, length, size, base, segments = struct.unpack_from("<I4s4sIQQQ", data)
    assert (identifier, magic, length) == (b"ET12", b"eh00", 32)
    assert 40 <= root < size <= base
    assert base % alignment == 0
    assert base + segments == len(data)


def test_segments_are_aligned_and_do_not_overlap(written: tuple[int, bytes]) -> None:
    alignment, data = written
    base = struct.unpack_from("<Q", data, 24)[0]
    end = 0
    for segment in read(data).program.segments:
        assert (base + segment.offset) % alignment == 0
        assert segment.offset >= end
        end = segment.offset + segment.size
    assert base + end == len(data)


def test_constants_lie_aligned_in_their_segment(written: tuple[int, bytes]) -> None:
    _, data = written
    program = read(data).program
    assert program.constant_buffer in (None, [])
    offsets = program.constant_segment.offsets
    assert offsets[0] == 0
    assert all(offset % 16 == 0 for offset in offsets)
    assert [len(s.offsets) for s in program.mutable_data_segments] == [2]


def test_named_data_is_named_by_its_contents(written: tuple[int, bytes]) -> None:
    file = read(written[1])
    assert file.program.named_data
    for entry in file.program.named_data:
        assert hashlib.sha256(file.segments[entry.segment_index]).hexdigest() == entry.key


def test_the_file_runs(written: tuple[int, bytes]) -> None:
    module = Net()
    program = lower(module, X)
    assert_close(run_ours(program.buffer, X)[0], eager64(module, X))
    outputs = run_ours(written[1], X)[0]
    assert outputs[1] == 14


def test_every_way_of_writing_gives_the_same_bytes(tmp_path: Path) -> None:
    program = lower(Net(), X)
    file = io.BytesIO()
    program.write_to_file(file)
    program.save(tmp_path / "a.pte")
    program.save(str(tmp_path / "b.pte"))
    assert program.buffer == program.buffer == file.getvalue()
    assert (tmp_path / "a.pte").read_bytes() == (tmp_path / "b.pte").read_bytes() == program.buffer


def test_the_same_model_gives_the_same_bytes() -> None:
    torch.manual_seed(3)
    first = Net()
    torch.manual_seed(3)
    second = Net()
    assert lower(first, X).buffer == lower(second, X).buffer


def test_save_leaves_the_old_file_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lower(Net(), X)
    target = tmp_path / "model.pte"
    target.write_bytes(b"the old one")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        program.save(target, record=True)
    assert target.read_bytes() == b"the old one"
    assert [p.name for p in tmp_path.iterdir()] == ["model.pte"]


# --- weights once ---------------------------------------------------------------------


def occurrences(data: bytes, tensor: torch.Tensor) -> int:
    return data.count(tensor.detach().contiguous().numpy().tobytes())


class Around(torch.nn.Module):
    """The same layer before and after something that no delegate takes."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.atan(self.linear(x)))


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
def test_weights_shared_by_partitions_and_methods_are_written_once(partitioner: str | None) -> None:
    linear = torch.nn.Linear(8, 8)
    methods = {
        "one": export(Around(linear), X),
        "other": export(torch.nn.Sequential(linear, torch.nn.ReLU()), X),
    }
    data = (
        edgewise.to_edge_transform_and_lower(methods, partitioner=partitioners(partitioner))
        .to_executorch()
        .buffer
    )
    weight = linear.weight if partitioner else linear.weight.t()
    assert occurrences(data, weight) == 1
    assert occurrences(data, linear.bias) == 1


def test_equal_weights_are_written_once() -> None:
    one, other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    other.load_state_dict(one.state_dict())
    data = lower(torch.nn.Sequential(one, torch.nn.Sigmoid(), other), X).buffer
    assert occurrences(data, one.weight) == 1


def test_equal_payloads_are_written_once() -> None:
    programs = {"a": export(torch.nn.Sigmoid(), X), "b": export(torch.nn.Sigmoid(), X)}
    program = edgewise.to_edge_transform_and_lower(
        programs, partitioner=partitioners("xnnpack")
    ).to_executorch()
    a, b = (plan.delegates[0].processed.index for plan in program.executorch_program.execution_plan)
    assert a == b
    for method in ("a", "b"):
        assert_close(run_ours(program.buffer, X, method=method)[0], [X[0].sigmoid()])


def test_the_file_is_hardly_larger_than_its_weights() -> None:
    data = lower(torch.nn.Linear(256, 256), (torch.randn(1, 256),)).buffer
    assert len(data) < 4 * 256 * 257 + 3000


# --- options --------------------------------------------------------------------------


CONFIGS: dict[str, ExecutorchBackendConfig] = {
    "payloads inside the flatbuffer": ExecutorchBackendConfig(extract_delegate_segments=False),
    "source lines": ExecutorchBackendConfig(emit_stacktrace=True),
    "coarse alignment": ExecutorchBackendConfig(
        constant_tensor_alignment=64, memory_planning=MemoryPlanningConfig(alignment=64)
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_options(name: str) -> None:
    module = Net()
    program = lower(module, X, config=CONFIGS[name])
    expected = eager64(module, X)
    assert_close(run_ours(program.buffer, X)[0], expected)
    plan = program.executorch_program.execution_plan[0]
    if name == "source lines":
        chain = plan.chains[0]
        assert len(chain.stacktrace) == len(chain.instructions)
        lines = Path(__file__).read_text().splitlines()
        frames = [frame for trace in chain.stacktrace for frame in trace.items if frame.lineno]
        assert frames
        assert all(frame.filename == __file__ for frame in frames)
        assert any("torch.atan" in lines[frame.lineno - 1] for frame in frames)
    if name == "payloads inside the flatbuffer":
        assert len(program.executorch_program.backend_delegate_data) == len(plan.delegates)
    if name == "coarse alignment":
        for value in plan.values:
            if isinstance(value.val, pte.Tensor) and value.val.allocation_info:
                assert value.val.allocation_info.memory_offset_low % 64 == 0


def test_memory_of_inputs_and_outputs_can_be_left_to_the_caller() -> None:
    planning = MemoryPlanningConfig(alloc_graph_input=False, alloc_graph_output=False)
    module = Fn(lambda x: (x.atan() + 1, x))
    program = lower(
        module, X, partitioner=None, config=ExecutorchBackendConfig(memory_planning=planning)
    )
    plan = program.executorch_program.execution_plan[0]
    for index in {*plan.inputs, *plan.outputs}:
        assert plan.values[index].val.allocation_info is None
    assert program.memory_plan().total > 0


def test_memory_plan_is_reported() -> None:
    plan = lower(Fn(lambda x: ((x + 1).atan() * 2).tan() - 1), X, partitioner=None).memory_plan()
    assert plan.lower_bound <= plan.size < plan.total
    assert plan.size % 16 == 0


# --- errors ---------------------------------------------------------------------------


@torch.library.custom_op("edgewise_tests::no_out", mutates_args=())
def no_out(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.clone()]


@no_out.register_fake
def _(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.empty_like(x)]


def test_an_operator_without_out_variant() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.edgewise_tests.no_out(x)[0]

    with pytest.raises(UnsupportedOperatorError) as raised:
        lower(Model(), X)
    text = str(raised.value)
    assert "must have an out-variant; got edgewise_tests.no_out.default; try" in text
    assert __file__ in text


def test_a_type_without_number() -> None:
    with pytest.raises(EmitError, match=r"must be one of uint8, .*; got torch.complex64"):
        scalar_type(torch.complex64)
    with pytest.raises(InvalidGraphError, match=r"inputs and state must be real numbers"):
        lower(Fn(lambda x: x * 2), (torch.zeros(2, dtype=torch.complex64),))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: x.to_sparse().to_dense(),
            "must be dense; got sparse_coo; try to_dense() before",
        ),
        (lambda x: x.to_sparse_csr() @ x.t(), "must be dense; got sparse_csr; try to_dense()"),
        (
            lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
            "that files know; got qint8; try quantize=, or the PT2E flow",
        ),
        (lambda x: x.to(torch.float8_e5m2).float(), "that files know; got float8_e5m2; try x.to("),
    ],
)
def test_tensors_that_are_no_dense_numbers(function: Callable[..., Any], message: str) -> None:
    with pytest.raises((InvalidGraphError, EmitError)) as raised:
        lower(Fn(function), X)
    assert message in str(raised.value)
    assert "support.py:" in str(raised.value)  # where `Fn` calls it


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\0" * 100, b"PK\x03\x04zip file"])
def test_not_a_file(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\[pte\] a file has 'ET12' at byte 4; got"):
        read(data)


def test_a_file_cut_short() -> None:
    with pytest.raises(ValueError, match=r"\[pte\] segment \d must lie inside the file; got bytes"):
        read(lower(Net(), X).buffer[:-1])


# --- the peer's reader ------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("name", ["default", *CONFIGS])
def test_the_peer_reads_what_was_written(name: str) -> None:
    from executorch.exir._serialize._program import deserialize_pte_binary

    program = lower(Net(), X, config=CONFIGS.get(name))
    ours = read(program.buffer)
    theirs = deserialize_pte_binary(program.buffer)
    theirs = getattr(theirs, "program", theirs)
    assert theirs.version == 0
    (plan,), (other,) = ours.program.execution_plan, theirs.execution_plan
    for ours_value, theirs_value in [(plan, other)]:
        assert ours_value.name == theirs_value.name
        assert ours_value.inputs == theirs_value.inputs
        assert ours_value.outputs == theirs_value.outputs
        assert ours_value.non_const_buffer_sizes == theirs_value.non_const_buffer_sizes
        assert (
            ours_value.container_meta_type.encoded_inp_str
            == theirs_value.container_meta_type.encoded_inp_str
        )
        assert (
            ours_value.container_meta_type.encoded_out_str
            == theirs_value.container_meta_type.encoded_out_str
        )
    assert [(o.name, o.overload or "") for o in plan.operators] == [
        (o.name, o.overload) for o in other.operators
    ]
    assert [d.id for d in plan.delegates] == [d.id for d in other.delegates]
    assert len(plan.values) == len(other.values)
    for mine, value in zip(plan.values, other.values, strict=True):
        compare_value(mine.val, value.val)
    for mine, instruction in zip(
        plan.chains[0].instructions, other.chains[0].instructions, strict=True
    ):
        mine, instruction = mine.instr_args, instruction.instr_args
        assert type(mine).__name__ == type(instruction).__name__
        assert list(mine.args) == list(instruction.args)


def compare_value(mine: Any, theirs: Any) -> None:
    assert type(mine).__name__ == type(theirs).__name__
    if isinstance(mine, pte.Tensor):
        assert mine.scalar_type == int(theirs.scalar_type)
        assert list(mine.sizes) == list(theirs.sizes)
        assert list(mine.dim_order) == list(theirs.dim_order)
        assert mine.shape_dynamism == int(theirs.shape_dynamism)
        assert mine.data_buffer_idx == theirs.data_buffer_idx
        place, other = mine.allocation_info, theirs.allocation_info
        assert (place is None) == (other is None)
        if place is not None:
            assert (place.memory_id, place.memory_offset_low, place.memory_offset_high) == (
                other.memory_id,
                other.memory_offset_low,
                other.memory_offset_high,
            )
    elif not isinstance(mine, pte.Null):
        (name,) = vars(mine)
        found, other = getattr(mine, name), getattr(theirs, name)
        assert (list(found or []) == list(other)) if isinstance(other, list) else found == other
