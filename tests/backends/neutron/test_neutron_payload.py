"""Compile specifications and payloads, byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgewise.backends.neutron.lowering.artifacts import NeutronArtifacts
from edgewise.backends.neutron.lowering.compile_spec import (
    NeutronCompileSpecBuilder,
    NeutronOptions,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.lowering.partitioner import NeutronPartitioner
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


def test_once() -> None:
    builder = NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700")
    with pytest.raises(ValueError, match="called once"):
        builder.neutron_compile_spec("imxrt700")


def _read(flavor: Any) -> NeutronPartitioner:
    keys = {"output_format": "tflite", "target": "imxrt700", "neutron_converter_flavor": flavor}
    return NeutronPartitioner([CompileSpec(key, str(keys[key]).encode()) for key in keys])


@pytest.mark.parametrize("flavor", ["SDK_99", "SDK_25_6", "neutron_converter_no", "eiq", "", 3])
@pytest.mark.parametrize(
    "construct",
    [
        lambda f: generate_neutron_compile_spec("imxrt700", neutron_converter_flavor=f),
        lambda f: NeutronCompileSpecBuilder().neutron_compile_spec(
            "imxrt700", neutron_converter_flavor=f
        ),
        _read,
    ],
    ids=["function", "builder", "partitioner"],
)
def test_no_such_converter(construct: Callable[[Any], Any], flavor: Any) -> None:
    """Refused before anything is lowered, with the names that there are."""
    with pytest.raises(ValueError, match=rf"got '?{flavor}'?; .*'SDK_25_12', .*'reference'"):
        construct(flavor)


def test_a_converter_that_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It need not be one of those known here."""
    with pytest.raises(ValueError, match="SDK_31_09"):
        generate_neutron_compile_spec("imxrt700", neutron_converter_flavor="SDK_31_09")
    (tmp_path / "neutron_converter_SDK_31_09").mkdir()
    (tmp_path / "neutron_converter_SDK_31_09" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    generate_neutron_compile_spec("imxrt700", neutron_converter_flavor="SDK_31_09")


ADD = ["aten::add"]
NAMED = {"operators_not_to_delegate": ("aten_add",)}
FLAVOR = {"neutron_converter_flavor": "SDK_25_06"}
FLAG = {"extra_flags": ("--a=1",)}
OUT = {"intermediates_dir": "out"}
BUILDER = lambda *given: NeutronCompileSpecBuilder().neutron_compile_spec(*given).build()  # noqa: E731


@pytest.mark.parametrize(
    ("call", "given", "read"),
    [
        # 1.0, 1.1: flavor, system_config, extra_flags, operators[, format conversion]
        (generate_neutron_compile_spec, ("SDK_25_06",), FLAVOR),
        (generate_neutron_compile_spec, ("SDK_25_06", None, "--a=1", ADD), FLAVOR | FLAG | NAMED),
        (
            generate_neutron_compile_spec,
            ("SDK_25_06", None, "verbose", None, False),
            FLAVOR | {"extra_flags": ("verbose",), "use_neutron_for_format_conversion": False},
        ),
        (generate_neutron_compile_spec, (None, None, "--a=1"), FLAG),
        # 1.2, 1.3: system_config, extra_flags, operators, format, fetch, dump
        (generate_neutron_compile_spec, (None, "--a=1", ADD), FLAG | NAMED),
        (
            generate_neutron_compile_spec,
            (None, "--a=1", ADD, False, True, True),
            FLAG
            | NAMED
            | {
                "use_neutron_for_format_conversion": False,
                "fetch_constants_to_sram": True,
                "dump_kernel_selection_code": True,
            },
        ),
        # 1.4: system_config, extra_flags, intermediates_dir, operators, format, fetch, dump, ...
        (generate_neutron_compile_spec, (None, "--a=1", "out", ADD), FLAG | OUT | NAMED),
        (generate_neutron_compile_spec, (None, None, Path("out")), OUT),
        (
            generate_neutron_compile_spec,
            (None, None, "out", None, True, True, False, True),
            OUT | {"fetch_constants_to_sram": True, "use_profiling": True},
        ),
        # the builder, of 1.0 and 1.1: flavor, extra_flags, operators, format
        (BUILDER, ("SDK_25_06", "f", ADD), FLAVOR | {"extra_flags": ("f",)} | NAMED),
        (BUILDER, ("reference",), {"neutron_converter_flavor": "reference"}),
        # 1.2, 1.3: extra_flags, operators, format, fetch, dump
        (
            BUILDER,
            ("--a=1", ADD, False),
            FLAG | NAMED | {"use_neutron_for_format_conversion": False},
        ),
        (BUILDER, (None, ADD), NAMED),
        # 1.4: intermediates_dir, extra_flags, operators, ...
        (BUILDER, ("out", "--a=1", ADD), OUT | FLAG | NAMED),
        (BUILDER, (None, "--a=1"), FLAG),
    ],
)
def test_the_order_of_any_release(
    call: Callable[..., list[CompileSpec]], given: tuple[Any, ...], read: dict[str, Any]
) -> None:
    assert NeutronOptions.read(call("imxrt700", *given)) == NeutronOptions("imxrt700", **read)


@pytest.mark.parametrize(
    ("call", "given", "shown"),
    [
        (generate_neutron_compile_spec, ("SDK 25.06",), "got 'SDK 25.06'; try"),
        (generate_neutron_compile_spec, ("imx95",), "got 'imx95'; try"),
        (generate_neutron_compile_spec, (None, "SDK_25_06"), "got None, 'SDK_25_06'; try"),
        (generate_neutron_compile_spec, (None, None, None, "SDK_25_06"), "'SDK_25_06'; try"),
        (generate_neutron_compile_spec, (None,) * 9, "got None, None"),
        (generate_neutron_compile_spec, (None, 3), "got None, 3; try"),
        (BUILDER, (None, "SDK_25_06"), "got None, 'SDK_25_06'; try"),
        (BUILDER, ("SDK_25_06", "SDK_25_06"), "by name: .*neutron_converter_flavor="),
        (BUILDER, ("SDK_25_06", ADD), r"got 'SDK_25_06', \['aten::add'\]"),
    ],
)
def test_no_release_s_order(
    call: Callable[..., list[CompileSpec]], given: tuple[Any, ...], shown: str
) -> None:
    """Nothing that stands by position is dropped."""
    with pytest.raises(TypeError, match=rf"in the order of a release of ExecuTorch; .*{shown}"):
        call("imxrt700", *given)


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
