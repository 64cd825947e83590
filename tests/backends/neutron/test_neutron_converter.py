"""Finding the converter, calling it, and what becomes of its failures. Against a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgewise.backends.neutron.lowering.artifacts import read_artifacts
from edgewise.backends.neutron.lowering.compile_spec import NeutronOptions
from edgewise.backends.neutron.lowering.converter import (
    NeutronConverterError,
    find_converter,
    installed_converters,
    required_converter,
)
from edgewise.backends.neutron.targets import TARGETS, target_of
from edgewise.backends.neutron.tflite.model import ModelBuilder, Quantization
from edgewise.backends.neutron.tflite.schema import AddOptions, BuiltinOperator
from edgewise.errors import PartitionError
from edgewise.partition import PartitionRefused

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert
OPTIONS = NeutronOptions("imxrt700")
NAMES = ("aten_add", "aten_relu")


@pytest.fixture(scope="module")
def model() -> bytes:
    builder = ModelBuilder()
    scale = Quantization((0.1,), (3,))
    a, b = (builder.tensor(name, (1, 4), quantization=scale) for name in "ab")
    total = builder.tensor("aten_add", (1, 4), quantization=scale)
    builder.operator(BuiltinOperator.ADD, (a, b), (total,), AddOptions())
    result = builder.tensor("aten_relu", (1, 4), quantization=scale)
    builder.operator(BuiltinOperator.RELU, (total,), (result,))
    return builder.finish((a, b), (result,))


@pytest.mark.parametrize(
    ("folders", "flavor", "package"),
    [
        (["sdk"], None, "eiq_neutron_sdk.neutron_converter"),
        (["compiler"], None, "eiq_neutron_sdk.neutron_compiler"),
        (["flavors"], None, "neutron_converter_SDK_25_12.neutron_converter"),
        (["flavors"], "SDK_25_06", "neutron_converter_SDK_25_06.neutron_converter"),
        (
            ["flavors"],
            "neutron_converter_SDK_25_06",
            "neutron_converter_SDK_25_06.neutron_converter",
        ),
        (["flavors", "sdk"], None, "eiq_neutron_sdk.neutron_converter"),
        (["flavors", "sdk"], "eiq_neutron_sdk", "eiq_neutron_sdk.neutron_converter"),
        (["flavors", "sdk"], "SDK_25_12", "neutron_converter_SDK_25_12.neutron_converter"),
    ],
)
def test_found(
    stand_in: Callable[..., None],
    model: bytes,
    folders: list[str],
    flavor: str | None,
    package: str,
) -> None:
    stand_in(*folders)
    converter = required_converter(flavor)
    assert f"{converter.package}.{converter.module}" == package
    artifacts = read_artifacts(converter.convert(model, OPTIONS, NAMES, "tag0"))
    assert artifacts.inputs == (1, 0)
    assert artifacts.input_names == ("b", "a")
    assert artifacts.outputs == (0,)
    assert artifacts.version == 0
    assert artifacts.microcode[:4] == b"nMCd"
    assert artifacts.weights
    assert artifacts.kernels


def test_none_installed() -> None:
    assert installed_converters() == []
    assert find_converter(None) is None
    assert find_converter("reference") is None
    with pytest.raises(NeutronConverterError, match=r"try installing eiq_neutron_sdk.*'reference'"):
        required_converter(None)
    with pytest.raises(
        NeutronConverterError, match=r"neutron_converter_SDK_25_06 \(installed: none"
    ):
        find_converter("SDK_25_06")


def test_flavor_missing(stand_in: Callable[..., None]) -> None:
    stand_in("flavors")
    with pytest.raises(NeutronConverterError, match=r"installed: SDK_25_12, SDK_25_06\)"):
        find_converter("SDK_24_12")


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        ("crash", r"aten_add, aten_relu\].* was ended by signal 11"),
        ("exit:0", r"without a result.*giving up"),
        ("exit:3", r"exited with 3.*giving up"),
        ("refuse:aten_relu", r"sdk: aten_relu\].*operators_not_to_delegate=\['aten_relu'\]"),
        ("raise:no memory for aten_add", r"sdk: aten_add\].*RuntimeError: no memory"),
        ("hang", r"took longer than 3 s.*still at it"),
    ],
)
def test_failures(stand_in: Callable[..., None], model: bytes, failing: str, message: str) -> None:
    stand_in("sdk", failing=failing)
    converter = required_converter(None)
    limit = 3.0 if failing == "hang" else 60.0
    with pytest.raises(NeutronConverterError, match=f"(?s){message}"):
        converter.convert(model, OPTIONS, NAMES, "tag0", time_limit=limit)


@pytest.mark.parametrize(
    ("failing", "error", "found"),
    [
        ("two_operators", PartitionRefused, "got NeutronGraph, NeutronGraph"),
        ("no_graph", PartitionRefused, "got no operators"),
        ("unchanged", PartitionRefused, "got ADD, RELU"),
        ("no_input", PartitionRefused, "an input that is none of the program's"),
        ("cut", PartitionError, "cannot be read"),
    ],
)
def test_wrong_output(
    stand_in: Callable[..., None],
    model: bytes,
    failing: str,
    error: type[Exception],
    found: str,
) -> None:
    stand_in("sdk", failing=failing)
    converted = required_converter(None).convert(model, OPTIONS, NAMES, "tag0")
    with pytest.raises(error, match=found) as raised:
        read_artifacts(converted)
    named = list(getattr(raised.value, "nodes", {}))
    assert named == (["aten_add", "aten_relu"] if failing == "unchanged" else [])


def test_version_1(stand_in: Callable[..., None], model: bytes) -> None:
    stand_in("sdk", failing="version1")
    artifacts = read_artifacts(required_converter(None).convert(model, OPTIONS, NAMES, "tag0"))
    assert artifacts.version == 1
    assert artifacts.outputs == (0,)


def test_options_reach_the_converter(
    stand_in: Callable[..., None], model: bytes, tmp_path: Path
) -> None:
    stand_in("sdk")
    options = NeutronOptions(
        "imxrt700",
        extra_flags=("--numThreads=4", "verbose", "mode=fast"),
        intermediates_dir=str(tmp_path),
        fetch_constants_to_sram=True,
        dump_kernel_selection_code=True,
    )
    artifacts = read_artifacts(required_converter(None).convert(model, options, NAMES, "tag7"))
    text = artifacts.microcode[64:].decode()
    for part in ("('fetchConstantsToSRAM', True)", "('numThreads', 4)", "('mode', 'fast')"):
        assert part in text
    assert "('verbose', True)" in text
    assert "MergeTranspose" in text
    assert (tmp_path / "_kernel_selection_tag7.c").exists()


@pytest.mark.parametrize("name", list(TARGETS))
def test_targets_of_the_table(name: str) -> None:
    target = TARGETS[name]
    if target.macs is None:
        with pytest.raises(ValueError, match="known to NXP's converter only"):
            target_of(name)
    else:
        assert target_of(name) is target


def test_targets_of_the_converter(stand_in: Callable[..., None]) -> None:
    stand_in("sdk")
    converter = required_converter(None)
    target = target_of("mcxn94x", converter)
    assert (target.macs, target.pipes, target.subsystem) == (4, 4, False)
    assert converter.target("imxrt600") is None
    with pytest.raises(ValueError, match=r"'imxrt600'; try one of imxrt700"):
        target_of("imxrt600", converter)


def test_unknown_target_crashes_an_old_converter(
    stand_in: Callable[..., None], model: bytes
) -> None:
    """A flavor without a list of targets aborts: that becomes an error, too."""
    stand_in("flavors")
    with pytest.raises(NeutronConverterError, match="signal 6"):
        required_converter(None).convert(model, NeutronOptions("imxrt600"), NAMES, "tag0")


def test_data_of_the_program_is_untouched(model: bytes) -> None:
    """LiteRT reads what the builder wrote."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    a, b = (d["index"] for d in interpreter.get_input_details())
    interpreter.set_tensor(a, np.array([[10, -3, 100, 3]], np.int8))
    interpreter.set_tensor(b, np.array([[5, -3, 100, 3]], np.int8))
    interpreter.invoke()
    (out,) = (interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details())
    # stored sums: (a - 3) + (b - 3) + 3, kept in int8, and at least the zero point
    np.testing.assert_array_equal(out, [[12, 3, 127, 3]])
