"""Ways to lower a random program, and what each is compared with."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from random_drawing import Program, drawn
from random_operators import OPERATORS
from torch.export import Dim, ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewise
from edgewise.backends import ethosu, neutron, xnnpack

Inputs = tuple[torch.Tensor, ...]
BOUND = 2e-5
"""Of floats, as a part of the largest number of a result."""
FEWEST_SIZES = 0.05
"""Results smaller than this are compared as if they were of this size: what cancels is nothing."""


@dataclass(frozen=True)
class Way:
    """partitioners: who takes which node, the first one first. quantizer: of PT2E, for programs of
    integers."""

    partitioners: Callable[[], Sequence[Any]]
    open_sizes: bool = False
    quantizer: Callable[[], Any] | None = None


def _xnnpack_quantizer() -> Any:
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    return xnnpack.XNNPACKQuantizer().set_global(config)


def _npu(target: str, bits: int = 8) -> Way:
    spec = ethosu.EthosUCompileSpec(target)

    def quantizer() -> Any:
        if bits == 16:
            config = ethosu.get_symmetric_a16w8_quantization_config()
        else:
            config = ethosu.get_symmetric_quantization_config()
        return ethosu.EthosUQuantizer(spec).set_global(config)

    return Way(lambda: [ethosu.EthosUPartitioner(spec)], quantizer=quantizer)


def _neutron() -> Way:
    spec = neutron.generate_neutron_compile_spec("imxrt700", neutron_converter_flavor="reference")
    return Way(lambda: [neutron.NeutronPartitioner(spec)], quantizer=neutron.NeutronQuantizer)


WAYS: dict[str, Callable[[], Way]] = {
    "kernels": lambda: Way(list),
    "kernels, open sizes": lambda: Way(list, open_sizes=True),
    "xnnpack": lambda: Way(lambda: [xnnpack.XnnpackPartitioner()]),
    "xnnpack, open sizes": lambda: Way(lambda: [xnnpack.XnnpackPartitioner()], open_sizes=True),
    "xnnpack, int8": lambda: Way(
        lambda: [xnnpack.XnnpackPartitioner()], quantizer=_xnnpack_quantizer
    ),
    "ethos-u55": lambda: _npu("ethos-u55-128"),
    "ethos-u65": lambda: _npu("ethos-u65-256"),
    "ethos-u85": lambda: _npu("ethos-u85-256"),
    "ethos-u55, int16": lambda: _npu("ethos-u55-128", 16),
    "ethos-u85, int16": lambda: _npu("ethos-u85-256", 16),
    "neutron": _neutron,
}


def fault(seed: int, way: Way) -> str:
    """What is wrong with the program of that seed, with its text; "" if nothing is."""
    program, inputs = drawn(seed, OPERATORS)
    try:
        found = _fault(program, inputs, way, random.Random(seed))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    shapes = ", ".join(str(list(x.shape)) for x in inputs)
    return found and f"seed {seed}: {found}\n    of {shapes}: {program.text()}"


def _fault(program: Program, inputs: Inputs, way: Way, chance: random.Random) -> str:
    if way.quantizer is not None:
        return _fault_of_integers(program, inputs, way)
    shapes = _open_sizes(inputs, chance) if way.open_sizes else None
    try:
        exported = torch.export.export(program, inputs, dynamic_shapes=shapes)
    except Exception:
        return ""  # sizes that the export cannot leave open, and torch's own faults
    run = _loaded(exported, way)
    for given in (inputs, *(_others(exported, program, inputs, chance) if shapes else ())):
        found = _difference(run(*given), program, given)
        if found:
            return f"{found} for {[list(x.shape) for x in given]}"
    return ""


def _loaded(exported: ExportedProgram, way: Way) -> Callable[..., list[Any]]:
    lowered = edgewise.to_edge_transform_and_lower(exported, partitioner=list(way.partitioners()))
    model = edgewise.load(lowered.to_executorch().buffer)

    def run(*inputs: torch.Tensor) -> list[Any]:
        found = model(*inputs)
        return list(found) if isinstance(found, (list, tuple)) else [found]

    return run


# --- floats ----------------------------------------------------------------------------------


def _difference(found: list[Any], program: Program, inputs: Inputs) -> str:
    """Between what was found and eager PyTorch's in float64, to what eager's own float32 is off."""
    with torch.no_grad():
        eager = exact = program(*_copies(inputs))
        with contextlib.suppress(RuntimeError):  # of two types, where numbers became float32
            exact = copy.deepcopy(program).double()(*_copies(inputs, torch.float64))
    for number, (got, want, twin) in enumerate(zip(found, eager, exact, strict=True)):
        got = torch.as_tensor(got.copy())
        if got.shape != want.shape or got.dtype != want.dtype:
            return (
                f"result {number} is {got.dtype} {list(got.shape)} "
                f"and not {want.dtype} {list(want.shape)}"
            )
        size = max(float(want.double().abs().max()), FEWEST_SIZES) if want.numel() else 1.0
        own = float((want.double() - twin.double()).abs().amax()) / size if want.numel() else 0.0
        off = float((got.double() - twin.double()).abs().amax()) / size if want.numel() else 0.0
        if not off <= max(BOUND, 20 * own):
            return f"result {number} is off by {off:.2g}, eager by {own:.2g}"
    return ""


def _copies(inputs: Inputs, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [x.to(dtype, copy=True) if x.is_floating_point() else x.clone() for x in inputs]


# --- open sizes ------------------------------------------------------------------------------


def _open_sizes(inputs: Inputs, chance: random.Random) -> Any:
    return (tuple({d: Dim.AUTO for d in range(x.dim()) if chance.random() < 0.6} for x in inputs),)


def _others(
    exported: ExportedProgram, program: Program, inputs: Inputs, chance: random.Random
) -> Iterator[Inputs]:
    """Inputs of other sizes, which the exported program and eager PyTorch take."""
    names = exported.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    for _ in range(3):
        numbers: dict[Any, int] = {}
        others = []
        for x, name in zip(inputs, names, strict=True):
            shape = [
                _size(s, exported.range_constraints, numbers, chance) for s in values[name].shape
            ]
            made = torch.Generator().manual_seed(chance.randrange(1 << 30))
            if x.is_floating_point():
                others.append(torch.randn(shape, generator=made))
            else:
                others.append(torch.randint(0, 9, shape, generator=made))
        try:
            exported.module()(*_copies(tuple(others)))
            with torch.no_grad():
                results = program(*_copies(tuple(others)))
        except Exception:
            continue  # a check of the program's, or indices outside
        if all(r.numel() and bool(r.double().isfinite().all()) for r in results):
            yield tuple(others)


def _size(size: Any, ranges: Any, numbers: dict[Any, int], chance: random.Random) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    for symbol in expression.free_symbols:
        if symbol not in numbers:
            known = ranges.get(symbol)
            low = int(known.lower) if known is not None else 1
            high = min(int(known.upper) if known is not None and known.upper < 100 else 12, 12)
            numbers[symbol] = chance.randint(min(low, high), high)
    return int(expression.subs(numbers))


# --- integers --------------------------------------------------------------------------------


def _fault_of_integers(program: Program, inputs: Inputs, way: Way) -> str:
    assert way.quantizer is not None
    try:
        prepared = prepare_pt2e(torch.export.export(program, inputs).module(), way.quantizer())
        made = torch.Generator().manual_seed(0)
        for given in (inputs, *(_like(inputs, made) for _ in range(2))):
            prepared(*given)
        reference = convert_pt2e(prepared)
        exported = torch.export.export(reference, inputs)
    except Exception:
        return ""  # numbers that are not finite in calibration, and faults of torch's
    with torch.no_grad():
        wanted, floats = reference(*inputs), program(*_copies(inputs))
    for number, (got, want, real) in enumerate(
        zip(_loaded(exported, way)(*inputs), wanted, floats, strict=True)
    ):
        found = _difference_of_integers(torch.as_tensor(got.copy()), want, real)
        if found:
            return f"result {number} {found}"
    return ""


def _like(inputs: Inputs, made: torch.Generator) -> Inputs:
    return tuple(
        torch.randn(x.shape, generator=made) if x.is_floating_point() else x for x in inputs
    )


def _difference_of_integers(got: torch.Tensor, want: torch.Tensor, real: torch.Tensor) -> str:
    """To the program of dequantized numbers that PT2E makes, where it is no coarser than that is to
    the floats: a number halfway between two steps goes either way, and more follow from it."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype} {list(got.shape)} and not {want.dtype} {list(want.shape)}"
    if not want.is_floating_point() or not bool(want.isfinite().all()):
        return ""
    size = float(want.double().norm()) + 0.01 * want.numel() ** 0.5
    off = float((got.double() - want.double()).norm()) / size
    own = float((real.double() - want.double()).norm()) / size
    return "" if off <= max(0.15, 2 * own) else f"is off by {off:.2g}, of floats by {own:.2g}"
