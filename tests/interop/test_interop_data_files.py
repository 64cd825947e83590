"""Weights outside of programs: files of both sides on both runtimes, and files that are wrong."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewise
from edgewise.emit import ExecutorchBackendConfig
from edgewise.runtime import InvalidArgumentError, InvalidProgramError, NotFoundError
from support import assert_close, eager, export, lower

X = torch.linspace(-1, 1, 24).reshape(2, 12)


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(12, 64)
        self.b = torch.nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


class Head(Mlp):
    """Another program with the same weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.a(x))


@pytest.fixture(scope="module")
def module() -> Mlp:
    torch.manual_seed(0)
    return Mlp().eval()


def _write(module: Any, folder: Path, partitioner: str | None, external: Any = True) -> Path:
    config = ExecutorchBackendConfig(external_constants=external)
    program = lower(module, (X,), partitioner=partitioner, config=config)
    program.save(folder / "model.pte")
    program.write_tensor_data_to_file(folder)
    return folder / "model.pte"


def _run_peer(pte: Path, data: Path) -> list[Any]:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    return list(_load_for_executorch(str(pte), str(data)).forward((X,)))


@pytest.mark.parametrize(
    "names", ["edgewise.compat", pytest.param("executorch", marks=pytest.mark.peer)]
)
def test_data_path_of_load_program(module: Mlp, tmp_path: Path, names: str) -> None:
    """ExecuTorch's keyword (from 1.5 on), by its runtime and by ours under its name."""
    runtime = importlib.import_module(f"{names}.runtime").Runtime.get()
    pte = _write(module, tmp_path, "xnnpack")
    program = runtime.load_program(pte, data_path=next(tmp_path.glob("*.ptd")))
    assert_close(list(program.load_method("forward").execute([X])), eager(module, (X,)))


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
def test_our_files(module: Mlp, tmp_path: Path, partitioner: str | None, runtime: str) -> None:
    pte = _write(module, tmp_path, partitioner)
    (data,) = tmp_path.glob("*.ptd")
    assert data.name == "_default_external_constant.ptd"
    assert pte.stat().st_size < 4000 < data.stat().st_size
    ours = runtime == "ours"
    got = [edgewise.load(pte, data_path=data)(X)] if ours else _run_peer(pte, data)
    assert_close(got, eager(module, (X,)))


@pytest.mark.peer
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
def test_files_of_the_peer(module: Mlp, tmp_path: Path, partitioner: str | None) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig as PeerConfig
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.passes.external_constants_pass import (
        delegate_external_constants_pass_unlifted,
    )

    program = export(module, (X,))
    chosen = None
    if partitioner:
        unlifted = program.module()
        delegate_external_constants_pass_unlifted(unlifted, gen_tag_fn=lambda node: "weights")
        program = torch.export.export(unlifted, (X,))
        chosen = [XnnpackPartitioner()]
    lowered = to_edge_transform_and_lower(program, partitioner=chosen).to_executorch(
        PeerConfig(external_constants=lambda node: "weights")
    )
    lowered.write_tensor_data_to_file(str(tmp_path))
    got = edgewise.load(lowered.buffer, data_path=tmp_path / "weights.ptd")(X)
    assert_close([got], eager(module, (X,)))


def test_a_function_chooses_the_files(module: Mlp, tmp_path: Path) -> None:
    def choose(node: Any) -> str | None:
        if "weight" not in node.name:
            return None
        return "first" if "a_weight" in node.name else "second"

    pte = _write(module, tmp_path, None, choose)
    paths = sorted(tmp_path.glob("*.ptd"))
    assert [p.name for p in paths] == ["first.ptd", "second.ptd"]
    assert_close([edgewise.load(pte, data_path=paths)(X)], eager(module, (X,)))
    with pytest.raises(NotFoundError, match=r"'\w*b_weight\w*'.*first\.ptd"):
        edgewise.load(pte, data_path=paths[0])


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
def test_two_programs_with_one_file(module: Mlp, tmp_path: Path, partitioner: str | None) -> None:
    """Weights have one name by what they are: the file of the larger program serves both."""
    head = Head().eval()
    head.load_state_dict(module.state_dict())
    (tmp_path / "head").mkdir()
    one = _write(module, tmp_path, partitioner)
    two = _write(head, tmp_path / "head", partitioner)
    data = tmp_path / "_default_external_constant.ptd"
    assert_close([edgewise.load(one, data_path=data)(X)], eager(module, (X,)))
    assert_close([edgewise.load(two, data_path=data)(X)], eager(head, (X,)))


def test_several_programs_at_once_share_and_outlive_each_other(module: Mlp, tmp_path: Path) -> None:
    pte = _write(module, tmp_path, "xnnpack")
    data = tmp_path / "_default_external_constant.ptd"
    models = [edgewise.load(pte, data_path=data) for _ in range(3)]
    while models:
        assert_close([models[-1](X)], eager(module, (X,)))
        models.pop(0)
    assert_close([edgewise.load(pte, data_path=data)(X)], eager(module, (X,)))


def _patch(at: int, form: str, value: int) -> Any:
    def change(data: bytearray) -> bytearray:
        struct.pack_into(form, data, at, value)
        return data

    return change


BAD: dict[str, tuple[Any, str]] = {
    "empty": (lambda d: d[:0], "is empty"),
    "short": (lambda d: d[:20], "at least 48 bytes"),
    "identifier": (_patch(4, "<I", 0), "FT01"),
    "header": (_patch(8, "<I", 0), "FH01"),
    "header length": (_patch(12, "<I", 8), "header has 8 bytes"),
    "flatbuffer size": (_patch(24, "<Q", 1 << 40), "may be truncated"),
    "overflow": (_patch(24, "<Q", (1 << 64) - 8), "may be truncated"),
    "segment base": (_patch(32, "<Q", 8), "begin at 8"),
    "data size": (_patch(40, "<Q", 1 << 40), "may be truncated"),
    "data size of nothing": (_patch(40, "<Q", 64), "may be truncated"),
    "root": (_patch(0, "<I", 0x7FFFFFF0), "damaged"),
    "truncated": (lambda d: d[: len(d) - 100], "may be truncated"),
    "a program": (None, "FT01"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_name(module: Mlp, tmp_path: Path, name: str) -> None:
    pte = _write(module, tmp_path, None)
    change, message = BAD[name]
    good = (tmp_path / "_default_external_constant.ptd").read_bytes()
    bad = tmp_path / "bad.ptd"
    bad.write_bytes(pte.read_bytes() if change is None else change(bytearray(good)))
    with pytest.raises(InvalidProgramError, match=r"bad\.ptd.*" + message):
        edgewise.load(pte, data_path=bad)


def test_damage_never_crashes(module: Mlp, tmp_path: Path) -> None:
    """Every byte of the file's head changed: an error, or another number."""
    pte = _write(module, tmp_path, "xnnpack").read_bytes()
    good = (tmp_path / "_default_external_constant.ptd").read_bytes()
    bad = tmp_path / "bad.ptd"
    for at in range(0, 400):
        data = bytearray(good)
        data[at] ^= 0xFF
        bad.write_bytes(data)
        try:
            edgewise.load(pte, data_path=bad)(X)
        except (InvalidProgramError, NotFoundError, edgewise.runtime.Error):
            continue


def test_another_models_weights_are_refused(module: Mlp, tmp_path: Path) -> None:
    class Wide(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(12, 32)
            self.b = torch.nn.Linear(32, 5)

    (tmp_path / "wide").mkdir()
    pte = _write(module, tmp_path, None)
    _write(Wide().eval(), tmp_path / "wide", None)
    name = "_default_external_constant.ptd"
    message = r"'a\.bias'.*float32\[64\].*wide.*float32\[32\]"
    with pytest.raises(InvalidProgramError, match=message):
        edgewise.load(pte, data_path=tmp_path / "wide" / name)
    with pytest.raises(NotFoundError, match=r"'a\.\w+' is in another file"):
        edgewise.load(pte)
    with pytest.raises(InvalidArgumentError, match="a name must be in one file"):
        edgewise.load(pte, data_path=[tmp_path / name, tmp_path / name])
    with pytest.raises(FileNotFoundError, match=r"no\.ptd"):
        edgewise.load(pte, data_path=tmp_path / "no.ptd")
