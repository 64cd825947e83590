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
Run = Callable[..., list[torch.Tensor]]
BOUND = 2e-5
"""Of floats, as a part of the largest number of a result."""
FEWEST_SIZES = 0.05
"""Results smaller than this are compared as if they were of this size: what cancels is nothing."""


class _LeftOutError(Exception):
    """A program that is none for the way: torch does not export it, say, or the other side does
    not lower it."""


# --- who lowers, and who runs ------------------------------------------------------------------


def _lowered(exported: ExportedProgram, partitioners: Sequence[Any]) -> bytes:
    lowered = edgewise.to_edge_transform_and_lower(exported, partitioner=list(partitioners))
    return lowered.to_executorch().buffer


def _lowered_for_executorch(exported: ExportedProgram, partitioners: Sequence[Any]) -> bytes:
    """_LeftOutError if no release of ExecuTorch has what the file uses."""
    lowered = edgewise.to_edge_transform_and_lower(exported, partitioner=list(partitioners))
    program = lowered.to_executorch()
    if any(need.since is None for need in program.needs()):
        raise _LeftOutError
    return program.buffer


def _lowered_by_executorch(exported: ExportedProgram, partitioners: Sequence[Any]) -> bytes:
    """With its own XNNPACK in the place of ours. _LeftOutError if it does not lower the program."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    own = [XnnpackPartitioner() for _ in partitioners]
    try:
        return to_edge_transform_and_lower(exported, partitioner=own).to_executorch().buffer
    except Exception as error:
        raise _LeftOutError from error


def _loaded(data: bytes) -> Run:
    model = edgewise.load(data)

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        found = model(*inputs)
        results = found if isinstance(found, (list, tuple)) else [found]
        return [torch.as_tensor(result.copy()) for result in results]

    return run


def _loaded_by_executorch(data: bytes) -> Run:
    import executorch.kernels.quantized  # noqa: F401  (registers them)
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(data).load_method("forward")

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        assert data  # the method reads it where it is
        # Results are views of the method's memory.
        return [result.clone() for result in method.execute([x.contiguous() for x in inputs])]

    return run


# --- ways --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """partitioners: who takes which node, the first one first. largest: of a size that is open;
    None: no bound. chosen_rows: data decide how many rows of the inputs there are. quantizer: of
    PT2E, for programs of integers."""

    partitioners: Callable[[], Sequence[Any]]
    open_sizes: bool = False
    chosen_rows: bool = False
    largest: int | None = None
    quantizer: Callable[[], Any] | None = None
    lower: Callable[[ExportedProgram, Sequence[Any]], bytes] = _lowered
    load: Callable[[bytes], Run] = _loaded


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


def _xnnpack(**settings: Any) -> Way:
    return Way(lambda: [xnnpack.XnnpackPartitioner()], **settings)


_INT8: dict[str, Any] = {"quantizer": _xnnpack_quantizer}
_OPEN: dict[str, Any] = {"open_sizes": True}
_BOUNDED: dict[str, Any] = {"open_sizes": True, "largest": 24}
_CHOSEN: dict[str, Any] = {"chosen_rows": True}
_ON_EXECUTORCH: dict[str, Any] = {
    "lower": _lowered_for_executorch,
    "load": _loaded_by_executorch,
}
_BY_EXECUTORCH: dict[str, Any] = {"lower": _lowered_by_executorch}

WAYS: dict[str, Callable[[], Way]] = {
    "kernels": lambda: Way(list),
    "kernels, open sizes": lambda: Way(list, **_OPEN),
    "kernels, chosen rows": lambda: Way(list, **_CHOSEN),
    "kernels, on executorch": lambda: Way(list, **_ON_EXECUTORCH),
    "kernels, open sizes, on executorch": lambda: Way(list, **_BOUNDED, **_ON_EXECUTORCH),
    "kernels, by executorch": lambda: Way(list, **_BY_EXECUTORCH),
    "xnnpack": _xnnpack,
    "xnnpack, open sizes": lambda: _xnnpack(**_OPEN),
    "xnnpack, chosen rows": lambda: _xnnpack(**_CHOSEN),
    "xnnpack, on executorch": lambda: _xnnpack(**_ON_EXECUTORCH),
    "xnnpack, open sizes, on executorch": lambda: _xnnpack(**_BOUNDED, **_ON_EXECUTORCH),
    "xnnpack, by executorch": lambda: _xnnpack(**_BY_EXECUTORCH),
    "xnnpack, open sizes, by executorch": lambda: _xnnpack(**_BOUNDED, **_BY_EXECUTORCH),
    "xnnpack, int8": lambda: _xnnpack(**_INT8),
    "xnnpack, int8, open sizes": lambda: _xnnpack(**_INT8, **_OPEN),
    "xnnpack, int8, on executorch": lambda: _xnnpack(**_INT8, **_ON_EXECUTORCH),
    "xnnpack, int8, by executorch": lambda: _xnnpack(**_INT8, **_BY_EXECUTORCH),
    "ethos-u55": lambda: _npu("ethos-u55-128"),
    "ethos-u65": lambda: _npu("ethos-u65-256"),
    "ethos-u85": lambda: _npu("ethos-u85-256"),
    "ethos-u55, int16": lambda: _npu("ethos-u55-128", 16),
    "ethos-u85, int16": lambda: _npu("ethos-u85-256", 16),
    "neutron": _neutron,
}


def fault(seed: int, way: Way) -> str | None:
    """What is wrong with the program of that seed, with its text; "" if nothing is. None if it is
    no program for the way."""
    program, inputs = drawn(seed, OPERATORS)
    compare = _fault_of_integers if way.quantizer is not None else _fault_of_floats
    compare = _fault_of_chosen_rows if way.chosen_rows else compare
    try:
        found = compare(program, inputs, way, random.Random(seed))
    except _LeftOutError:
        return None
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    shapes = ", ".join(str(list(x.shape)) for x in inputs)
    return found and f"seed {seed}: {found}\n    of {shapes}: {program.text()}"


# --- floats ----------------------------------------------------------------------------------


def _fault_of_floats(program: Program, inputs: Inputs, way: Way, chance: random.Random) -> str:
    shapes = _open_sizes(inputs, way.largest, chance) if way.open_sizes else None
    try:
        exported = torch.export.export(program, inputs, dynamic_shapes=shapes)
    except Exception as error:  # sizes that the export cannot leave open, and torch's own faults
        raise _LeftOutError from error
    others = _others(exported, program, inputs, chance) if way.open_sizes else ()
    return _fault_of_export(
        exported, way, [inputs, *others], lambda found, given: _difference(found, program, given)
    )


def _fault_of_export(
    exported: ExportedProgram,
    way: Way,
    calls: Sequence[Inputs],
    difference: Callable[[list[torch.Tensor], Inputs], str],
) -> str:
    """difference: of the results for inputs. _LeftOutError for a file of ExecuTorch's that it does
    not run right itself."""
    file = way.lower(exported, way.partitioners())
    if way.lower is _lowered_by_executorch:
        try:
            theirs = _loaded_by_executorch(file)
            wrong = any(difference(theirs(*given), given) for given in calls)
        except RuntimeError:
            wrong = True
        if wrong:
            raise _LeftOutError
    run = way.load(file)
    for given in calls:
        found = difference(run(*given), given)
        if found:
            return f"{found} for {[list(x.shape) for x in given]}"
    return ""


def _difference(found: list[torch.Tensor], program: Program, inputs: Inputs) -> str:
    """Between what was found and eager PyTorch's in float64, to what eager's own float32 is off."""
    with torch.no_grad():
        eager = exact = program(*_copies(inputs))
        with contextlib.suppress(RuntimeError, ValueError):  # numbers that became float32 before
            exact = copy.deepcopy(program).double()(*_copies(inputs, torch.float64))
    for number, (got, want, twin) in enumerate(zip(found, eager, exact, strict=True)):
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


def _open_sizes(inputs: Inputs, largest: int | None, chance: random.Random) -> Any:
    size = Dim.AUTO if largest is None else Dim.AUTO(max=largest)
    return (tuple({d: size for d in range(x.dim()) if chance.random() < 0.6} for x in inputs),)


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


# --- sizes that data decide ------------------------------------------------------------------


class _ChosenRows(torch.nn.Module):
    """A program of those rows of its inputs that a mask chooses, where an input has as many along
    a dimension."""

    def __init__(self, program: Program, dim: int, count: int) -> None:
        super().__init__()
        self.program, self.dim, self.count = program, dim, count

    def forward(self, mask: torch.Tensor, *inputs: torch.Tensor) -> Any:
        rows = torch.nonzero(mask)[:, 0]
        return self.program(*(self._chosen(x, rows) for x in inputs))

    def _chosen(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        has_rows = x.dim() > self.dim and x.shape[self.dim] == self.count
        return x.index_select(self.dim, rows) if has_rows else x


def _fault_of_chosen_rows(program: Program, inputs: Inputs, way: Way, chance: random.Random) -> str:
    several = [(dim, size) for dim, size in enumerate(inputs[0].shape) if size > 1]
    if not several:
        raise _LeftOutError
    model: Any = _ChosenRows(program, *several[0]).eval()
    every = torch.ones(model.count, dtype=torch.bool)
    try:
        exported = torch.export.export(model, (every, *inputs))
    except Exception as error:  # what torch asks of the number of rows
        raise _LeftOutError from error
    some = [torch.tensor([chance.random() < 0.6 for _ in every]) for _ in range(2)]
    calls = [(mask, *inputs) for mask in (every, *some) if _is_alike(exported, model, mask, inputs)]
    if not calls:
        raise _LeftOutError
    return _fault_of_export(
        exported, way, calls, lambda found, given: _difference(found, model, given)
    )


def _is_alike(exported: ExportedProgram, model: Any, mask: torch.Tensor, inputs: Inputs) -> bool:
    """Whether the exported program takes the call as eager PyTorch does: a single row is another
    shape to some operators. And whether all results are finite, and some are left."""
    if int(mask.sum()) == 1:
        return False
    try:
        with torch.no_grad():
            results = model(mask, *_copies(inputs))
        exported.module()(mask, *_copies(inputs))
    except Exception:
        return False
    return all(r.numel() and bool(r.double().isfinite().all()) for r in results)


# --- integers --------------------------------------------------------------------------------


def _fault_of_integers(program: Program, inputs: Inputs, way: Way, chance: random.Random) -> str:
    assert way.quantizer is not None
    shapes = _open_sizes(inputs, way.largest, chance) if way.open_sizes else None
    try:
        traced = torch.export.export(program, inputs, dynamic_shapes=shapes)
        prepared = prepare_pt2e(traced.module(), way.quantizer())
        made = torch.Generator().manual_seed(0)
        for given in (inputs, *(_like(inputs, made) for _ in range(2))):
            prepared(*given)
        reference = convert_pt2e(prepared)
        # Its arguments have names of their own, where the program has one for all.
        own_shapes = shapes[0] if shapes is not None else None
        exported = torch.export.export(reference, inputs, dynamic_shapes=own_shapes)
    except Exception as error:  # numbers that are not finite in calibration, and torch's own faults
        raise _LeftOutError from error
    others = _others(exported, program, inputs, chance) if way.open_sizes else ()

    def difference(found: list[torch.Tensor], given: Inputs) -> str:
        with torch.no_grad():
            wanted, floats = reference(*given), program(*_copies(given))
        each = enumerate(zip(found, wanted, floats, strict=True))
        wrong = ((number, _difference_of_integers(*results)) for number, results in each)
        return next((f"result {number} {text}" for number, text in wrong if text), "")

    return _fault_of_export(exported, way, [inputs, *others], difference)


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
