"""One call from a model to a program."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewise.edge.arguments import argument_names, arguments_of, note_arguments
from edgewise.edge.export import export_module, open_sizes
from edgewise.emit import ExecutorchBackendConfig
from edgewise.lowering.compile_inputs import Call, check_order, checked_call, checked_model
from edgewise.lowering.managers import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.lowering.quantized_io import Chosen, constants_of, quantize_io
from edgewise.partition.report_data import Unquantized
from edgewise.quantize.budget import Budget
from edgewise.quantize.schemes import AUTO, Scheme, scheme_of
from edgewise.registry import (
    DEFAULT,
    NO_BACKEND,
    Backend,
    backend_for,
    checked_targets,
    quantizer_for,
    scheme_hint,
    scheme_problem,
)


def compile(
    model: torch.nn.Module | ExportedProgram | str | Path,
    example_inputs: Sequence[Any] | torch.Tensor | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    backend: str | Sequence[str] = DEFAULT,
    system_config: str | None = None,
    memory_mode: str | None = None,
    task: str | None = None,
    sequence_length: int | None = None,
    dynamic_shapes: Any = None,
    quantize: str | None = None,
    calibration: Iterable[Any] | None = None,
    keep_float: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    group_size: int | None = None,
    budget: Budget | None = None,
    quantized_inputs: Chosen = False,
    quantized_outputs: Chosen = False,
    runtime: str | None = None,
    verbose: bool = True,
    missing_kernels: str = "error",
) -> ExecutorchProgramManager:
    """Exports, lowers and writes a model; quantizes it before if asked.

    model: a module (put into evaluation mode for the export), a program exported already, or a
    local folder of Hugging Face's with `task` (see docs/huggingface.md). example_inputs: a tuple of
    inputs, tensors or nestings of them; example_kwargs: those given by name. One of the two is
    needed for a module. backend: "xnnpack", a target of Ethos-U ("ethos-u55-128", ...) or of
    Neutron ("neutron-imxrt700"; with "-reference" behind it for the host, without NXP's converter),
    one of a backend that another package brings (docs/backends.md), or "none" for the runtime's own
    kernels alone. Several, in a list or with commas between them
    ("ethos-u55-128,xnnpack"), are asked in order: the second takes what the first refuses.
    dynamic_shapes: as for `torch.export.export`. system_config, memory_mode: sections of Vela's
    configuration file, for Ethos-U; None for the target's default.

    task: what a folder's model is for: "text-classification", "feature-extraction", ... (see
    `edgewise.huggingface.TASKS`). sequence_length: tokens of a text, samples of a sound.

    Raises ValueError or TypeError for arguments that do not fit, ExportError if torch cannot
    export the model, other EdgewiseErrors if it cannot be lowered.

    quantize: a scheme: "int8" (static; needs calibration), "int8-dynamic", "int8-weight",
    "int4-dynamic" or "int4-weight" (see `edgewise.quantize.SCHEMES`); or "auto": ways are tried,
    the fastest first, until one keeps the `budget` (by default a cosine of 0.99).
    calibration: batches of inputs, each a tuple, or a tensor for one input; with example_kwargs
    each a dict of them, or a pair of tuple and dict; for a folder texts, pictures or sounds.
    keep_float: names of modules that are not quantized. methods: names of
    `edgewise.quantize.methods` (None: what costs nothing when the program runs; []: rounding
    alone). group_size: weights that share a scale, for
    4 bits.

    quantized_inputs, quantized_outputs: which inputs and outputs of a quantized model are integers
    in the program, as a sensor gives them and the next stage takes them: indices, or True for
    every one that is quantized. Constant methods of the file tell what an integer stands for:
    `input0_scale`, `input0_zp`, `output0_scale`, ...

    runtime: what the file is for: None for every release of ExecuTorch from 1.0 on where that
    costs neither size nor speed (the report marks the rest), "executorch>=1.0" for those from then
    on, whatever it costs, "edgewise" for this project's runtime (see docs/releases.md).
    missing_kernels: "error", "warn" or "ignore": what to do about operators that the runtime has no
    kernel for, nor this process; see docs/custom-operators.md.

    verbose: print the delegation report (what runs where, and why not elsewhere) to
    standard error, and a bar while calibrating. The result has `save`, `buffer` and
    `delegation_report`.
    """
    targets = checked_targets("compile", backend)
    target = targets[0]
    asked = _asked(targets, {"system_config": system_config, "memory_mode": memory_mode})
    check_order(model, example_inputs)
    if quantize is None:
        _check_unused(
            calibration=calibration,
            keep_float=keep_float,
            methods=methods,
            group_size=group_size,
            budget=budget,
        )
    _check_budget(quantize, budget, methods=methods, group_size=group_size)
    config = ExecutorchBackendConfig(missing_kernels=missing_kernels, runtime=runtime)
    partitioners = [one.partitioner(name) for name, one in asked.items()]
    pipeline = None
    if isinstance(model, (str, Path)) and Path(model).is_dir():
        _check_folder(example_inputs, example_kwargs, dynamic_shapes)
        # A layer above, looked up when it is asked for.
        huggingface = importlib.import_module("edgewise.huggingface")
        pipeline = huggingface.open_folder(model, task, sequence_length)
        model, example_kwargs = pipeline.module, pipeline.example_kwargs
        calibration = None if calibration is None else map(pipeline.prepare, calibration)
    elif task is not None or sequence_length is not None:
        raise ValueError(
            "[compile] task and sequence_length are for a folder of Hugging Face's; got "
            f"{type(model).__name__}; try the folder's path, or without them"
        )
    call = checked_call(example_inputs, example_kwargs)
    if quantize == AUTO:
        if quantized_inputs is not False or quantized_outputs is not False:
            raise ValueError(
                "[compile] quantize='auto' compares programs by floats; got quantized_inputs or "
                "quantized_outputs; try them with the scheme that it chose"
            )
        if len(targets) > 1:
            raise ValueError(
                f"[compile] quantize='auto' tries one backend; got {','.join(targets)}; "
                f"try a scheme by name"
            )
        module, call = _module_to_quantize(model, call, target)
        return _tuned(
            module,
            call.inputs,
            example_kwargs=call.keywords,
            calibration=calibration or (),
            budget=budget,
            backend=target,
            keep_float=keep_float,
            dynamic_shapes=dynamic_shapes,
            runtime=runtime,
            missing_kernels=missing_kernels,
            verbose=verbose,
        )
    left: list[Unquantized] = []
    scheme = None if quantize is None else scheme_of(quantize, group_size)
    if scheme is not None:
        exported, left = _quantized(
            model,
            call,
            target,
            scheme,
            asked[target].quantizer(target) if target in asked else None,
            calibration=calibration,
            keep_float=keep_float,
            methods=methods,
            dynamic_shapes=dynamic_shapes,
            progress=verbose,
        )
    elif isinstance(model, ExportedProgram):
        exported = model
    else:
        module, call = checked_model(model, call)
        exported = export_module(module, call.inputs, dynamic_shapes, call.keywords)
        note_arguments(exported, argument_names(module, call.inputs, call.keywords))
    constants = {}
    if quantized_inputs is not False or quantized_outputs is not False:
        exported, borders = quantize_io(exported, quantized_inputs, quantized_outputs)
        constants = constants_of(borders)
    edge = to_edge_transform_and_lower(
        exported, partitioner=partitioners, constant_methods=constants
    )
    program = edge.to_executorch(config)
    if scheme is not None:
        report = program.delegation_report()
        report.scheme, report.unquantized = scheme.name, left
        report.settings = {
            "quantize": scheme.name,
            "methods": list(applied_methods(methods, scheme, target)),
            "keep_float": list(keep_float),
            **({} if group_size is None else {"group_size": group_size}),
        }
        _warn_of_floats(exported, scheme, left, told=verbose)
    _warn_of_idle(program, asked, scheme)
    if pipeline is not None:
        program.beside = pipeline.files()
    if verbose:
        _tell(program)
    return program


def _asked(targets: Sequence[str], options: Mapping[str, str | None]) -> dict[str, Backend]:
    """By target, its backend, with the options that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    found: dict[str, Backend] = {}
    for name in targets:
        backend = backend_for(name)
        if backend is not None:
            found[name] = backend
    takers = [name for name, one in found.items() if set(given) <= set(one.options)]
    if given and not takers:
        raise ValueError(
            f"[compile] {' and '.join(given)} are for Ethos-U; got backend="
            f"{','.join(targets)!r}; try backend='ethos-u55-128'"
        )
    for name in takers if given else ():
        found[name] = found[name].configured(given)
    return found


def _warn_of_idle(
    program: ExecutorchProgramManager, asked: Mapping[str, Backend], scheme: Scheme | None
) -> None:
    """Says that an NPU computes nothing where another backend takes what it refuses."""
    used = {node.backend for node in program.delegation_report().nodes if node.partition}
    for name, backend in asked.items():
        if len(asked) > 1 and backend.schemes is not None and backend.delegate_id not in used:
            hint = f"backend={name!r} alone for the reasons"
            if scheme is None:
                hint = "quantize='int8'"
            warnings.warn(f"[compile] {name} computes nothing; try {hint}", stacklevel=3)


def _tell(program: ExecutorchProgramManager) -> None:
    report = program.delegation_report()
    print(report, file=sys.stderr)
    if not report.uses:
        print(f"runs on {report.runs_on}", file=sys.stderr)


def _tuned(
    model: torch.nn.Module, example_inputs: Any, *, verbose: bool, **options: Any
) -> ExecutorchProgramManager:
    """By trials: docs/quantization.md."""
    # It compiles by what is here, and compares: the layer above, looked up when it is asked for.
    choosing: Any = importlib.import_module("edgewise.tuning.choosing")
    program: ExecutorchProgramManager
    program, choice = choosing.choose(model, example_inputs, verbose=verbose, **options)
    report = program.delegation_report()
    report.choice, report.tried = choice.to_dict(), choice.table().splitlines()
    if verbose:
        print(choice.table(), file=sys.stderr)
        _tell(program)
    return program


def _check_budget(quantize: str | None, budget: Any, **unused: Any) -> None:
    if quantize != AUTO:
        if budget is not None:
            raise ValueError(
                f"[compile] budget is for quantize='auto'; got quantize={quantize!r}; "
                f"try quantize='auto'"
            )
        return
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(
            f"[compile] budget must be an edgewise.Budget; got {type(budget).__name__}; "
            f"try edgewise.Budget(cosine=0.99)"
        )
    for name, value in unused.items():
        if value is not None:
            raise ValueError(
                f"[compile] quantize='auto' chooses {name} itself; got {value!r}; "
                f"try without it, or a scheme by name"
            )


def applied_methods(methods: Sequence[str] | None, scheme: Scheme, target: str) -> tuple[str, ...]:
    """Names of what is done beside rounding, in order; `methods` as for `compile`."""
    from edgewise.quantize.methods.registry import methods_of

    quantizer = type(quantizer_for(target)())
    return tuple(method.name for method in methods_of(methods, scheme, quantizer))


def _warn_of_floats(
    exported: ExportedProgram, scheme: Scheme, left: Sequence[Unquantized], *, told: bool
) -> None:
    """Says that a scheme changed nothing, or which layers with weights it left alone. told: whether
    a report that is printed names these."""
    from edgewise.quantize.left import quantizes

    layers = [one for one in left if one.has_weights]
    if not quantizes(exported):
        found, what = left, "changed nothing: this is the float program"
    elif layers and not told:
        count = f"{len(layers)} layer{'s' * (len(layers) != 1)}"
        found, what = layers, f"left {count} with weights in floating point"
    else:
        return
    reasons = dict.fromkeys(f"{one.operator}: {one.reason}" for one in found)
    shown = "; ".join(list(reasons)[:3]) + ("; ..." if len(reasons) > 3 else "")
    text = f"[compile] quantize={scheme.name!r} {what}"
    warnings.warn(f"{text} ({shown})" if shown else text, stacklevel=3)


def _check_unused(**options: Any) -> None:
    for name, value in options.items():
        nothing = value is None or (isinstance(value, (list, tuple)) and not value)
        if not nothing:
            raise ValueError(
                f"[compile] {name} is for quantize; got quantize=None; try quantize='int8'"
            )


def _check_folder(example_inputs: Any, example_kwargs: Any, dynamic_shapes: Any) -> None:
    given = {
        "example_inputs": example_inputs,
        "example_kwargs": example_kwargs,
        "dynamic_shapes": dynamic_shapes,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"[compile] a folder's task says what the model takes; got {name}; try without, "
                f"or the model itself with transformers"
            )


def _quantized(
    model: Any,
    call: Call | None,
    target: str,
    scheme: Scheme,
    quantizer: Any,
    *,
    keep_float: Sequence[str],
    dynamic_shapes: Any,
    **options: Any,
) -> tuple[ExportedProgram, list[Unquantized]]:
    from edgewise.quantize.flow import quantize_and_tell

    names: Sequence[str]
    exported: ExportedProgram | None = None
    if isinstance(model, ExportedProgram):
        _check_has_quantizer(target)
        exported = model if dynamic_shapes is None else None
        model, call, names, dynamic_shapes = _reopened(
            model, call, scheme, keep_float, dynamic_shapes
        )
    else:
        model, call = _module_to_quantize(model, call, target)
        names = argument_names(model, call.inputs, call.keywords)
    problem = scheme_problem(target, scheme.name)
    if problem:
        hint = scheme_hint(target, "quantize='int8'")
        raise ValueError(f"[compile] {problem}; got {scheme.name}; try {hint}")
    quantized, left = quantize_and_tell(
        model,
        call.inputs,
        scheme,
        quantizer or quantizer_for(target),
        keep_float=keep_float,
        dynamic_shapes=dynamic_shapes,
        example_kwargs=call.keywords,
        exported=exported,
        **options,
    )
    note_arguments(quantized, names)
    return quantized, left


def _check_has_quantizer(target: str) -> None:
    if target == NO_BACKEND:
        raise ValueError(
            f"[compile] quantize needs a backend that computes in integers: the runtime's own "
            f"kernels would go to floating point and back around each operator, and be slower than "
            f"without; got backend={target!r}; try backend={DEFAULT!r}, or quantize=None"
        )


def _module_to_quantize(model: Any, call: Call | None, target: str) -> tuple[torch.nn.Module, Call]:
    """The module and its inputs, checked."""
    _check_has_quantizer(target)
    if isinstance(model, ExportedProgram):
        raise TypeError(
            "[compile] model must be a torch.nn.Module for quantize='auto'; got an "
            "ExportedProgram; try the module that it was exported from"
        )
    return checked_model(model, call)


def _reopened(
    program: ExportedProgram,
    call: Call | None,
    scheme: Scheme,
    keep_float: Sequence[str],
    dynamic_shapes: Any,
) -> tuple[torch.nn.Module, Call, Sequence[str], Any]:
    """A program's graph as a module to be quantized: its operators are, its layers are gone."""
    if not scheme.uses_pt2e or keep_float:
        what = "keep_float" if keep_float else f"quantize={scheme.name!r}"
        raise ValueError(
            f"[compile] {what} is of layers, which an exported program has no more; got an "
            f"ExportedProgram; try the module that it was exported from, or quantize='int8'"
        )
    if call is None and program.example_inputs is not None:
        call = Call(*program.example_inputs)
    if call is None:
        raise ValueError(
            "[compile] example_inputs must be given to quantize a program that holds none; got "
            "None; try a tuple of tensors, one for each argument of forward"
        )
    sizes = dynamic_shapes if dynamic_shapes is not None else open_sizes(program)
    return program.module(check_guards=False), call, arguments_of(program), sizes
