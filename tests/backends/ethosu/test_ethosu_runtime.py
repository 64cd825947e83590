"""Files with Ethos-U delegates run by themselves; damaged ones are refused or stopped."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

pytest.importorskip("ethosu", reason="extra [ethosu]")
pytest.importorskip("tosa_serializer", reason="extra [ethosu]")

from torch.export import ExportedProgram
from tosa_all_cases import CASES, U85_CASES
from tosa_graph import TosaGraph, attribute, reference

import edgewise
from edgewise import runtime
from edgewise.backends.ethosu import payload
from edgewise.backends.ethosu.disassemble import main
from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.payload import NpuProgram
from edgewise.backends.ethosu.simulator import NpuError, Simulator, disassemble
from edgewise.backends.ethosu.simulator.stream import parse
from edgewise.edge.graph import calls
from edgewise.partition import BackendDetails, CompileSpec, DelegationSpec, PreprocessResult
from edgewise.partition.delegate import lower_partitions
from support import Fn, export

SHAPE = (2, 5, 4, 3)


def table_graph() -> bytes:
    graph = TosaGraph()
    x = graph.input(SHAPE)
    entries = graph.const(np.random.default_rng(0).permutation(256) - 128, "int8")
    y = graph.op("TABLE", [x, entries], SHAPE, "int8", attribute("Table"))
    z = graph.op("TABLE", [y, entries], SHAPE, "int8", attribute("Table"))
    return graph.finish(y, z)


class EthosUTesting(BackendDetails):
    """Replaces whatever it is given by a payload."""

    payload: ClassVar[bytes]

    @classmethod
    def preprocess(cls, program: ExportedProgram, specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(cls.payload)


@pytest.fixture(scope="module")
def tables() -> bytes:
    """The payload of two tables."""
    return payload.to_bytes(vela.compile_tosa(table_graph(), "ethos-u55-128").program)


@pytest.fixture(scope="module")
def pte(tables: bytes) -> bytes:
    return file_of(tables)


def file_of(data: bytes) -> bytes:
    """A file whose delegate of one input and two outputs has the payload."""
    EthosUTesting.payload = data
    x = torch.zeros(SHAPE, dtype=torch.int8)
    edge = edgewise.to_edge(export(Fn(lambda x: (torch.neg(x), torch.abs(x))), (x,)))
    program = edge.exported_program()
    for node in calls(program.graph):
        node.meta["delegation_tag"] = "npu"
    spec = DelegationSpec("EthosUTesting", [])
    lower_partitions(program, {"npu": spec})
    # The file's backend is the real one, whatever compiled it.
    return edge.to_executorch().buffer.replace(b"EthosUTesting", b"EthosUBackend")


def test_a_file_just_runs(pte: bytes) -> None:
    x = np.random.default_rng(1).integers(-128, 128, SHAPE, np.int8)
    expected = reference(table_graph(), [x])
    model = edgewise.load(pte)
    for _ in range(2):
        for got, want in zip(model(x), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def run_file(data: bytes) -> None:
    edgewise.load(file_of(data))(np.zeros(SHAPE, np.int8))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"vela_bin_stream", b"vela_bin_strean", "block at 0x0 is vela_bin_stream"),
        (b"COP1", b"COP9", "cmd_data begins with b'COP1' or b'COP2'; got b'COP9'"),
        (b"weight_data\0", b"weight_dat\0\0", "is weight_data; got b'weight_dat'"),
        (b"vela_end_stream", b"vela_end_streem", "is vela_end_stream"),
    ],
)
def test_a_file_with_an_altered_payload(
    tables: bytes, old: bytes, new: bytes, message: str
) -> None:
    run_file(tables)
    assert tables.count(old) == 1
    with pytest.raises(runtime.Error, match=message) as caught:
        run_file(tables.replace(old, new))
    assert "EthosUBackend" in str(caught.value)


def test_a_file_with_a_cut_payload(tables: bytes) -> None:
    for size in (0, 1, 31, 32, 64, len(tables) // 2, len(tables) - 32, len(tables) - 1):
        with pytest.raises(runtime.Error, match=r"\[ethosu payload\] .*; got"):
            run_file(tables[:size])


def test_a_file_with_an_altered_command(tables: bytes) -> None:
    """Stopped where the command stands, with its text; the error says which instruction."""
    altered = payload.to_bytes(edit(payload.from_bytes(tables), "NPU_SET_IFM_REGION", 5))
    with pytest.raises(runtime.Error, match=r"\[ethos-u55-128, 0x\w+, NPU_OP_.*a region is one of"):
        run_file(altered)


def test_runs_without_the_compiler_and_torch(pte: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes(pte)
    script = (
        "import sys\n"
        "for name in ('ethosu', 'tosa_serializer', 'torch'): sys.modules[name] = None\n"
        "import numpy as np, edgewise\n"
        f"y, _ = edgewise.load({str(tmp_path / 'model.pte')!r})(np.zeros({SHAPE}, np.int8))\n"
        "print(y.shape, len(np.unique(y)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == f"{SHAPE} 1\n", done.stderr


def test_prints_a_files_commands(pte: bytes, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(pte)
    assert main([str(path)]) == 0
    text = capsys.readouterr().out
    assert "delegate 0:" in text
    assert "ethos-u55-128:" in text
    assert "NPU_SET_ACTIVATION activation_function = ACTIVATION_FUNCTION_TABLE_" in text
    assert "NPU_OP_STOP mask = 65535" in text
    path.write_bytes(b"no delegate")
    assert main([str(path)]) == 1
    path.write_bytes(pte.replace(b"vela_end_stream", b"vela_end_streem"))
    with pytest.raises(ValueError, match=r"\[ethosu payload\] block at 0x\w+ is vela_end_stream"):
        main([str(path)])


def program(name: str, target: str = "ethos-u55-128") -> tuple[NpuProgram, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    graph, y = {**CASES, **U85_CASES}[name](rng)
    blob = graph.finish(y)
    return vela.compile_tosa(blob, target).program, graph.random(rng)


def edit(npu: NpuProgram, name: str, value: int | None, which: int = 0) -> NpuProgram:
    """With another value for a command, or (None) without it, as a NOP in its place."""
    _, commands = parse(npu.commands)
    found = [c for c in commands if c.name == name][which]
    start = len(npu.commands) - 4 * sum(1 + (c.opcode.code >> 14 & 1) for c in commands)
    words = bytearray(npu.commands)
    position = start + found.offset
    if value is None:  # PMU_MASK does nothing
        words[position : position + 4] = (0x0013).to_bytes(4, "little")
    elif found.opcode.code & 0x4000:
        words[position + 4 : position + 8] = value.to_bytes(4, "little")
    else:
        words[position + 2 : position + 4] = value.to_bytes(2, "little")
    return dataclasses.replace(npu, commands=bytes(words))


@pytest.mark.parametrize(
    ("name", "command", "value", "message"),
    [
        (
            "convolution",
            "NPU_SET_IFM_BASE0",
            0x7FFFFFF0,
            r"NPU_OP_CONV\] addresses are in region 1",
        ),
        ("convolution", "NPU_SET_OFM_REGION", 0, "region 0 is for reading only"),
        ("convolution", "NPU_SET_OFM_REGION", 5, "a region is one of"),
        ("convolution", "NPU_SET_WEIGHT_BASE", 8, "WEIGHT_BASE is a multiple of 16"),
        ("convolution", "NPU_SET_IFM_REGION", 2, "written before they are read"),
        ("convolution", "NPU_SET_IFM_REGION", None, "IFM_REGION is set before it is used"),
        ("convolution", "NPU_SET_IFM_REGION", 0x10, "NPU_SET_IFM_REGION has bits 0x7 only"),
        ("convolution", "NPU_SET_ACC_FORMAT", 3, "acc_format is one of I32, I40, F16; got 3"),
        ("convolution_int16", "NPU_SET_IFM_BASE0", 1, "multiples of an element's 2 bytes"),
        ("convolution", "NPU_SET_SCALE_LENGTH", 16, "a scale has 10 bytes"),
        ("table", "NPU_OP_DMA_WAIT", None, "DMA_WAIT comes before.*read of internal memory"),
        ("several_tables", "NPU_OP_KERNEL_WAIT", None, "KERNEL_WAIT comes before"),
    ],
)
def test_commands_that_break_a_rule(
    name: str, command: str, value: int | None, message: str
) -> None:
    npu, inputs = program(name)
    Simulator(npu).run(inputs)
    with pytest.raises(NpuError, match=message) as caught:
        Simulator(edit(npu, command, value)).run(inputs)
    assert str(caught.value).startswith("[ethos-u55-128")


def test_branches_and_sparse_weights_that_break_a_rule() -> None:
    npu, inputs = program("loop", "ethos-u85-256")
    _, commands = parse(npu.commands)
    leave = [c for c in commands if c.name == "NPU_OP_BRANCH"][1]
    for target, message in (
        (leave.offset, "a program has an end; got 65537 branches"),
        (leave.offset + 4, "a branch leads to a command; got the offset"),
        (1 << 31, "a branch leads to a command; got the offset 0x80000000"),
    ):
        with pytest.raises(NpuError, match=message):
            Simulator(edit(npu, "NPU_OP_BRANCH", target, which=1)).run(inputs)
    npu, inputs = program("many_channels", "ethos-u85-256")
    dense = edit(npu, "NPU_SET_WEIGHT_FORMAT", 0x11)  # sparse, in the fast format
    with pytest.raises(NpuError, match="of four sparse weights two are zero at least; got 4"):
        Simulator(dense).run(inputs)


def test_an_unknown_command() -> None:
    npu, _ = program("table")
    words = npu.commands[:-4] + (0x0333).to_bytes(4, "little")
    with pytest.raises(NpuError, match="known opcode; got 0x00000333"):
        Simulator(dataclasses.replace(npu, commands=words))


def test_inputs_of_another_size() -> None:
    npu, inputs = program("table")
    with pytest.raises(NpuError, match="has 1 inputs; got 0"):
        Simulator(npu).run([])
    with pytest.raises(NpuError, match=r"input 0 has \d+ bytes; got 3"):
        Simulator(npu).run([inputs[0].ravel()[:3]])


@pytest.mark.parametrize("name", ["convolution", "depthwise", "add", "average_pool", "table"])
def test_altered_payloads_are_stopped(name: str) -> None:
    """A flipped bit anywhere: a result, or an error with a reason."""
    npu, inputs = program(name)
    data = payload.to_bytes(npu)
    rng = np.random.default_rng(len(name))
    end = data.index(b"weight_data")
    reasons = []
    for trial in range(150):
        altered = bytearray(data)
        position = int(rng.integers(0x40, end if trial % 3 else len(data)))
        altered[position] ^= 1 << int(rng.integers(0, 8))
        try:
            Simulator(payload.from_bytes(bytes(altered))).run(inputs)
        except ValueError as error:
            reasons.append(str(error))
    assert len(reasons) > 40
    assert all(reason.startswith("[") for reason in reasons)


@pytest.mark.parametrize("target", ["ethos-u55-64", "ethos-u65-512", "ethos-u85-512"])
@pytest.mark.parametrize("name", ["cascade", "add", "several_tables"])
def test_disassembles_as_vela_does(
    name: str, target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every command, with Vela's names and values of its fields."""
    from ethosu import regor

    graph, y = CASES[name](np.random.default_rng(3))
    blob = graph.finish(y)
    family, macs, cores = vela.TARGETS[target]
    capfd.readouterr()
    model = regor.compile(
        family.name,
        blob,
        "TOSA",
        f"[architecture]\nmacs={macs}\ncores={cores}\n[vela]\n"
        f"system_config_name={family.system_config}\nmemory_mode_name={family.memory_mode}\n"
        + vela.read_ini("Arm/vela.ini"),
        options="[compiler]\noutput_format=Raw\nverbose_register_command_stream=true\n",
        verbose=False,
    )
    theirs = [line for line in capfd.readouterr().out.splitlines() if line.startswith("0x")]
    ours = disassemble(model.command_stream).splitlines()[1:]
    assert len(ours) == len(theirs) > 50
    for mine, line in zip(ours, theirs, strict=True):
        # Theirs has the parameter between name and fields.
        words = line.split(" - ")
        name_and_value, *fields = words[1].split(",")
        expected = f"{words[0]} - {name_and_value.split()[0]} {','.join(fields).strip()}".rstrip()
        assert mine == expected
