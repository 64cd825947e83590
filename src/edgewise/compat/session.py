"""`executorch.export`'s session: a model's way to its file, by a recipe."""

from __future__ import annotations

import copy
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_manager import PassManager

from edgewise.compat.exir import (
    EdgeProgramManager,
    ExecutorchProgramManager,
    to_edge,
    to_edge_transform_and_lower,
)
from edgewise.compat.recipes import ExportRecipe, LoweringRecipe, QuantizationRecipe, StageType
from edgewise.compat.scripts import calibrate_and_quantize, save_pte_program
from edgewise.inspect.record import ProgramRecord

__all__ = ["ExportSession", "PipelineArtifact", "Stage", "export"]

_LOG = logging.getLogger(__name__)

_EAGER_ONLY = (StageType.SOURCE_TRANSFORM, StageType.QUANTIZE)
_LOWERED = (StageType.TO_EDGE_TRANSFORM_AND_LOWER, StageType.TO_BACKEND)
_EDGE = (*_LOWERED, StageType.EDGE_PROGRAM_MANAGER_TRANSFORM, StageType.TO_EDGE)
_BEFORE: Mapping[StageType, tuple[StageType, ...]] = {
    StageType.SOURCE_TRANSFORM: (),
    StageType.QUANTIZE: (StageType.SOURCE_TRANSFORM,),
    StageType.TORCH_EXPORT: _EAGER_ONLY,
    StageType.TO_EDGE_TRANSFORM_AND_LOWER: (StageType.TORCH_EXPORT,),
    StageType.TO_EDGE: (StageType.TORCH_EXPORT,),
    StageType.EDGE_PROGRAM_MANAGER_TRANSFORM: (StageType.TO_EDGE,),
    StageType.TO_BACKEND: (StageType.TO_EDGE, StageType.EDGE_PROGRAM_MANAGER_TRANSFORM),
    StageType.TO_EXECUTORCH: (*_LOWERED, StageType.EDGE_PROGRAM_MANAGER_TRANSFORM),
}
"""By stage those that it may follow."""
_NEVER_FIRST = (
    StageType.EDGE_PROGRAM_MANAGER_TRANSFORM,
    StageType.TO_BACKEND,
    StageType.TO_EXECUTORCH,
)


@dataclass
class PipelineArtifact:
    """What a stage made, and how long it took: `context["duration_ms"]`."""

    data: Any
    context: dict[str, Any]

    def add_context(self, key: str, value: Any) -> None:
        """Says something under a name."""
        self.context[key] = value

    def get_context(self, key: str, default: Any = None) -> Any:
        """What is said under a name."""
        return self.context.get(key, default)

    def copy_with_new_data(self, new_data: Any) -> PipelineArtifact:
        """The same context, something else that was made."""
        return PipelineArtifact(new_data, dict(self.context))


class Stage(ABC):
    """A step of one's own, for `ExportSession.register_stage`."""

    _artifact: PipelineArtifact | None = None

    @property
    @abstractmethod
    def stage_type(self) -> Any:
        """Its name in `pipeline_stages`."""

    @property
    @abstractmethod
    def valid_predecessor_stages(self) -> list[Any]:
        """What it may follow: anything if this is empty."""

    @property
    @abstractmethod
    def can_start_pipeline(self) -> bool:
        """Whether it may be the first."""

    @abstractmethod
    def run(self, artifact: PipelineArtifact) -> None:
        """Makes `_artifact` of what the stage before made."""

    def get_artifacts(self) -> PipelineArtifact:
        """What `run` made. RuntimeError before that."""
        if self._artifact is None:
            raise RuntimeError(f"[{type(self).__name__}] Stage not executed; try run(artifact)")
        return self._artifact


def export(
    model: Any,
    example_inputs: Any = None,
    export_recipe: ExportRecipe | None = None,
    name: str | None = None,
    dynamic_shapes: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    artifact_dir: str | None = None,
    generate_etrecord: bool = False,
) -> ExportSession:
    """A session that has run: see `ExportSession`."""
    session = ExportSession(
        model,
        example_inputs,
        export_recipe,
        name,
        dynamic_shapes,
        constant_methods,
        artifact_dir,
        generate_etrecord,
    )
    session.export()
    return session


class ExportSession:
    """A model's way to its file, by a recipe.

    model: a module, a graph module that is quantized already, an exported program, the path of
        one, or a dict of them by method.
    example_inputs: a list of inputs' tuples, or a dict of such lists by method. The first is what
        the model is exported with, all are what it is calibrated with. Not for exported programs.
    dynamic_shapes: a method's, or a dict by method.
    name, artifact_dir, generate_etrecord: of no effect; each program has a record.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Any = None,
        export_recipe: ExportRecipe | None = None,
        name: str | None = None,
        dynamic_shapes: Any = None,
        constant_methods: Mapping[str, Any] | None = None,
        artifact_dir: str | None = None,
        generate_etrecord: bool = False,
    ) -> None:
        del name, artifact_dir, generate_etrecord
        if isinstance(model, str):
            model = torch.export.load(model)
        self._models: Any = model if isinstance(model, dict) else {"forward": model}
        self._kind = _kind_of(next(iter(self._models.values()), None))
        if example_inputs is None and self._kind != "ExportedProgram":
            raise ValueError(
                f"[ExportSession] example_inputs are required when model is {self._kind}; "
                "got none; try a list of tuples of tensors"
            )
        self._example_inputs = _by_method(example_inputs, self._models)
        self._dynamic_shapes = _by_method(dynamic_shapes, self._models)
        self._constant_methods = constant_methods
        self._recipe = export_recipe or ExportRecipe()
        self._stages = list(self._recipe.pipeline_stages or self._default_stages())
        self._registered: dict[Any, Stage] = {}
        self._made: dict[Any, PipelineArtifact] = {}

    def _default_stages(self) -> list[StageType]:
        stages = list(_EAGER_ONLY) if self._kind == "nn.Module" else []
        if self._kind != "ExportedProgram":
            stages.append(StageType.TORCH_EXPORT)
        return [*stages, StageType.TO_EDGE_TRANSFORM_AND_LOWER, StageType.TO_EXECUTORCH]

    def register_stage(self, stage_type: Any, stage: Stage) -> None:
        """A stage of one's own, or in the place of a known one."""
        self._registered[stage_type] = stage

    def export(self) -> None:
        """Runs the recipe's stages. ValueError for stages that do not follow each other."""
        self._check_stages()
        known: Mapping[Any, Callable[[Any], Any]] = {
            StageType.SOURCE_TRANSFORM: self._transform_source,
            StageType.QUANTIZE: self._quantize,
            StageType.TORCH_EXPORT: self._export,
            StageType.TO_EDGE_TRANSFORM_AND_LOWER: self._lower,
            StageType.TO_EDGE: self._to_edge,
            StageType.EDGE_PROGRAM_MANAGER_TRANSFORM: self._transform_edge,
            StageType.TO_BACKEND: self._to_backend,
            StageType.TO_EXECUTORCH: self._to_executorch,
        }
        artifact = PipelineArtifact(
            self._models,
            {
                "example_inputs": self._example_inputs,
                "dynamic_shapes": self._dynamic_shapes,
                "constant_methods": self._constant_methods,
                "export_recipe": self._recipe,
            },
        )
        for stage in self._stages:
            start = time.perf_counter()
            if stage in self._registered:
                self._registered[stage].run(artifact)
                artifact = self._registered[stage].get_artifacts()
            else:
                artifact = artifact.copy_with_new_data(known[stage](artifact.data))
            artifact.add_context("duration_ms", int((time.perf_counter() - start) * 1e3))
            self._made[stage] = artifact
            _LOG.info("%s took %d ms", stage, artifact.context["duration_ms"])

    def get_stage_artifacts(self) -> dict[Any, PipelineArtifact]:
        """What each stage made."""
        return self._made

    def get_exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """What torch.export made. RuntimeError before that, KeyError without the method."""
        programs = self._made_by((StageType.TORCH_EXPORT,), "Exported program")
        if method_name not in programs:
            raise KeyError(
                f"[get_exported_program] Method name '{method_name}' not found in exported "
                f"programs; try one of {list(programs)}"
            )
        program: ExportedProgram = programs[method_name]
        return program

    def get_edge_program_manager(self) -> EdgeProgramManager:
        """The lowered programs. RuntimeError before they are there."""
        manager: EdgeProgramManager = self._made_by(_EDGE, "Edge program manager")
        return manager

    def get_executorch_program_manager(self) -> ExecutorchProgramManager:
        """The program as it is written to a file. RuntimeError before it is there."""
        manager: ExecutorchProgramManager = self._made_by(
            (StageType.TO_EXECUTORCH,), "Executorch program manager"
        )
        return manager

    def get_executorch_program(self) -> Any:
        """The program as dataclasses."""
        return self.get_executorch_program_manager().executorch_program

    def get_pte_buffer(self) -> bytes:
        """The file's contents."""
        return self.get_executorch_program_manager().buffer

    def save_to_pte(self, output_name: str) -> None:
        """Writes the file; ".pte" is added to a name without it."""
        if not output_name:
            raise AssertionError("[save_to_pte] Need a valid output name; got none")
        save_pte_program(self.get_executorch_program_manager(), output_name)

    def get_example_input(self, method_name: str = "forward") -> tuple[Any, ...]:
        """What a method is exported with. KeyError without it, ValueError for an empty list."""
        if method_name not in self._example_inputs:
            raise KeyError(f"Method name '{method_name}' not found in example inputs")
        if not self._example_inputs[method_name]:
            raise ValueError(f"Example inputs list for method {method_name} is empty")
        inputs: tuple[Any, ...] = self._example_inputs[method_name][0]
        return inputs

    def run_method(
        self, method_name: str = "forward", example_inputs: tuple[Any, ...] | None = None
    ) -> Sequence[Any]:
        """The outputs of the file's method on this machine, by default for the first inputs."""
        from edgewise.compat.runtime import Runtime

        method = Runtime.get().load_program(self.get_pte_buffer()).load_method(method_name)
        chosen = self.get_example_input(method_name) if example_inputs is None else example_inputs
        return method.execute(chosen)

    def print_delegation_info(self) -> None:
        """Prints what runs where, and why, for each method."""
        manager = self._made_by(_LOWERED, "Delegation info")
        for method_name in sorted(manager.methods):
            print(manager.delegation_report(method_name))

    def get_etrecord(self) -> ProgramRecord:
        """The program's record."""
        return self.get_executorch_program_manager().record()

    def _check_stages(self) -> None:
        where = "[ExportSession]"
        done: tuple[StageType, ...] = {
            "GraphModule": _EAGER_ONLY,
            "ExportedProgram": (*_EAGER_ONLY, StageType.TORCH_EXPORT),
        }.get(self._kind, ())
        found = [stage.name for stage in self._stages if stage in done]
        if found:
            raise ValueError(
                f"{where} Cannot run {', '.join(found)} stage(s) with {self._kind} input: that is "
                "done already; try pipeline_stages without them"
            )
        before: Any = None
        for stage in self._stages:
            own = self._registered.get(stage)
            if own is None and stage not in _BEFORE:
                raise ValueError(
                    f"{where} Stage {stage} not found; try register_stage(...) before export()"
                )
            allowed = own.valid_predecessor_stages if own else _BEFORE[stage]
            starts = own.can_start_pipeline if own else stage not in _NEVER_FIRST
            if before is None and not starts:
                raise ValueError(f"{where} Stage {stage} cannot start a pipeline; try one before")
            if before is not None and (allowed or not own) and before not in allowed:
                raise ValueError(
                    f"{where} Invalid transition from {before} to {stage}; try one of "
                    f"{[str(one) for one in allowed]} before it"
                )
            before = stage

    def _made_by(self, stages: tuple[StageType, ...], what: str) -> Any:
        found = next((self._made[stage] for stage in stages if stage in self._made), None)
        if found is None:
            raise RuntimeError(
                f"[ExportSession] {what} is not initialized: no stage has made it; "
                f"try export() with one of {[one.value for one in stages]}"
            )
        return found.data

    def _inputs_of(self, method: str) -> list[tuple[Any, ...]]:
        inputs: list[tuple[Any, ...]] = self._example_inputs.get(method) or []
        if not inputs:
            raise ValueError(
                f"[ExportSession] Example inputs for method {method} not found or empty; "
                f"try example_inputs={{'{method}': [(tensor, ...)]}}"
            )
        return inputs

    @property
    def _lowering(self) -> LoweringRecipe:
        return self._recipe.lowering_recipe or LoweringRecipe()

    @property
    def _quantization(self) -> QuantizationRecipe:
        return self._recipe.quantization_recipe or QuantizationRecipe()

    def _transform_source(self, models: dict[str, nn.Module]) -> dict[str, nn.Module]:
        configs = self._quantization.ao_quantization_configs or ()
        if not configs:
            return models
        if len(configs) > 1:
            raise ValueError(
                "[ExportSession] multiple quantization configs of torchao are disallowed: a second "
                f"one would find layers that the first has changed; got {len(configs)}; "
                "try one with a filter_fn"
            )
        from torchao.quantization import quantize_
        from torchao.utils import unwrap_tensor_subclass

        changed = models if self._recipe.source_transform_in_place else copy.deepcopy(models)
        for model in changed.values():
            quantize_(model, configs[0].ao_base_config, configs[0].filter_fn)
            unwrap_tensor_subclass(model)
        return changed

    def _quantize(self, models: dict[str, nn.Module]) -> dict[str, nn.Module]:
        quantizers = self._quantization.quantizers
        if not quantizers:
            return models
        from torchao.quantization.pt2e.quantizer import ComposableQuantizer

        quantizer = quantizers[0] if len(quantizers) == 1 else ComposableQuantizer(quantizers)
        return {
            name: calibrate_and_quantize(
                self._exported(name, model),
                self._inputs_of(name),
                quantizer,
            )
            for name, model in models.items()
        }

    def _export(self, models: dict[str, nn.Module]) -> dict[str, ExportedProgram]:
        programs = {}
        for name, model in models.items():
            program = self._exported(name, model)
            for change in self._recipe.aten_transform_passes or ():
                _check_callable("aten_transform_passes", change)
                program = change(name, program)
            programs[name] = program
        return programs

    def _exported(self, name: str, model: nn.Module) -> ExportedProgram:
        with torch.no_grad():
            return torch.export.export(
                model,
                self._inputs_of(name)[0],
                dynamic_shapes=self._dynamic_shapes.get(name),
                strict=self._recipe.strict,
            )

    def _lower(self, programs: dict[str, ExportedProgram]) -> EdgeProgramManager:
        return to_edge_transform_and_lower(
            programs,
            self._edge_passes(programs),
            self._lowering.partitioners or None,
            self._constant_methods,
            self._lowering.edge_compile_config,
        )

    def _to_edge(self, programs: dict[str, ExportedProgram]) -> EdgeProgramManager:
        return to_edge(programs, self._constant_methods, self._lowering.edge_compile_config)

    def _transform_edge(self, manager: EdgeProgramManager) -> EdgeProgramManager:
        programs = {name: manager.exported_program(name) for name in manager.methods}
        changed = manager.transform(self._edge_passes(programs))
        for choose in self._lowering.edge_manager_transform_passes or ():
            passes = choose(changed)
            changed = changed.transform(passes) if passes else changed
        return changed

    def _to_backend(self, manager: EdgeProgramManager) -> EdgeProgramManager:
        partitioners = self._lowering.partitioners
        return manager.to_backend(partitioners) if partitioners else manager

    def _to_executorch(self, manager: EdgeProgramManager) -> ExecutorchProgramManager:
        return manager.to_executorch(self._recipe.executorch_backend_config)

    def _edge_passes(self, programs: Mapping[str, ExportedProgram]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name, program in programs.items():
            for choose in self._lowering.edge_transform_passes or ():
                _check_callable("edge_transform_passes", choose)
                passes = choose(name, program)
                listed = [passes] if isinstance(passes, PassManager) else passes
                found.setdefault(name, []).extend(listed)
        return found


def _kind_of(model: Any) -> str:
    for kind, name in (
        (ExportedProgram, "ExportedProgram"),
        (GraphModule, "GraphModule"),
        (nn.Module, "nn.Module"),
    ):
        if isinstance(model, kind):
            return name
    raise TypeError(
        f"[ExportSession] Unsupported model type: got {type(model).__name__}; try an nn.Module"
    )


def _by_method(given: Any, models: Mapping[str, Any]) -> dict[str, Any]:
    """By the methods' names; what else is given is the only method's."""
    if given is None:
        return {}
    if isinstance(given, dict) and given.keys() <= models.keys():
        return given
    if len(models) > 1:
        raise ValueError(
            f"[ExportSession] example_inputs and dynamic_shapes of several methods must be dicts "
            f"by method; got {type(given).__name__} {list(given)[:4]}; try {list(models)} as keys"
        )
    return {next(iter(models)): given}


def _check_callable(option: str, given: Any) -> None:
    if not callable(given):
        raise ValueError(
            f"[ExportRecipe] {option} must be callable; got {type(given).__name__}; "
            "try a function of the method's name and its program"
        )
