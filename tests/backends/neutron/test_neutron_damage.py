"""Damaged programs of the "reference" flavor are errors, and the process goes on."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from neutron_programs import INPUT, Net, partitioner, quantized

import edgewise
from edgewise.backends.neutron import reference
from edgewise.format.file import read
from edgewise.runtime import Runtime

pytestmark = pytest.mark.litert


DEADLY = 22
"""Place in the TFLite file of a byte of the root table, whose loss ends LiteRT's process."""


@pytest.fixture(scope="module")
def file() -> bytes:
    exported = quantized(Net(), INPUT)
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner()])
    return edge.to_executorch().buffer


@pytest.fixture(scope="module")
def payload(file: bytes) -> bytes:
    (data,) = (bytes(s) for s in read(file).segments if b"TFL3" in bytes(s))
    return data


@pytest.fixture(scope="module")
def run() -> Callable[[bytes], list[Any]]:
    """Loads and runs a payload with zeros. Interpreters of other tests are not concerned."""

    def of(data: bytes) -> list[Any]:
        program = reference.load_delegate(data, {}, lambda key: b"")
        return list(program([np.zeros((1, 3, 16, 16), np.int8)]))

    return of


def changed(data: bytes, at: int, value: int) -> bytes:
    """at: from the beginning of the TFLite file."""
    at += data.index(b"TFL3") - 4
    return data[:at] + bytes([value]) + data[at + 1 :]


def test_a_byte_that_ends_the_interpreter(
    payload: bytes, run: Callable[[bytes], list[Any]]
) -> None:
    expected = run(payload)
    with pytest.raises(ValueError, match=r"its process, which ended with SIG.*; try compiling"):
        run(changed(payload, DEADLY, 0))
    for wanted, got in zip(expected, run(payload), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("seed", range(60))
def test_any_damage_is_an_error_or_a_result(
    payload: bytes, run: Callable[[bytes], list[Any]], seed: int
) -> None:
    chance = random.Random(seed)
    damaged = changed(payload, chance.randrange(3000), chance.randrange(256))
    try:
        run(damaged)
    except ValueError as error:
        assert str(error).startswith("[NeutronBackend]")  # noqa: PT017  it may also run
    assert run(payload)


def test_a_program_that_takes_too_long_is_stopped(
    payload: bytes, run: Callable[[bytes], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = reference.load_delegate(payload, {}, lambda key: b"")
    assert reference._interpreters._process is not None
    reference._interpreters._process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(reference, "TIME_LIMIT", 0.5)
    with pytest.raises(ValueError, match=r"stopped, having run for 0\.5 s"):
        program([np.zeros((1, 3, 16, 16), np.int8)])
    monkeypatch.undo()
    assert run(payload)


def test_memory_is_limited(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    reference._interpreters.stop()
    monkeypatch.setattr(reference, "MOST_BYTES", 64 << 20)
    with pytest.raises((ValueError, ImportError), match=r"\[NeutronBackend\]"):
        reference.load_delegate(payload, {}, lambda key: b"")
    reference._interpreters.stop()


def test_the_runtime_tells_of_it(file: bytes, payload: bytes) -> None:
    damaged = file.replace(payload, changed(payload, DEADLY, 0))
    assert damaged != file
    with pytest.raises(edgewise.runtime.Error, match="NeutronBackend"):
        Runtime.get().load_program(damaged).load_method("forward")
