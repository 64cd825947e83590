"""Vela in memory, and the payload that holds what it makes."""

from __future__ import annotations

import dataclasses
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ethosu", reason="extra [ethosu]")
pytest.importorskip("tosa_serializer", reason="extra [ethosu]")

import tosa_serializer as ts
from tosa_cases import conv2d
from tosa_graph import TosaGraph, attribute

from edgewise.backends.ethosu import EthosUCompileSpec, payload
from edgewise.backends.ethosu.lowering import trial, vela, vela_process
from edgewise.backends.ethosu.lowering.extents import stray_access
from edgewise.backends.ethosu.payload import NpuProgram, NpuTensor
from edgewise.backends.ethosu.simulator import NpuError, Simulator


@pytest.fixture(scope="module")
def tosa() -> bytes:
    rng = np.random.default_rng(2)
    graph = TosaGraph()
    x = graph.input([1, 9, 8, 8])
    h = graph.rescale(conv2d(graph, x, 16, (3, 3), rng, pad=(1, 1, 1, 1), input_zp=-5), 2e-3)
    y = graph.rescale(conv2d(graph, h, 24, (1, 1), rng), 2e-3, output_zp=3)
    return graph.finish(h, y)


PROGRAM = NpuProgram(
    commands=b"COP1" + bytes(range(1, 45)),
    weights=b"",
    scratch_size=4096,
    inputs=(NpuTensor((1, 1, 1, 8, 8, 8), 1, 1024, 1),),
    outputs=(NpuTensor((1, 1, 1, 1, 1, 3), 2, 0, 1), NpuTensor((1, 1, 1, 1, 1, 1), 4, 16, 1)),
)


def test_payload_round_trip() -> None:
    data = payload.to_bytes(PROGRAM)
    assert len(data) % 16 == 0
    assert data[:16].rstrip(b"\0") == b"vela_bin_stream"
    assert data[-32:] == b"vela_end_stream".ljust(32, b"\0")
    assert payload.from_bytes(data) == PROGRAM
    assert payload.from_bytes(memoryview(data)) == PROGRAM


def test_payload_of_every_length_and_with_every_bit_of_a_header_changed() -> None:
    data = payload.to_bytes(PROGRAM)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"\[ethosu payload\]"):
            payload.from_bytes(data[:size])
    with pytest.raises(ValueError, match="nothing follows"):
        payload.from_bytes(data + bytes(16))
    for position in range(0x20, 0x40):
        for bit in range(8):
            altered = bytearray(data)
            altered[position] ^= 1 << bit
            with pytest.raises(ValueError, match=r"\[ethosu payload\]"):
                payload.from_bytes(bytes(altered))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"commands": b"COP3abcd"}, "begins with b'COP1' or b'COP2'"),
        ({"inputs": (NpuTensor((1, 1, 1, 8, 8, 0), 1, 0, 1),)}, r"inputs\[0\] has sizes"),
        ({"inputs": (NpuTensor((1, 1, 1, 8, 8, 1), 3, 0, 1),)}, "elements of"),
        ({"outputs": (NpuTensor((1, 1, 1, 8, 8, 1), 1, -4, 1),)}, "offset"),
        ({"outputs": (NpuTensor((1, 1, 1, 8, 8, 1), 1, 0, 8),)}, "region"),
    ],
)
def test_payload_that_breaks_a_rule(changes: dict[str, Any], message: str) -> None:
    data = payload.to_bytes(dataclasses.replace(PROGRAM, **changes))
    with pytest.raises(ValueError, match=message):
        payload.from_bytes(data)


@pytest.mark.parametrize("target", vela.TARGETS)
def test_compiles_for(target: str, tosa: bytes) -> None:
    result = vela.compile_tosa(tosa, target)
    program, figures = result.program, result.figures
    assert [t.shape for t in program.inputs] == [(1, 1, 1, 9, 8, 8)]
    assert [t.shape for t in program.outputs] == [(1, 1, 1, 9, 8, 16), (1, 1, 1, 9, 8, 24)]
    assert payload.from_bytes(payload.to_bytes(program)) == program
    assert figures.macs == 9 * 8 * (8 * 9 * 16 + 16 * 24) == sum(x.macs for x in figures.layers)
    assert 0 < figures.npu_cycles <= figures.total_cycles
    assert figures.inferences_per_second > 1000
    assert sum(m.written_bytes for m in figures.memories.values()) >= 9 * 8 * 40
    assert all(m.peak_bytes >= 0 for m in figures.memories.values())
    assert figures.cpu_operators == 0


def test_a_graph_with_which_vela_ends(tosa: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is one that it refuses; the next one is compiled by another process."""
    process = vela_process._Process()
    monkeypatch.setattr(vela_process, "call", process.call)
    program = vela.compile_tosa(tosa, "ethos-u55-128").program
    worker = process._process
    assert worker is not None
    worker.send_signal(signal.SIGSTOP)  # at work, for as long as it lives
    killer = threading.Timer(0.2, worker.kill)
    killer.start()
    with pytest.raises(vela.VelaRefusal, match="its process ended with SIGKILL"):
        vela.compile_tosa(tosa, "ethos-u55-128")
    assert vela.compile_tosa(tosa, "ethos-u55-128").program == program
    process.stop()


def test_a_process_that_does_not_start(tosa: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is no refusal of the graph."""
    monkeypatch.setattr(vela_process, "call", vela_process._Process().call)
    monkeypatch.setattr(vela_process, "_WORKER", "edgewise.no_such_module")
    with pytest.raises(vela.VelaError, match="must start; got exit code 1") as caught:
        vela.compile_tosa(tosa, "ethos-u55-128")
    assert not isinstance(caught.value, vela.VelaRefusal)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone limits a process's memory")
def test_a_graph_for_which_vela_takes_all_memory(
    tosa: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Is refused, before the machine has none left; other graphs are compiled after it."""
    process = vela_process._Process()
    monkeypatch.setattr(vela_process, "call", process.call)
    (tmp_path / "hungry_worker.py").write_text(
        "from edgewise.backends.ethosu.lowering import vela, vela_worker\n"
        "run = vela.run\n"
        "def hungry(tosa, **request):\n"
        "    memory = vela_worker._kilobytes('/proc/meminfo', 'MemTotal')\n"
        "    if not tosa: bytearray(memory << 11)\n"
        "    return run(tosa=tosa, **request)\n"
        "vela.run = hungry\n"
        "vela_worker.main()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(vela_process, "_WORKER", "hungry_worker")
    with pytest.raises(vela.VelaRefusal, match=r"got: it needs more than \d+ MB of memory"):
        vela.compile_tosa(b"", "ethos-u55-128")
    assert vela.compile_tosa(tosa, "ethos-u55-128").program.commands
    process.stop()


def test_options_reach_vela(tosa: bytes) -> None:
    """--optimise and the fast memory's size change the program."""
    plain = vela.compile_tosa(tosa, "ethos-u65-256", memory_mode="Dedicated_Sram")
    small = vela.compile_tosa(
        tosa, "ethos-u65-256", memory_mode="Dedicated_Sram", flags=["--arena-cache-size=64"]
    )
    assert plain.fast_scratch_size > 64 >= small.fast_scratch_size
    flags = ["--disable-fwd"]
    fast = vela.compile_tosa(tosa, "ethos-u85-256")
    slow = vela.compile_tosa(tosa, "ethos-u85-256", flags=flags)
    assert fast.figures.encoded_weight_bytes != slow.figures.encoded_weight_bytes


SAID = {
    "--verbose-performance": "Conv2D .* cycles, .* MACs",
    "--verbose-cycle-estimate": "cycles: .* of the NPU",
    "--verbose-weights": "weights: .* encoded",
    "--verbose-config": "memory mode Shared_Sram",
    "--verbose-register-command-stream": "NPU_OP_STOP",
    "--verbose-operators": "^$",
}


@pytest.mark.parametrize("flag", SAID)
def test_what_verbose_flags_print(
    flag: str, tosa: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = vela.compile_tosa(tosa, "ethos-u55-128")
    assert not capfd.readouterr().out
    assert vela.compile_tosa(tosa, "ethos-u55-128", flags=[flag]) == plain
    assert re.search(SAID[flag], capfd.readouterr().out)


DIRECT = ["--cop-format=COP2", "--separate-io-regions"]


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_inputs_and_outputs_in_regions_of_their_own(target: str, tosa: bytes) -> None:
    """With the second format of driver actions; the simulator computes the same."""
    image = np.random.default_rng(1).integers(-128, 128, (1, 9, 8, 8), np.int8)
    plain = Simulator(vela.compile_tosa(tosa, target).program).run([image])
    for flags, regions in ((DIRECT[:1], {1}), (DIRECT, {3, 4})):
        program = vela.compile_tosa(tosa, target, flags=flags).program
        assert program.commands[:4] == b"COP2"
        assert {t.region for t in (*program.inputs, *program.outputs)} == regions
        again = payload.from_bytes(payload.to_bytes(program))
        for mine, expected in zip(Simulator(again).run([image]), plain, strict=True):
            np.testing.assert_array_equal(mine, expected)
        for place in (4, 8, 20, 24, 28):
            damaged = bytearray(program.commands)
            damaged[place] ^= 1
            with pytest.raises(NpuError, match="driver actions"):
                Simulator(dataclasses.replace(program, commands=bytes(damaged)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "ethos-u77-128"}, "target must be one of ethos-u55-32.*ethos-u77-128"),
        ({"system_config": "None_Such"}, "Ethos_U55_Deep_Embedded.*got 'None_Such'"),
        ({"memory_mode": "None_Such"}, "Shared_Sram.*got 'None_Such'"),
        ({"ini": "Arm/none.ini"}, "readable .ini file; got 'Arm/none.ini'"),
        ({"flags": ["--none-such"]}, "extra_flags.*--none-such"),
        ({"flags": ["--cop-format=COP3"]}, "extra_flags.*COP3"),
        ({"flags": ["--output-format=tflite"]}, "extra_flags.*tflite"),
        ({"flags": ["--separate-io-regions"]}, "without --cop-format=COP2"),
        ({"flags": ["--cpu-tensor-alignment=24"]}, "a power of 2 from 16 on"),
        ({"flags": ["--max-block-dependency=9"]}, "extra_flags.*invalid choice: 9"),
        ({"flags": ["--memory-mode=Sram_Only"]}, "argument memory_mode"),
        ({"flags": ["--debug-force-legacy-core"]}, "extra_flags.*legacy-core"),
        ({"flags": ["--arena-cache-size=-1"]}, "try 0 or more"),
        ({"flags": ["--arena-cache-size=99999999999"]}, r"at most 2\*\*32"),
        ({"memory_mode": "Dedicated_Sram"}, "arena_mem_area .* must lie in Sram or Dram; got OffC"),
        ({"memory_mode": "Dedicated_Sram_384KB"}, "got OffChipFlash, by Ethos_U55_High_End"),
        ({"tosa": b"not a graph" * 10}, "cannot run the graph"),
    ],
)
def test_refuses(tosa: bytes, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(vela.VelaError, match=message):
        vela.compile_tosa(**{"tosa": tosa, "target": "ethos-u55-128", **arguments})


def test_names_the_extra(tosa: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ethosu.regor", None)
    with pytest.raises(vela.VelaError, match=r"pip install edgewise\[ethosu\]"):
        vela.compile_tosa(tosa, "ethos-u55-128")


@pytest.mark.peer
def weightless() -> bytes:
    graph = TosaGraph()
    x = graph.input([1, 4, 4, 8])
    return graph.finish(graph.op("IDENTITY", [x], [1, 4, 4, 8], "int8", attribute("Identity")))


@pytest.mark.parametrize("flags", [[], DIRECT], ids=["one region", "regions of their own"])
@pytest.mark.parametrize("weights", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_payload_is_the_peers(
    target: str, weights: bool, flags: list[str], tosa: bytes, capsys: Any
) -> None:
    graph = tosa if weights else weightless()
    arm_vela = pytest.importorskip("executorch.backends.arm.arm_vela")
    family = vela.TARGETS[target][0]
    options = [
        *flags,
        f"--accelerator-config={target}",
        "--config=Arm/vela.ini",
        "--output-format=raw",
        f"--system-config={family.system_config}",
        f"--memory-mode={family.memory_mode}",
    ]
    theirs = arm_vela.vela_compile(graph, options)
    mine = vela.compile_tosa(graph, target, flags=flags).program
    assert bool(mine.weights) == weights
    assert payload.to_bytes(mine) == theirs.processed_bytes


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_programs_that_write_beyond_their_memory_are_refused(target: str) -> None:
    """A sum of squares along rows, reshaped: Vela gives it the memory of its bytes, and writes it
    in bricks of 16 channels. Our builder keeps clear of this one."""
    shape, reduced, reshaped = [2, 6, 5], [2, 1, 5], [2, 5, 1]
    graph = TosaGraph()
    x = graph.rescale(graph.input(shape), 0.5, "int32")
    squares = graph.op("MUL", [x, x, graph.const([0], "int8")], shape, "int32", attribute("Mul"))
    along = attribute("ReduceSum", axis=1)
    total = graph.op("REDUCE_SUM", [squares], reduced, "int32", along)
    wide = graph.rescale(graph.rescale(total, 0.1), 1.0, "int32")
    sizes = graph.shape(reshaped)
    moved = graph.op("RESHAPE", [wide, sizes], reshaped, "int32", attribute("Reshape"))
    tosa = graph.finish(graph.rescale(moved, 1.0))
    told = (
        r"a command beyond the memory held for it: NPU_OP_POOL of ReduceSum with a write of region"
    )
    with pytest.raises(vela.VelaRefusal, match=told):
        trial.compiled(tosa, EthosUCompileSpec(target))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("ethos-u55-128", "OFM has its elements apart"),
        ("ethos-u85-256", "windows of 1 lie over the feature map; got 0, 6"),
    ],
)
def test_programs_that_no_npu_carries_out_are_refused(target: str, told: str) -> None:
    """Of a clamp and the last part of a transposition Vela makes one command, in the shape of
    neither. Our builder keeps clear of this one."""
    graph = TosaGraph()
    x = graph.input([2, 2, 4, 8])
    moved = graph.op(
        "TRANSPOSE", [x], [2, 4, 2, 8], "int8", attribute("Transpose", perms=[0, 2, 1, 3])
    )
    clamp = attribute(
        "Clamp", min_val=[128], max_val=[127], nan_mode=ts.NanPropagationMode.PROPAGATE
    )
    tosa = graph.finish(graph.op("CLAMP", [moved], [2, 4, 2, 8], "int8", clamp))
    with pytest.raises(vela.VelaRefusal, match=told):
        trial.compiled(tosa, EthosUCompileSpec(target))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_accesses_are_held_against_the_blocks_of_their_time(tosa: bytes, target: str) -> None:
    """Of what the caller writes (x), too; a transfer of weights (W) may run ahead of its layer."""
    made = vela.compile_tosa(tosa, target)
    assert stray_access(made) is None
    seen = set()
    for number, block in enumerate(made.figures.arena):
        kind = block.name[0]
        for changes, told in (
            ({"bytes": block.bytes - 1}, kind in "txW"),
            ({"first": 99, "last": 99}, kind in "tx"),
        ):
            arena = [*made.figures.arena]
            arena[number] = dataclasses.replace(block, **changes)
            figures = dataclasses.replace(made.figures, arena=tuple(arena))
            stray = stray_access(dataclasses.replace(made, figures=figures))
            assert (stray is not None) == told, (block, changes, stray)
        seen.add(kind)
    assert seen >= {"t", "x"}
    unreadable = dataclasses.replace(made.program, commands=b"COP9" + made.program.commands[4:])
    assert "COP9" in str(stray_access(dataclasses.replace(made, program=unreadable)))
