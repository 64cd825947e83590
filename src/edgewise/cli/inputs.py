"""Inputs of models, from files, pictures, numbers, or at random.

A source is a `.npy` file, a `.npz` file, a picture, a folder of any of these, a number, or
"random". Each input of the model has one, or a single `.npz` has an array for each. What holds
more than one input of the model's shape (along the first dimension) makes several batches.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.errors import CliError
from edgewise.cli.images import Preprocessing, is_image, read_image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="SOURCE",
        help="A .npy or .npz file, a picture, a folder of these, a number, or 'random'; "
        "one for each input, or one .npz for all. Default: random.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="1x3x224x224", help="Of random inputs of dynamic shape; one for each."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of random inputs.")]


@dataclass(frozen=True)
class InputSpec:
    """What a model takes as one input. kind: "Tensor", "int", "float", "bool" or "None".
    shape: the upper bound where `is_dynamic`."""

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    is_dynamic: bool = False

    def __str__(self) -> str:
        if self.kind != "Tensor":
            return self.kind
        bound = "at most " if self.is_dynamic else ""
        return f"{self.dtype} {bound}{'x'.join(map(str, self.shape)) or 'scalar'}"


@dataclass(frozen=True)
class Batch:
    """Inputs for one call. name: where they come from."""

    name: str
    values: tuple[Any, ...]


def specs_of_method(metadata: Any) -> list[InputSpec]:
    """From `edgewise.runtime`'s MethodMeta."""
    found = []
    for index, kind in enumerate(metadata.input_kinds):
        if kind == "Tensor":
            info = metadata.input_tensor_meta(index)
            found.append(InputSpec(kind, info.dtype_name, info.sizes(), info.dynamism != "static"))
        else:
            found.append(InputSpec(kind))
    return found


def batches(
    sources: Sequence[str] | None,
    specs: Sequence[InputSpec],
    how: Preprocessing,
    *,
    seed: int = 0,
    shapes: Sequence[str] | None = None,
    option: str = "--input",
) -> list[Batch]:
    """All batches that the sources make. CliError where they do not fit the model.

    option: what the sources were given by.
    """
    try:
        return _batches(sources, specs, how, seed, shapes)
    except _Refusal as cause:
        raise CliError(f"[{option}] {cause}") from None


class _Refusal(Exception):
    """Of what an option said, which the message begins with."""


def _batches(
    sources: Sequence[str] | None,
    specs: Sequence[InputSpec],
    how: Preprocessing,
    seed: int,
    shapes: Sequence[str] | None,
) -> list[Batch]:
    given = list(sources or ["random"] * len(specs))
    if given == ["random"]:
        given *= len(specs)
    if len(given) == 1 and len(specs) != 1:
        path = Path(given[0])
        if path.suffix == ".npz":
            return _joined(_npz(path, specs))
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.suffix == ".npz")
            if files:
                return [b for file in files for b in _joined(_npz(file, specs))]
    if len(given) != len(specs):
        raise _Refusal(
            f"the model takes {len(specs)} inputs ({', '.join(map(str, specs))}); got "
            f"{len(given)}; try the option for each, or one .npz file with {len(specs)} arrays"
        )
    if shapes and len(shapes) != len(specs):
        raise CliError(
            f"[--shape] must be given for each of {len(specs)} inputs, or not; got {len(shapes)}"
        )
    columns = []
    for index, (source, spec) in enumerate(zip(given, specs, strict=True)):
        shape = shapes[index] if shapes else None
        columns.append(_column(source, spec, how, seed + index, shape, index))
    return _joined(columns)


def _joined(columns: list[list[Batch]]) -> list[Batch]:
    """One batch after the other; an input that has a single value has it in every batch."""
    count = max((len(column) for column in columns), default=1)
    for index, column in enumerate(columns):
        if len(column) not in (1, count):
            raise _Refusal(
                f"inputs must have as many batches as each other, or one; got "
                f"{len(column)} for input {index} and {count} for another"
            )
    rows = []
    for at in range(count):
        parts = [column[at if len(column) > 1 else 0] for column in columns]
        name = ", ".join(dict.fromkeys(part.name for part in parts))
        rows.append(Batch(name, tuple(v for part in parts for v in part.values)))
    return rows


def _column(
    source: str, spec: InputSpec, how: Preprocessing, seed: int, shape: str | None, index: int
) -> list[Batch]:
    if source == "random":
        return [Batch(f"random, seed {seed - index}", (_random(spec, seed, shape, index),))]
    if spec.kind != "Tensor":
        return [Batch(source, (_number(source, spec, index),))]
    path = Path(source)
    if path.is_dir():
        known = {".npy", ".npz"}
        files = sorted(p for p in path.rglob("*") if p.suffix in known or is_image(p))
        if not files:
            raise CliError(
                f"[{path}] must hold .npy or .npz files or pictures; got none; try another folder"
            )
        return [b for file in files for b in _of_file(file, spec, how)]
    return _of_file(path, spec, how)


def _of_file(path: Path, spec: InputSpec, how: Preprocessing) -> list[Batch]:
    if not path.exists():
        raise _Refusal(f"no such file, and not 'random': {path}")
    if is_image(path):
        return [Batch(str(path), (read_image(path, spec.shape, spec.dtype, how),))]
    if path.suffix == ".npz":
        return _joined(_npz(path, [spec]))
    if path.suffix == ".npy":
        return _samples(path.name, _load(path), spec)
    raise _Refusal(f"must be a .npy or .npz file, a picture, a folder, or 'random'; got {path}")


def _load(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise _Refusal(f"no such file: {path}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as cause:
        raise CliError(
            f"[{path}] must be a file of numpy.save or numpy.savez, without objects; got {cause}"
        ) from None


def _npz(path: Path, specs: Sequence[InputSpec]) -> list[list[Batch]]:
    held = _load(path)
    arrays = {name: held[name] for name in held.files} if hasattr(held, "files") else {"": held}
    if len(arrays) != len(specs):
        raise CliError(
            f"[{path}] must hold an array for each of {len(specs)} inputs, in order; got "
            f"{len(arrays)}: {', '.join(arrays) or 'none'}"
        )
    return [
        _samples(f"{path.name}:{name}", array, spec)
        for (name, array), spec in zip(arrays.items(), specs, strict=True)
    ]


def _samples(name: str, array: NDArray[Any], spec: InputSpec) -> list[Batch]:
    """The array as it is, or cut along its first dimension into inputs of the model's shape."""
    import numpy as np

    if spec.kind != "Tensor":
        if array.ndim:
            raise CliError(f"[{name}] the model takes one {spec.kind} here; got an array")
        return [Batch(name, (array.item(),))]
    shape, got = tuple(spec.shape), array.shape
    dtype = _dtype(spec)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise CliError(
            f"[{name}] must hold {spec.dtype}; got {array.dtype}; try array.astype('{spec.dtype}')"
        )
    if _fits(got, spec):
        parts = [array]
    elif len(got) == len(shape) + 1 and _fits(got[1:], spec):
        parts = list(array)
    elif shape and got == shape[1:] and shape[0] == 1:
        parts = [array[None]]
    elif shape and got[1:] == shape[1:] and got[0] and got[0] % shape[0] == 0:
        parts = np.split(array, got[0] // shape[0])
    else:
        raise CliError(
            f"[{name}] must hold {spec}, or several along a first dimension; got "
            f"{array.dtype} {'x'.join(map(str, got)) or 'scalar'}"
        )
    if len(parts) == 1:
        return [Batch(name, (np.ascontiguousarray(parts[0], dtype=dtype),))]
    return [
        Batch(f"{name}[{at}]", (np.ascontiguousarray(part, dtype=dtype),))
        for at, part in enumerate(parts)
    ]


def _fits(got: tuple[int, ...], spec: InputSpec) -> bool:
    if not spec.is_dynamic:
        return got == tuple(spec.shape)
    return len(got) == len(spec.shape)


def _dtype(spec: InputSpec) -> np.dtype[Any]:
    """bfloat16 is float32 for numpy, and the runtime takes that."""
    import numpy as np

    return np.dtype("float32" if spec.dtype == "bfloat16" else spec.dtype)


def _random(spec: InputSpec, seed: int, shape: str | None, index: int) -> Any:
    import numpy as np

    if spec.kind != "Tensor":
        return {"int": 1, "float": 1.0, "bool": True, "None": None}.get(spec.kind)
    sizes = parse_shape(shape) if shape else tuple(spec.shape)
    if shape and not _fits(sizes, spec):
        raise CliError(f"[--shape] input {index} must be {spec}; got {shape}")
    random = np.random.default_rng(seed)
    dtype = _dtype(spec)
    if dtype.kind == "f":
        return random.standard_normal(sizes).astype(dtype)
    return random.integers(0, 2, sizes).astype(dtype)


def parse_shape(text: str) -> tuple[int, ...]:
    """ "1x3x224x224". CliError if it is no shape."""
    try:
        sizes = tuple(int(part) for part in text.lower().replace(",", "x").split("x"))
    except ValueError:
        sizes = (-1,)
    if min(sizes) < 0:
        raise CliError(f"[--shape] must be sizes such as 1x3x224x224; got {text!r}")
    return sizes


def _number(source: str, spec: InputSpec, index: int) -> Any:
    try:
        if spec.kind == "int":
            return int(source)
        if spec.kind == "float":
            return float(source)
        if spec.kind == "bool" and source.lower() in ("true", "false"):
            return source.lower() == "true"
        if spec.kind == "None" and source.lower() == "none":
            return None
    except ValueError:
        pass
    raise _Refusal(f"input {index} must be of the kind {spec.kind}; got {source!r}")
