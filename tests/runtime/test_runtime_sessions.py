"""Several users of one program's state: methods that share buffers, sessions that do not."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
from edgewise.emit import ExecutorchBackendConfig, MemoryPlanningConfig
from edgewise.format.file import read
from edgewise.runtime import InvalidArgumentError, Runtime


class Log(torch.nn.Module):
    """Keeps what is written: `write` puts a row at a place, `read` returns a row and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 4))
        self.register_buffer("reads", torch.tensor([10]))


class Write(Log):
    def forward(self, at: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        self.rows[at] = row
        return self.rows.sum(0)


class Read(Log):
    def forward(self, at: torch.Tensor) -> Any:
        self.reads.add_(1)
        return self.rows[at] * 2, self.reads.clone()


class Total(Log):
    def forward(self) -> Any:
        return self.rows.sum() + self.reads


AT = torch.tensor([3])
ROW = torch.tensor([[1.0, 2, 3, 4]])
SHARED = ExecutorchBackendConfig(memory_planning=MemoryPlanningConfig(share_mutable_buffers=True))


@pytest.fixture(scope="module")
def pte() -> bytes:
    methods: dict[str, tuple[torch.nn.Module, tuple[Any, ...]]] = {
        "write": (Write(), (AT, ROW)),
        "read": (Read(), (AT,)),
        "total": (Total(), ()),
    }
    programs = {n: torch.export.export(m.eval(), args) for n, (m, args) in methods.items()}
    return edgewise.to_edge_transform_and_lower(programs).to_executorch(SHARED).buffer


def test_methods_of_a_session_share_their_buffers(pte: bytes) -> None:
    model = edgewise.load(pte)
    other = model.new_session()
    model.write(AT, ROW)
    row, reads = model.read(AT)
    assert row.tolist() == [[2, 4, 6, 8]]
    assert reads.tolist() == [11]
    assert model.total().tolist() == [21]
    assert other.read(AT)[0].tolist() == [[0, 0, 0, 0]]
    assert other.total().tolist() == [11]
    model.reset()
    assert model.total().tolist() == [10]
    assert other.total().tolist() == [11]


def test_a_method_loaded_late_finds_what_is_there(pte: bytes) -> None:
    session = Runtime.get().load_program(pte).new_session()
    session.load_method("write").execute([AT, ROW])
    assert session.load_method("total").execute([])[0].tolist() == [20]


def test_methods_loaded_without_a_session_are_independent(pte: bytes) -> None:
    program = Runtime.get().load_program(pte)
    program.load_method("write").execute([AT, ROW])
    assert program.load_method("total").execute([])[0].tolist() == [10]


def test_an_output_never_takes_the_state_with_it() -> None:
    """A result that is state, too, is copied for the caller."""

    class Replace(Log):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.rows.copy_(x * 3)
            return self.rows

    programs = {
        "replace": torch.export.export(Replace().eval(), (torch.ones(8, 4),)),
        "total": torch.export.export(Total().eval(), ()),
    }
    model = edgewise.load(
        edgewise.to_edge_transform_and_lower(programs).to_executorch(SHARED).buffer
    )
    first = model.replace(np.ones((8, 4), np.float32))
    second = model.replace(np.zeros((8, 4), np.float32))
    assert first.sum() == 96
    assert second.sum() == 0
    assert model.total().tolist() == [10]
    model.replace(np.ones((8, 4), np.float32))
    assert model.total().tolist() == [106]


def test_a_session_is_of_one_program(pte: bytes) -> None:
    runtime = Runtime.get()
    session = runtime.load_program(pte).new_session()
    with pytest.raises(InvalidArgumentError, match="must be of this program"):
        runtime.load_program(pte)._program.load_method("read", session._session)


def test_calls_of_a_session_take_turns(pte: bytes) -> None:
    model = edgewise.load(pte)
    model.total()

    def work() -> None:
        for _ in range(50):
            model.read(AT)
            model.total()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.total().tolist() == [210]


def test_zeros_are_not_in_the_file(pte: bytes) -> None:
    program = read(pte).program
    assert program.mutable_data_segments is not None
    starts = program.mutable_data_segments[0].offsets
    assert len(starts) == 2  # nothing, and `reads`


@pytest.mark.peer
def test_the_peer_shares_the_same_buffers(pte: bytes) -> None:
    from executorch.runtime import Runtime as Peer

    program = Peer.get().load_program(pte)
    write, load = program.load_method("write"), program.load_method("read")
    write.execute((AT, ROW))
    assert load.execute((AT,))[0].tolist() == [[2, 4, 6, 8]]


@pytest.mark.peer
def test_files_of_the_peer_share_buffers_here() -> None:
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    programs = {
        "write": torch.export.export(Write().eval(), (AT, ROW)),
        "read": torch.export.export(Read().eval(), (AT,)),
    }
    config = ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["reads"])],
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
    )
    model = edgewise.load(to_edge(programs).to_executorch(config).buffer)
    model.write(AT, ROW)
    row, reads = model.read(AT)
    assert row.tolist() == [[2, 4, 6, 8]]
    assert reads.tolist() == [11]
    model.reset()
    assert model.read(AT)[0].tolist() == [[0, 0, 0, 0]]
