"""One call from a model to a program."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from edgewise.edge.export import export_module
from edgewise.emit import ExecutorchBackendConfig
from edgewise.lowering.managers import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.partition.report_data import Unquantized
from edgewise.quantize.budget import Budget
from edgewise.quantize.schemes import AUTO, Scheme, scheme_of
from edgewise.registry import (
    DEFAULT,
    NO_BACKEND,
    checked_target,
    partitioner_for,
    quantizer_for,
    scheme_problem,
)


def compile(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any] | torch.Tensor | None = None,
    *,
    backend: str = DEFAULT,
    dynamic_shapes: Any = None,
    quantize: str | None = None,
    calibration: Iterable[Any] | None = None,
    keep_float: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    group_size: int | None = None,
    budget: Budget | None = None,
    runtime: str | None = None,
    verbose: bool = True,
    missing_kernels: str = "error",
) -> ExecutorchProgramManager:
    """Exports, lowers and writes a model; quantizes it before if asked.

    model: a module (put into evaluation mode for the export), or a program exported
    already. example_inputs: a tuple of inputs; needed for a module. backend: "xnnpack", a
    target of Ethos-U ("ethos-u55-128", ...) or of Neutron ("neutron-imxrt700"; with "-reference"
    behind it for the host, without NXP's converter), one of a backend that another package brings
    (docs/backends.md), or "none" for the runtime's own kernels alone.
    dynamic_shapes: as for `torch.export.export`.

    Raises ValueError or TypeError for arguments that do not fit, ExportError if torch cannot
    export the model, other EdgewiseErrors if it cannot be lowered.

    quantize: a scheme: "int8" (static; needs calibration), "int8-dynamic", "int8-weight",
    "int4-dynamic" or "int4-weight" (see `edgewise.quantize.SCHEMES`); or "auto": ways are tried,
    the fastest first, until one keeps the `budget` (by default a cosine of 0.99).
    calibration: batches of inputs, each a tuple, or a tensor for one input. keep_float: names of
    modules that are not quantized. methods: names of `edgewise.quantize.methods` (None: what costs
    nothing when the program runs; []: rounding alone). group_size: weights that share a scale, for
    4 bits.

    runtime: what the file is for: None for every release of ExecuTorch from 1.0 on where that
    costs neither size nor speed (the report marks the rest), "executorch>=1.0" for those from then
    on, whatever it costs, "edgewise" for this project's runtime (see docs/releases.md).
    missing_kernels: "error", "warn" or "ignore": what to do about operators that the runtime has no
    kernel for, nor this process; see docs/custom-operators.md.

    verbose: print the delegation report (what runs where, and why not elsewhere) to
    standard error, and a bar while calibrating. The result has `save`, `buffer` and
    `delegation_report`.
    """
    target = checked_target("compile", backend)
    _check_order(model, example_inputs)
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
    partitioners = [] if target == NO_BACKEND else [partitioner_for(target)]
    example_inputs = _checked_inputs(example_inputs)
    if quantize == AUTO:
        return _tuned(
            *_module_to_quantize(model, example_inputs, target),
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
            example_inputs,
            target,
            scheme,
            calibration=calibration,
            keep_float=keep_float,
            methods=methods,
            dynamic_shapes=dynamic_shapes,
            progress=verbose,
        )
    elif isinstance(model, ExportedProgram):
        exported = model
    else:
        exported = export_module(*_checked(model, example_inputs), dynamic_shapes)
    edge = to_edge_transform_and_lower(exported, partitioner=partitioners)
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
        _warn_of_floats(exported, scheme, left)
    if verbose:
        _tell(program)
    return program


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


def _check_order(model: Any, example_inputs: Any) -> None:
    swapped = isinstance(example_inputs, (torch.nn.Module, ExportedProgram))
    if swapped and not isinstance(model, (torch.nn.Module, ExportedProgram)):
        raise TypeError(
            f"[compile] the model comes first; got {type(model).__name__}, then "
            f"{type(example_inputs).__name__}; try compile(model, example_inputs)"
        )


def _check_device(model: torch.nn.Module, inputs: Sequence[Any]) -> None:
    for what, tensors, hint in (
        ("the model", [*model.parameters(), *model.buffers()], "model.cpu()"),
        ("example_inputs", [x for x in inputs if isinstance(x, torch.Tensor)], "x.cpu()"),
    ):
        elsewhere = next((str(one.device) for one in tensors if one.device.type != "cpu"), None)
        if elsewhere == "meta":
            hint = "real tensors: there are no values on this device"
        if elsewhere is not None:
            raise ValueError(
                f"[compile] {what} must be in the CPU's memory; got {elsewhere}; try {hint}"
            )


def _checked(model: Any, example_inputs: Sequence[Any] | None) -> tuple[torch.nn.Module, Any]:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"[compile] model must be a torch.nn.Module or an ExportedProgram; "
            f"got {type(model).__name__}{_model_hint(model)}"
        )
    if example_inputs is None:
        raise TypeError(
            "[compile] example_inputs must be given for a module; got None; "
            "try a tuple of tensors, one for each argument of forward"
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            f"[compile] model must be Python's module, which torch.export can trace; got "
            f"{type(model).__name__} of torch.jit; try the torch.nn.Module that it was made from"
        )
    _check_device(model, example_inputs)
    return model, tuple(example_inputs)


def _model_hint(model: Any) -> str:
    if isinstance(model, type):
        return f"; try an instance, such as {model.__name__}(...)"
    if isinstance(model, Mapping):
        return "; try the module, after model.load_state_dict(...)"
    if isinstance(model, (str, Path)):
        if str(model).endswith(".pt2"):
            return f"; try torch.export.load({str(model)!r})"
        return "; try the module itself, with its weights loaded"
    if callable(model):
        return "; try a torch.nn.Module whose forward calls it"
    return ""


def _checked_inputs(inputs: Any) -> tuple[Any, ...] | None:
    """As a tuple; a tensor alone is the only input. TypeError for what torch does not export."""
    if inputs is None:
        return None
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    rule = "[compile] example_inputs must be a tuple with one item for each argument of forward"
    if isinstance(inputs, Mapping):
        raise TypeError(f"{rule}; got {type(inputs).__name__}; try tuple(inputs.values())")
    if isinstance(inputs, np.ndarray):
        raise TypeError(f"{rule}; got ndarray; try (torch.from_numpy(x),)")
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise TypeError(f"{rule}; got {type(inputs).__name__}; try (torch.randn(1, 3, 224, 224),)")
    for index, one in enumerate(inputs):
        if isinstance(one, np.ndarray):
            raise TypeError(
                f"[compile] example_inputs must be tensors, or numbers; got ndarray for input "
                f"{index}; try torch.from_numpy"
            )
    return tuple(inputs)


def _warn_of_floats(exported: ExportedProgram, scheme: Scheme, left: Sequence[Unquantized]) -> None:
    """Says that a scheme changed nothing, or which layers with weights it left alone."""
    from edgewise.quantize.left import quantizes

    layers = [one for one in left if one.has_weights]
    if not quantizes(exported):
        found, what = left, "changed nothing: this is the float program"
    elif layers:
        found, what = layers, f"left {len(layers)} layers with weights in floating point"
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


def _quantized(
    model: Any, example_inputs: Any, target: str, scheme: Scheme, **options: Any
) -> tuple[ExportedProgram, list[Unquantized]]:
    from edgewise.quantize.flow import quantize_and_tell

    model, example_inputs = _module_to_quantize(model, example_inputs, target)
    problem = scheme_problem(target, scheme.name)
    if problem:
        raise ValueError(f"[compile] {problem}; got {scheme.name}; try quantize='int8'")
    return quantize_and_tell(model, example_inputs, scheme, quantizer_for(target), **options)


def _module_to_quantize(model: Any, example_inputs: Any, target: str) -> tuple[Any, Any]:
    """The module and its inputs, checked."""
    if isinstance(model, ExportedProgram):
        raise TypeError(
            "[compile] model must be a torch.nn.Module to be quantized; got an ExportedProgram; "
            "try the module that it was exported from"
        )
    if target == NO_BACKEND:
        raise ValueError(
            f"[compile] quantize needs a backend with a quantizer; got {target!r}; "
            f"try backend={DEFAULT!r}"
        )
    return _checked(model, example_inputs)
