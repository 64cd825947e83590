"""Compiling for several commands: the options, the calibration data, one program."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.errors import CliError
from edgewise.cli.images import Preprocessing, is_image
from edgewise.cli.inputs import batches
from edgewise.cli.models import LoadedModel
from edgewise.cli.output import Output
from edgewise.registry import DEFAULT
from edgewise.sounds import is_sound

if TYPE_CHECKING:
    from edgewise.lowering import ExecutorchProgramManager
    from edgewise.quantize.budget import Budget


def complete_backend() -> list[str]:
    """For shells."""
    from edgewise.registry import target_names

    return target_names()


def complete_task() -> list[str]:
    """For shells."""
    from edgewise.tasks.description import TASKS

    return list(TASKS)


def complete_scheme() -> list[str]:
    """For shells."""
    from edgewise.quantize.schemes import SCHEMES

    return ["none", "auto", *SCHEMES]


Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="xnnpack, a target of Ethos-U (ethos-u55-128), of Neutron (neutron-imxrt700, with "
        "-reference behind it for this machine), none for the runtime's own kernels, or several in "
        "the order in which they are asked: ethos-u55-128,xnnpack.",
        autocompletion=complete_backend,
    ),
]
Quantize = Annotated[
    str,
    typer.Option(
        "--quantize",
        metavar="NAME",
        help="none, int8, int8-dynamic, int8-weight, int4-dynamic or int4-weight.",
        autocompletion=complete_scheme,
    ),
]
Calibration = Annotated[
    list[str] | None,
    typer.Option(
        "--calibration",
        "-c",
        metavar="SOURCE",
        help="Data such as the model will see, for int8: a .npy or .npz file, or a folder of "
        "these or of pictures; one for each input, or one .npz for all.",
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", min=1, metavar="N", help="At most so many batches of calibration data."
    ),
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option("--keep-float", metavar="MODULE", help="A module not to quantize; repeatable."),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--quantize-method",
        metavar="NAME",
        help="What is done beside rounding, for int8 (smooth, equalize, bias-correction, adaround, "
        "gptq, percentile, ...; none for rounding alone); repeatable. Default: what costs nothing "
        "at run time.",
    ),
]
QuantizedInputs = Annotated[
    bool,
    typer.Option(
        "--quantized-inputs",
        help="Inputs that are quantized are integers in the file; methods as input0_scale tell "
        "what they stand for.",
    ),
]
QuantizedOutputs = Annotated[
    bool, typer.Option("--quantized-outputs", help="As --quantized-inputs, of outputs.")
]
GroupSize = Annotated[
    int | None,
    typer.Option("--group-size", metavar="N", help="Weights that share a scale, for 4 bits."),
]
SystemConfig = Annotated[
    str | None,
    typer.Option(
        "--system-config",
        metavar="SECTION",
        help="Of Vela's configuration file, for Ethos-U; default: the target's.",
    ),
]
MemoryMode = Annotated[
    str | None,
    typer.Option("--memory-mode", metavar="SECTION", help="As --system-config: Sram_Only, ..."),
]
RuntimeTarget = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="TARGET",
        help="What the files are for: executorch>=1.0 (or a later one), or edgewise; default: "
        "every release of ExecuTorch where that costs nothing.",
    ),
]


@dataclass(frozen=True)
class Way:
    """One way to compile a model. backend: a name, or several with commas between them."""

    backend: str = DEFAULT
    quantize: str | None = None
    keep_float: tuple[str, ...] = ()
    group_size: int | None = None
    runtime: str | None = None
    methods: tuple[str, ...] | None = None
    budget: Budget | None = None
    system_config: str | None = None
    memory_mode: str | None = None
    quantized_inputs: bool = False
    quantized_outputs: bool = False

    def __str__(self) -> str:
        return self.backend + (f" {self.quantize}" if self.quantize else "")


@dataclass(frozen=True)
class FolderOptions:
    """Of a folder of Hugging Face's; see `edgewise.compile`."""

    task: str | None
    sequence_length: int | None


@dataclass(frozen=True)
class Compiled:
    """seconds: of export, quantization, lowering and writing together."""

    program: ExecutorchProgramManager
    seconds: float


def check(way: Way, calibration: Sequence[str] | None) -> Way:
    """The way, if it can be gone. CliError or ValueError if not, before anything is imported
    or made: with several ways, none is compiled before all were checked."""
    from edgewise.quantize.schemes import AUTO, scheme_of
    from edgewise.registry import NO_BACKEND, checked_targets, scheme_hint, scheme_problem
    from edgewise.releases import target_of

    names = checked_targets("--backend", way.backend)
    way = replace(way, backend=",".join(names))
    target_of(way.runtime)
    for option, section in (
        ("--system-config", way.system_config),
        ("--memory-mode", way.memory_mode),
    ):
        if section is not None and not any(name.startswith("ethos-u") for name in names):
            raise CliError(
                f"[{option}] is for Ethos-U; got --backend {way.backend}; "
                f"try --backend ethos-u55-128"
            )
    if way.quantize is None:
        return way
    if way.backend == NO_BACKEND:
        raise CliError(
            f"[--quantize] backend none computes in floating point: the runtime's own kernels have "
            f"no integer forms; got {way.quantize}; try --backend {DEFAULT}"
        )
    problem = None if way.quantize == AUTO else scheme_problem(names[0], way.quantize)
    if problem:
        hint = scheme_hint(names[0], "--quantize int8")
        raise CliError(f"[--quantize] {problem}; got {way.quantize}; try {hint}")
    if calibrates(way.quantize) and not calibration:
        raise CliError(
            f"[--calibration] {way.quantize} needs data such as the model will see; got none; "
            f"try --calibration FOLDER of pictures, or data.npy, or --quantize int8-dynamic"
        )
    if way.quantize != AUTO:
        scheme_of(way.quantize, way.group_size)
    return way


def calibrates(quantize: str | None) -> bool:
    """Whether the way to quantize looks at calibration data."""
    from edgewise.quantize.schemes import AUTO, SCHEMES

    return quantize == AUTO or (quantize is not None and SCHEMES[quantize].needs_calibration)


def check_used(ways: Sequence[Way], calibration: Sequence[str] | None) -> None:
    """CliError for calibration data that no way looks at."""
    if calibration and not any(calibrates(way.quantize) for way in ways):
        raise CliError(
            f"[--calibration] is for --quantize int8; got {', '.join(map(str, ways))}; "
            f"try --quantize int8, or leave it out"
        )


def scheme(name: str) -> str | None:
    """The option's value for `edgewise.compile`. CliError if there is no such scheme."""
    from edgewise.quantize.schemes import AUTO, SCHEMES

    if name == "none":
        return None
    if name != AUTO and name not in SCHEMES:
        raise CliError(
            f"[--quantize] must be one of {', '.join(['none', 'auto', *SCHEMES])}; got {name!r}"
        )
    return name


def methods_from(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """The option's values for `edgewise.compile`: "none" alone stands for no method."""
    if names is None:
        return None
    return () if list(names) == ["none"] else tuple(names)


def data(
    model: LoadedModel,
    sources: Sequence[str] | None,
    how: Preprocessing,
    limit: int | None = None,
    option: str = "--input",
) -> list[tuple[Any, ...]]:
    """Batches of inputs of the model, from the sources that were given by `option`."""
    found = batches(sources, model.specs(), how, option=option)[:limit]
    return [model.nested(batch.values) for batch in found]


def raw_data(sources: Sequence[str] | None, limit: int) -> list[Any] | None:
    """What a folder's processor takes: lines of .txt files, and the pictures and sounds of files
    and folders. CliError for other files."""
    if not sources:
        return None
    found: list[Any] = []
    for source in map(Path, sources):
        if not source.exists():
            raise CliError(f"[--calibration] no such file: {source}")
        for path in sorted(source.iterdir()) if source.is_dir() else [source]:
            if path.suffix == ".txt":
                found += [line for line in path.read_text("utf-8").splitlines() if line.strip()]
            elif is_image(path) or is_sound(path):
                found.append(path)
            elif not source.is_dir():
                raise CliError(
                    f"[--calibration] a folder's model takes lines of .txt files, pictures or "
                    f"sounds; got {path}"
                )
    if not found:
        raise CliError(f"[--calibration] no texts, pictures or sounds in {', '.join(sources)}")
    return found[:limit]


def compile_one(
    model: LoadedModel,
    way: Way,
    out: Output,
    calibration: Sequence[Any] | None = None,
    folder: FolderOptions | None = None,
) -> Compiled:
    """The program, with progress shown. Raises what `edgewise.compile` does."""
    import edgewise

    hush()
    if not calibrates(way.quantize):
        calibration = None
    total = len(calibration) if calibration else None
    start = time.perf_counter()
    with out.progress(f"compiling for {way}", total) as advance:

        def counted() -> Iterator[Any]:
            for batch in calibration or ():
                yield batch
                advance(1)

        program = edgewise.compile(
            _checked(model, way),
            model.inputs,
            example_kwargs=model.keywords or None,
            task=folder.task if folder else None,
            sequence_length=folder.sequence_length if folder else None,
            backend=way.backend,
            system_config=way.system_config,
            memory_mode=way.memory_mode,
            dynamic_shapes=model.dynamic_shapes,
            quantize=way.quantize,
            calibration=counted() if calibration else None,
            keep_float=way.keep_float if way.quantize else (),
            methods=way.methods,
            group_size=way.group_size if way.quantize else None,
            budget=way.budget,
            quantized_inputs=way.quantized_inputs,
            quantized_outputs=way.quantized_outputs,
            runtime=way.runtime,
            verbose=False,
        )
    return Compiled(program, time.perf_counter() - start)


def _checked(model: LoadedModel, way: Way) -> Any:
    """The model. CliError for a saved program and what quantizes layers, which it has no more."""
    import torch

    from edgewise.quantize.schemes import AUTO, SCHEMES

    given: Any = model.model
    if way.quantize is None or isinstance(given, (torch.nn.Module, Path)):
        return model.model
    if way.quantize == AUTO or not SCHEMES[way.quantize].uses_pt2e or way.keep_float:
        raise CliError(
            f"[{model.name}] {'--keep-float' if way.keep_float else way.quantize} is of layers, "
            f"which an exported program has no more; try model.py:make, or --quantize int8"
        )
    return model.model


def hush() -> None:
    """What torch says of other processors, and of what it raises anyway."""
    import logging
    import warnings

    import torch  # noqa: F401  # which sets up its loggers

    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    # Of a class that torch itself asks for where it copies a program.
    warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec")
    for name in ("torch", "torchao"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
