"""Compile specifications and payloads, byte by byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from edgewise.backends.neutron.artifacts import NeutronArtifacts
from edgewise.backends.neutron.compile_spec import (
    NeutronCompileSpecBuilder,
    NeutronOptions,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.payload import (
    ReferencePayload,
    official,
    read_reference,
    write_reference,
)
from edgewise.errors import PartitionError
from edgewise.partition.spec import CompileSpec

KEYS = [
    "output_format",
    "compile_flags",
    "target",
    "intermediates_dir",
    "operators_not_to_delegate",
    "use_neutron_for_format_conversion",
    "fetch_constants_to_sram",
    "dump_kernel_selection_code",
    "use_profiling",
]


def test_keys_and_their_order() -> None:
    specs = generate_neutron_compile_spec(
        "imxrt700", extra_flags="a=1 b", operators_not_to_delegate=["aten::add", "aten_mul_1"]
    )
    assert [s.key for s in specs] == KEYS
    values = {s.key: s.value for s in specs}
    assert values["compile_flags"] == b"a=1 b"
    assert values["operators_not_to_delegate"] == b"aten_add,aten_mul_1"
    assert values["intermediates_dir"] == b"None"
    assert values["use_profiling"] == b"False"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neutron_converter_flavor": "SDK_25_06", "extra_flags": ["x=1", "y"]},
        {"operators_not_to_delegate": ["a", "b"], "use_neutron_for_format_conversion": False},
        {"fetch_constants_to_sram": True, "use_profiling": True, "intermediates_dir": "/tmp"},
        {"dump_kernel_selection_code": True},
    ],
)
def test_round_trip(options: dict[str, Any]) -> None:
    specs = generate_neutron_compile_spec("imxrt700", **options)
    read = NeutronOptions.read(specs)
    assert read.compile_specs() == specs
    assert NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700", **options).build() == specs
    for name, value in options.items():
        found = getattr(read, name)
        assert (list(found) if isinstance(value, list) else found) == value


def test_specification_s_arguments() -> None:
    """config, neutron_converter_flavor, extra_flags, operators_not_to_delegate, by position."""
    builder = NeutronCompileSpecBuilder()
    specs = builder.neutron_compile_spec("imxrt700", "SDK_25_06", "f", ["aten::add"]).build()
    read = NeutronOptions.read(specs)
    assert read.neutron_converter_flavor == "SDK_25_06"
    assert read.extra_flags == ("f",)
    with pytest.raises(ValueError, match="called once"):
        builder.neutron_compile_spec("imxrt700")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: generate_neutron_compile_spec(""), ValueError, "imxrt700"),
        (lambda: generate_neutron_compile_spec(None), ValueError, "got None"),  # type: ignore[arg-type]
        (
            lambda: generate_neutron_compile_spec("imxrt700", operators_not_to_delegate="add"),
            TypeError,
            r"try \['add'\]",
        ),
        (
            lambda: generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=["a,b"]),
            ValueError,
            "without commas",
        ),
        (lambda: NeutronCompileSpecBuilder().build(), ValueError, "before build"),
        (
            lambda: NeutronOptions.read([CompileSpec("target", b"x")]),
            ValueError,
            "generate_neutron_compile_spec",
        ),
    ],
)
def test_wrong_options(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


ARTIFACTS = NeutronArtifacts(
    inputs=(1, 0),
    outputs=(0,),
    input_names=("b", "a"),
    output_names=("y",),
    microcode=b"nMCd" + bytes(16),
    weights=b"w" * 16,
    kernels=b"k" * 3,
    version=1,
)


def test_official_layout() -> None:
    data = official(ARTIFACTS, {"a", "y"}, arguments=2)
    # counts, formats of b, a, y, maps, version
    assert data[:16] == bytes([2, 1, 2, 0, 1, 1, 1, 0, 0, 1]) + bytes(6)
    assert data[16:48] == b"nMCd" + bytes(28)
    assert data[48:64] == b"w" * 16
    assert data[64:] == b"k" * 3 + bytes(13)


def test_too_many_arguments() -> None:
    with pytest.raises(PartitionError, match="at most 255"):
        official(ARTIFACTS, set(), arguments=256)


REFERENCE = ReferencePayload(b"TFLite file", "imxrt700", (True, False), (False,))


def test_reference_round_trip() -> None:
    assert read_reference(write_reference(REFERENCE)) == REFERENCE


@pytest.mark.parametrize("size", [0, 8, 16, 20, 30, 50])
def test_reference_cut(size: int) -> None:
    with pytest.raises(ValueError, match="NeutronBackend"):
        read_reference(write_reference(REFERENCE)[:size])


def test_reference_flags() -> None:
    data = bytearray(write_reference(REFERENCE))
    data[16 + 8 + 3 + len("imxrt700")] = 7
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        read_reference(bytes(data))
    data[16:24] = struct.pack("<Q", 2**63)
    with pytest.raises(ValueError, match="cut after"):
        read_reference(bytes(data))


def test_npu_program_on_the_host() -> None:
    with pytest.raises(ValueError, match=r"neutron_converter_flavor='reference'"):
        read_reference(official(ARTIFACTS, set(), arguments=2))
