"""Models that commands are given: a Python file and what makes the model, or a `.pt2` file.

`model.py:make` is a module, a program of `torch.export`, or something to call without arguments
that returns one of these, alone or as `(model, example_inputs)` or `(model, example_inputs,
dynamic_shapes)`. What is not returned is taken from `example_inputs` and `dynamic_shapes` of the
file, or, for inputs, from --shape. Inputs are a tuple, or a dict for those given by name.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.errors import CliError
from edgewise.cli.inputs import InputSpec, parse_shape

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="model.py:make (a Python file and what makes the model), package.module:make, "
        "a .pt2 file of torch.export.save, or a folder of Hugging Face's with --task.",
    ),
]
ExampleShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="1x3x224x224",
        help="Shape of an example input where MODEL brings none; 1x16:int64 for another type "
        "than float32; one for each input.",
    ),
]


@dataclass
class LoadedModel:
    """A model and what it is exported with. inputs: None for a program exported already whose
    file brings no inputs."""

    name: str
    model: torch.nn.Module | ExportedProgram
    inputs: tuple[Any, ...] | None
    dynamic_shapes: Any = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Inputs given by name."""

    def specs(self) -> list[InputSpec]:
        """Of the inputs, flat."""
        from torch.utils import _pytree as pytree

        is_dynamic = self.dynamic_shapes is not None
        return [_spec(leaf, is_dynamic) for leaf in pytree.tree_leaves(self.example())]

    def example(self) -> tuple[Any, ...]:
        """A batch as calibration takes it: of the example inputs, and of a pair of these and those
        by name where there are such. CliError if there are none."""
        inputs = self.needed_inputs()
        return (inputs, dict(self.keywords)) if self.keywords else inputs

    def run(self, module: torch.nn.Module, batch: tuple[Any, ...]) -> Any:
        """What the module returns for a batch like `example()`."""
        return module(*batch[0], **batch[1]) if self.keywords else module(*batch)

    def needed_inputs(self) -> tuple[Any, ...]:
        """The example inputs by position. CliError if there are none."""
        if self.inputs is None:
            raise CliError(
                f"[{self.name}] needs example inputs; got none; try (model, example_inputs) as "
                f"what the function returns, or --shape 1x3x224x224"
            )
        return self.inputs

    def nested(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Flat numpy arrays and numbers as a batch like `example()`, tensors in their types."""
        import numpy as np
        import torch
        from torch.utils import _pytree as pytree

        leaves, tree = pytree.tree_flatten(self.example())
        made = [
            torch.from_numpy(np.ascontiguousarray(value)).to(leaf.dtype)
            if isinstance(leaf, torch.Tensor)
            else value
            for leaf, value in zip(leaves, values, strict=True)
        ]
        found: tuple[Any, ...] = pytree.tree_unflatten(made, tree)
        return found


def load_model(reference: str, shapes: Sequence[str] | None = None) -> LoadedModel:
    """What the reference names. CliError where it names nothing that can be compiled."""
    path = Path(reference)
    if path.is_dir():
        raise CliError(
            f"[MODEL] must be a model of Python's or a .pt2 file here; got the folder {reference}; "
            f"try edgewise compile {reference} --task text-classification, then its .pte file"
        )
    if path.suffix == ".pt2":
        return _saved(path, shapes)
    if path.suffix in (".pt", ".pth", ".bin", ".safetensors", ".ckpt") and path.exists():
        raise CliError(
            f"[{reference}] must be a program or Python; got a file of weights, which says "
            f"nothing of the model; try model.py:make with a function that loads them"
        )
    if path.suffix == ".pte":
        raise CliError(
            f"[{reference}] must be a model, not what was made of one; got a .pte file; try "
            f"model.py:make, or edgewise inspect, explain, run or profile of the file"
        )
    if path.suffix == ".onnx":
        raise CliError(f"[{reference}] must be a PyTorch model; got ONNX, which is not read")
    home, _, name = reference.rpartition(":")
    if not home or not name.isidentifier():
        raise CliError(
            f"[MODEL] must be model.py:make, package.module:make or a .pt2 file; got "
            f"{reference!r}; try {reference}:make with the function that makes the model"
        )
    module = _imported(home)
    if not hasattr(module, name):
        known = ", ".join(n for n in vars(module) if not n.startswith("_"))
        raise CliError(f"[{home}] must have what is named; got no {name!r}; try one of: {known}")
    return _made(reference, module, getattr(module, name), shapes)


def _saved(path: Path, shapes: Sequence[str] | None) -> LoadedModel:
    import torch

    if not path.exists():
        raise CliError(f"[MODEL] no such file: {path}")
    try:
        program = torch.export.load(path)
    except Exception as cause:  # whatever the archive makes torch stumble over
        raise CliError(
            f"[{path}] must be a file of torch.export.save of this torch ({torch.__version__}); "
            f"got {type(cause).__name__}: {_first_line(cause)}"
        ) from cause
    inputs, keywords = program.example_inputs or (None, {})
    given = _from_shapes(shapes)
    if given is not None or inputs is None:
        return LoadedModel(str(path), program, given)
    return LoadedModel(str(path), program, tuple(inputs), keywords=dict(keywords))


def _imported(home: str) -> ModuleType:
    with _users_code(home):
        if home.endswith(".py"):
            path = Path(home)
            if not path.exists():
                raise CliError(f"[MODEL] no such file: {home}; looked from {Path.cwd()}")
            sys.path.insert(0, str(path.resolve().parent))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(path.stem, module)
            spec.loader.exec_module(module)
            return module
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(home)
        except ModuleNotFoundError as missing:
            if missing.name and (home + ".").startswith(missing.name + "."):
                raise CliError(
                    f"[MODEL] must be a Python file or a module that can be imported; got "
                    f"{home!r}; try {home}.py:name, or the folder that {home} is in"
                ) from None
            raise


def _made(
    reference: str, module: ModuleType, found: Any, shapes: Sequence[str] | None
) -> LoadedModel:
    import torch
    from torch.export import ExportedProgram

    ready = (torch.nn.Module, ExportedProgram)
    if callable(found) and not isinstance(found, ready):
        with _users_code(reference):
            found = found()
    parts = found if isinstance(found, tuple) else (found,)
    model = parts[0] if parts else None
    if not isinstance(model, ready) or len(parts) > 3:
        raise CliError(
            f"[{reference}] must be, or return, a torch.nn.Module or an ExportedProgram, or a "
            f"tuple (model, example_inputs, dynamic_shapes); got {type(found).__name__}"
            + (f" of {', '.join(type(p).__name__ for p in parts)}" if len(parts) > 1 else "")
        )
    inputs = parts[1] if len(parts) > 1 else None
    dynamic = parts[2] if len(parts) > 2 else getattr(module, "dynamic_shapes", None)
    if shapes:
        inputs = _from_shapes(shapes)
    elif inputs is None:
        inputs = getattr(module, "example_inputs", None)
        if callable(inputs):
            with _users_code(f"{reference.rpartition(':')[0]}:example_inputs"):
                inputs = inputs()
    keywords: Mapping[str, Any] = {}
    if inputs is None and isinstance(model, ExportedProgram) and model.example_inputs:
        inputs, keywords = model.example_inputs
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if isinstance(inputs, Mapping):
        inputs, keywords = (), dict(inputs)
    if inputs is not None and not isinstance(inputs, (tuple, list)):
        raise CliError(
            f"[{reference}] example_inputs must be a tuple with one item for each argument of "
            f"forward, or a dict of those by name; got {type(inputs).__name__}"
        )
    inputs = None if inputs is None else tuple(inputs)
    loaded = LoadedModel(reference, model, inputs, dynamic, keywords)
    if isinstance(model, torch.nn.Module):
        loaded.needed_inputs()
    return loaded


def _from_shapes(shapes: Sequence[str] | None) -> tuple[Any, ...] | None:
    """Example inputs: normal numbers; zeros for integers."""
    import torch

    made = []
    for text in shapes or []:
        sizes, _, name = text.partition(":")
        dtype = getattr(torch, name or "float32", None)
        if not isinstance(dtype, torch.dtype):
            raise CliError(f"[--shape] the type must be torch's, such as int64; got {name!r}")
        shape = parse_shape(sizes)
        random = torch.Generator().manual_seed(0)
        if dtype.is_floating_point:
            made.append(torch.randn(shape, generator=random).to(dtype))
        else:
            made.append(torch.zeros(shape, dtype=dtype))
    return tuple(made) or None


def _spec(leaf: Any, is_dynamic: bool) -> InputSpec:
    import torch

    if isinstance(leaf, torch.Tensor):
        name = str(leaf.dtype).removeprefix("torch.")
        return InputSpec("Tensor", name, tuple(leaf.shape), is_dynamic)
    return InputSpec("None" if leaf is None else type(leaf).__name__)


@contextmanager
def _users_code(where: str) -> Iterator[None]:
    """What the model's own code raises is the user's to mend: where, and what."""
    try:
        yield
    except CliError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise  # told with the extra that brings it
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        own = [f for f in frames if "importlib" not in f.filename]
        line = f", at {own[-1].filename}:{own[-1].lineno}" if own else ""
        if isinstance(error, SyntaxError):
            line = f", at {error.filename}:{error.lineno}"
        raise CliError(
            f"[{where}] raised {type(error).__name__}: {_first_line(error)}{line}; "
            f"try edgewise --traceback for all of it"
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "(no message)"
