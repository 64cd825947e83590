"""From exported programs to a file."""

from __future__ import annotations

import copy
import errno
import functools
import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from edgewise.edge import EdgeCompileConfig, Timings, check, to_edge_program
from edgewise.edge.bodies import graphs_within, transform_bodies
from edgewise.edge.constant_files import restore_marks
from edgewise.edge.graph import REPORTED_AS, is_call
from edgewise.edge.node_errors import as_users, internal_errors
from edgewise.edge.normalize import normalize
from edgewise.edge.open_sizes import sizes_stay_open
from edgewise.edge.program import copy_program, copy_with_modules, recompile_all, sync_outputs
from edgewise.edge.provenance import note
from edgewise.edge.quantization_parameters import check_quantization
from edgewise.edge.recompose import recompose
from edgewise.edge.resolve_symbolic_shapes import resolve_symbolic_shapes
from edgewise.edge.upcast import computes_bfloat16, upcast_bfloat16
from edgewise.emit import Emitted, ExecutorchBackendConfig, MemoryPlan
from edgewise.emit.missing_kernels import missing_kernels
from edgewise.errors import EdgewiseError, PartitionError
from edgewise.files import is_special
from edgewise.inspect.needs import runs_on
from edgewise.lowering.lowered_from import LoweredFrom
from edgewise.lowering.origin import Origin
from edgewise.lowering.quantized_io import Chosen, constants_of, quantize_io
from edgewise.lowering.targeting import emit_for
from edgewise.partition.delegate import add_debug_handles, settle_together
from edgewise.partition.executorch import adapted
from edgewise.partition.report import DelegationReport, ReportBuilder, chosen_report
from edgewise.partition.running import backend_name, is_ours, run_partitioner, whose_code
from edgewise.partition.spec import TAG, Partitioner

if TYPE_CHECKING:
    from edgewise.inspect.needs import Need
    from edgewise.inspect.record import ProgramRecord

logger = logging.getLogger(__name__)

Programs = ExportedProgram | Mapping[str, ExportedProgram]
Partitioners = (
    Partitioner | Sequence[Partitioner] | Mapping[str, Partitioner | Sequence[Partitioner]] | None
)
T = TypeVar("T")
PassType = Callable[[GraphModule], Any]
PassList = PassType | Sequence[PassType]
"""Passes one after the other; a pass manager is one pass."""
Passes = PassList | Mapping[str, PassList] | None


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
) -> EdgeProgramManager:
    """Programs in the edge dialect, all operators decomposed to core ATen.

    programs: one exported program (method "forward"), or several by method name.
    constant_methods: values that methods of these names return.
    """
    config = _checked_config(compile_config)
    given = dict(_by_name(programs))
    manager = _make_edge(given, None, constant_methods, config)
    for program in manager._programs.values():
        recompile_all(program)
    manager._origin = Origin(given, lambda others: to_edge(others, constant_methods, config))
    manager._lowered_from = LoweredFrom.of(given, {}, manager._programs)
    return manager


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Passes = None,
    partitioner: Partitioners = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
) -> EdgeProgramManager:
    """Programs in the edge dialect, with everything delegated that the partitioners take.

    partitioner: one, several (asked in order), or these by method name; a method that is
    not named is not delegated. Operators that a partitioner wants whole are kept whole.
    transform_passes: called on each method's graph module before partitioning.
    """
    config = _checked_config(compile_config)
    _check_passes(transform_passes)
    manager = _make_edge(_by_name(programs), partitioner, constant_methods, config)
    if transform_passes:
        manager = manager.transform(transform_passes)
    return manager._delegate(partitioner)


class EdgeProgramManager:
    """Methods in the edge dialect. Every call returns a new manager; none is changed."""

    def __init__(
        self,
        edge_programs: Programs,
        constant_methods: Mapping[str, Any] | None = None,
        compile_config: EdgeCompileConfig | None = None,
        *,
        reports: Mapping[str, ReportBuilder] | None = None,
        timings: Mapping[str, Timings] | None = None,
        origin: Origin[EdgeProgramManager] | None = None,
    ) -> None:
        self._programs = dict(_by_name(edge_programs))
        self._constant_methods = dict(constant_methods or {})
        self._config = _checked_config(compile_config)
        self._reports = dict(reports or {})
        self._timings = dict(timings or {})
        self._origin = origin
        self._lowered_from: LoweredFrom | None = None
        self._validate()

    def __deepcopy__(self, memo: dict[int, Any]) -> EdgeProgramManager:
        """One whose graphs may be edited apart from this one's. Weights are shared."""
        made = copy.copy(self)
        made._programs = {name: copy_with_modules(p) for name, p in self._programs.items()}
        return made

    @property
    def methods(self) -> set[str]:
        """Names of the methods that compute something."""
        return set(self._programs)

    @property
    def config_methods(self) -> set[str]:
        """Names of the methods that return a constant."""
        return set(self._constant_methods)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The method in the edge dialect. KeyError if there is none of that name."""
        return _of_method("exported_program", self._programs, method_name)

    def delegation_report(self, method_name: str | None = None) -> DelegationReport:
        """Where each node of the method goes, and why not elsewhere.

        Without a name that of the only method, or of "forward"; printed, it shows all methods.
        """
        return chosen_report({name: self._report(name) for name in self._programs}, method_name)

    def _report(self, method_name: str) -> DelegationReport:
        program = self._programs[method_name]
        builder = self._reports.get(method_name)
        if builder is None:
            builder = ReportBuilder(method_name)
            builder.left(list(program.graph.nodes))
            for path, body in graphs_within(program.graph_module):
                builder.left(list(body.graph.nodes), f"{path}/")
        report = builder.finish()
        report.missing_kernels = _missing_kernels(program)
        return report

    @property
    def timings(self) -> Mapping[str, Timings]:
        """Seconds that each stage took, by method."""
        return self._timings

    def transform(
        self, passes: Passes, compile_config: EdgeCompileConfig | None = None
    ) -> EdgeProgramManager:
        """Each pass is called on the method's graph module; it may edit it in place, or
        return a new one (or a PassResult)."""
        programs = {}
        for name, program in self._programs.items():
            chosen = _listed(passes.get(name) if isinstance(passes, Mapping) else passes)
            if chosen:
                program = copy_program(program)
                for one in chosen:
                    program = apply_pass(one, program)
                sync_outputs(program)
                recompile_all(program)
            programs[name] = program
        made = type(self)(
            programs,
            self._constant_methods,
            compile_config or self._config,
            reports=self._reports,
            timings=self._timings,
            origin=self._then(lambda manager: manager.transform(passes, compile_config)),
        )
        made._lowered_from = self._lowered_from
        return made

    def quantize_io(
        self, inputs: Chosen = True, outputs: Chosen = True, method_name: str | None = None
    ) -> EdgeProgramManager:
        """The only method, or the one named, with integers for inputs that are quantized first and
        outputs that are dequantized last: by index, or all that are. See `edgewise.compile`."""
        name = method_name or next(iter(self._programs), "forward")
        if method_name is None and len(self._programs) > 1:
            raise ValueError(
                f"[quantize_io] method_name must be given for several methods; got none; try one "
                f"of {', '.join(sorted(self._programs))}"
            )
        program, borders = quantize_io(self.exported_program(name), inputs, outputs)
        return type(self)(
            {**self._programs, name: program},
            {**self._constant_methods, **constants_of(borders, method_name)},
            self._config,
            reports=self._reports,
            timings=self._timings,
            origin=self._then(lambda manager: manager.quantize_io(inputs, outputs, method_name)),
        )

    def to_backend(self, partitioner: Partitioners) -> EdgeProgramManager:
        """Cuts out what the partitioners tag, and has their backends compile it.

        While the programs are as `to_edge` made them they are lowered from the exported ones
        again, and what a partitioner wants whole is kept, as `to_edge_transform_and_lower` does.
        In programs that were changed since, linear layers are put together again.
        """
        asked = _partitioners_by_method(partitioner, self._programs)
        source = self._lowered_from
        known = source is not None and source.is_worth_it(asked) and source.explains(self._programs)
        if source is None or not known:
            made = self._delegate(partitioner, whole_layers=True)
        else:
            everyone = source.and_then(asked)
            whole = _make_edge(
                source.programs, everyone, self._constant_methods, self._config, type(self)
            )
            made = whole._delegate(everyone)
            made._lowered_from = LoweredFrom.of(source.programs, everyone, made._programs)
        made._origin = self._then(lambda manager: manager.to_backend(partitioner))
        return made

    def _delegate(
        self, partitioner: Partitioners, whole_layers: bool = False
    ) -> EdgeProgramManager:
        """Cuts the programs as they are, or with linear layers put together again."""
        per_method = _partitioners_by_method(partitioner, self._programs)
        programs, reports, timings = {}, dict(self._reports), dict(self._timings)
        upcasts = _upcasts(per_method)
        for name, program in self._programs.items():
            chosen = per_method.get(name, ())
            lowered = copy_with_modules(program) if chosen or upcasts else program
            was_narrow = upcasts and upcast_bfloat16(lowered)
            if not chosen:
                recompile_all(lowered)
                programs[name] = lowered
                continue
            builder = reports[name] = reports.get(name, ReportBuilder(name)).copy()
            builder.upcast |= was_narrow
            start = time.perf_counter()
            with internal_errors("to_backend"), sizes_stay_open(program, "to_backend"):
                if whole_layers:
                    keeper = functools.partial(_keeper, partitioners=chosen, config=self._config)
                    recompose(lowered, keeper)
                _partition(lowered, chosen, builder, "")
                recompile_all(lowered)
            before = timings.get(name, Timings()).stages
            timings[name] = Timings([*before, ("to_backend", time.perf_counter() - start)])
            programs[name] = lowered
            if any(getattr(one, "verbose", False) for one in chosen):
                print(builder.finish(), file=sys.stderr)
        settle_together(programs)
        return type(self)(
            programs,
            self._constant_methods,
            self._config,
            reports=reports,
            timings=timings,
            origin=self._then(lambda manager: manager._delegate(partitioner)),
        )

    def to_executorch(
        self, config: ExecutorchBackendConfig | None = None
    ) -> ExecutorchProgramManager:
        """The program as it is written to a file."""
        if config is not None and not isinstance(config, ExecutorchBackendConfig):
            raise TypeError(
                f"[to_executorch] config must be edgewise's ExecutorchBackendConfig; got "
                f"{_full_name(config)}; try edgewise.ExecutorchBackendConfig(...)"
            )
        for name, program in self._programs.items():
            if any(n.meta.get(TAG) for n in program.graph.nodes if is_call(n)):
                logger.debug("%s has tagged nodes that were not lowered", name)
        start = time.perf_counter()
        with internal_errors("to_executorch"):
            programs, emitted, cost = emit_for(self._programs, config, self._constant_methods)
        seconds = time.perf_counter() - start
        reports = {name: self._report(name) for name in self._programs}
        made = ExecutorchProgramManager(programs, emitted, reports, seconds, origin=self._origin)
        needs = made.needs()
        for report in reports.values():
            report.runs_on, report.uses = runs_on(needs), [str(need) for need in needs]
            report.cost_of_target = cost
        return made

    def _then(
        self, step: Callable[[EdgeProgramManager], EdgeProgramManager]
    ) -> Origin[EdgeProgramManager] | None:
        return self._origin.then(step) if self._origin is not None else None

    def _validate(self) -> None:
        if not self._config._check_ir_validity:
            return
        allowed = [*self._config._core_aten_ops_exception_list, *self._config.preserve_ops]
        for program in self._programs.values():
            check(program, allowed)


class ExecutorchProgramManager:
    """A finished program: its bytes, its memory plan, its report."""

    def __init__(
        self,
        programs: Mapping[str, ExportedProgram],
        emitted: Emitted,
        reports: Mapping[str, DelegationReport],
        emit_seconds: float = 0.0,
        *,
        origin: Origin[EdgeProgramManager] | None = None,
    ) -> None:
        self._programs = dict(programs)
        self._emitted = emitted
        self._reports = dict(reports)
        self.emit_seconds = emit_seconds
        self.origin = origin
        self.beside: Mapping[str, bytes] = {}
        """Files that are saved beside the program, by name: what prepares its inputs."""

    def __deepcopy__(self, memo: dict[int, Any]) -> ExecutorchProgramManager:
        """Itself: nothing changes it, and its weights are views of the model's memory."""
        return self

    @property
    def methods(self) -> set[str]:
        """Names of the methods that compute something."""
        return set(self._programs)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The method in the edge dialect, as it was emitted."""
        return _of_method("exported_program", self._programs, method_name)

    @property
    def executorch_program(self) -> Any:
        """The program as dataclasses that mirror the file."""
        return self._emitted.program

    @property
    def buffer(self) -> bytes:
        """The file's bytes. Copies the weights; `write_to_file` does not."""
        return self._emitted.to_bytes()

    def needs(self) -> list[Need]:
        """What of the file not every release of ExecuTorch has, with the first that has it."""
        from edgewise.inspect.needs import needs_of_program

        return needs_of_program(self._emitted.program, self._emitted.segments.blobs)

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Writes the file's bytes to `open_file`, weights straight from the model's memory."""
        given: Any = open_file
        if not hasattr(given, "write") or isinstance(given, io.TextIOBase):
            raise TypeError(
                f"[write_to_file] open_file must be a file open for writing bytes; got "
                f"{type(given).__name__}; try open(path, 'wb'), or save(path)"
            )
        self._emitted.write(open_file)

    def write_tensor_data_to_file(self, outdir: str | Path) -> None:
        """Writes the data that is not in the program (`external_constants`) as `.ptd` files."""
        self._emitted.save_data_files(outdir)

    def save(self, path: str | Path, record: bool = False) -> None:
        """Writes the file, and its record, whole or not at all.

        A program of a folder of Hugging Face's (`edgewise.compile(folder, task=...)`) is saved to a
        folder, as model.pte with its processor's files.

        record: also write `model.record.json.gz` beside `model.pte`, from which tools tell the
        user's modules and lines, where each node runs and why. It holds names and paths of the
        user's, so it is not part of the file.
        """
        given: Any = path
        if not isinstance(given, (str, os.PathLike)):
            hint = "write_to_file(file)" if hasattr(given, "write") else "'model.pte'"
            raise TypeError(f"[save] path must be a path; got {type(given).__name__}; try {hint}")
        if self.beside:
            path = _in_folder(path)
        if Path(path).is_dir():
            raise IsADirectoryError(
                errno.EISDIR,
                f"[save] a program is a file; try {Path(path) / 'model.pte'}",
                str(path),
            )
        beside: dict[str | os.PathLike[str], bytes] = {
            Path(path).parent / name: data for name, data in self.beside.items()
        }
        if record:
            from edgewise.inspect.record import contents, record_path

            if is_special(path):
                raise ValueError(
                    f"[save] a record lies beside a regular file; got {os.fspath(path)}, a device "
                    f"or a pipe; try record=False"
                )
            beside[record_path(path)] = contents(self.record(), compressed=True)
        self._emitted.save(path, beside)

    def _repr_html_(self) -> str:
        """For notebooks: its size and its delegation report."""
        from edgewise import notebook

        count = sum(map(len, self._emitted.parts()))
        head = notebook.heading(f"program of {', '.join(sorted(self._programs))}: {count:,} bytes")
        return notebook.block(head, self.delegation_report()._repr_html_())

    def record(self) -> ProgramRecord:
        """What each instruction computes, and where it comes from; see `save`."""
        from edgewise.emit.recording import record_program

        return record_program(self._programs, self._emitted, self._reports)

    def delegation_report(self, method_name: str | None = None) -> DelegationReport:
        """Where each node of the method goes, and why not elsewhere.

        Without a name that of the only method, or of "forward"; printed, it shows all methods.
        """
        return chosen_report(self._reports, method_name)

    def memory_plan(self, method_name: str = "forward") -> MemoryPlan:
        """Where the method's tensors lie in its arena."""
        return _of_method("memory_plan", self._emitted.plans, method_name)


def _in_folder(path: str | Path) -> Path:
    """The path of a program that other files lie beside; its folder is made."""
    path = Path(path)
    if path.is_dir() or path.suffix != ".pte":
        path = path / "model.pte"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _of_method(where: str, held: Mapping[str, T], method: str) -> T:
    if method not in held:
        raise KeyError(f"[{where}] must be one of {', '.join(sorted(held))}; got {method!r}")
    return held[method]


def _checked_config(config: EdgeCompileConfig | None) -> EdgeCompileConfig:
    if config is not None and not isinstance(config, EdgeCompileConfig):
        raise TypeError(
            f"[to_edge] compile_config must be edgewise's EdgeCompileConfig; got "
            f"{_full_name(config)}; try edgewise.EdgeCompileConfig(...)"
        )
    return config or EdgeCompileConfig()


def _full_name(given: object) -> str:
    """Of its type: ExecuTorch has classes of the same names."""
    kind = type(given)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _listed(passes: PassList | None) -> Sequence[PassType]:
    if passes is None:
        return ()
    return passes if isinstance(passes, Sequence) else [passes]


def _check_passes(passes: Passes) -> None:
    for listed in passes.values() if isinstance(passes, Mapping) else [passes]:
        for one in _listed(listed):
            if hasattr(one, "partition"):
                raise TypeError(
                    f"[to_edge_transform_and_lower] transform_passes must be functions of a graph "
                    f"module; got {type(one).__name__}; try partitioner=[...] with its name"
                )


def _by_name(programs: Programs) -> Mapping[str, ExportedProgram]:
    if isinstance(programs, ExportedProgram):
        return {"forward": programs}
    if isinstance(programs, Mapping) and programs:
        for name, program in programs.items():
            if not isinstance(program, ExportedProgram):
                raise TypeError(
                    f"[{name}] programs must be torch.export.ExportedProgram; "
                    f"got {type(program).__name__}; try torch.export.export(model, inputs)"
                )
        return programs
    raise TypeError(
        f"[to_edge] programs must be an ExportedProgram or a non-empty dict of them; "
        f"got {type(programs).__name__}; try {_program_hint(programs)}"
    )


def _program_hint(given: Any) -> str:
    if isinstance(given, (str, Path)):
        return f"torch.export.load({str(given)!r})"
    if isinstance(given, (tuple, list)):
        return 'a dict, {"forward": program}'
    return "torch.export.export(model, inputs)"


def _partitioners_by_method(
    partitioner: Partitioners, methods: Iterable[str]
) -> dict[str, list[Partitioner]]:
    names = list(methods)
    if partitioner is None:
        return {}
    if isinstance(partitioner, Mapping):
        unknown = sorted(set(partitioner) - set(names))
        if unknown:
            raise PartitionError(
                f"[to_backend] partitioners must be for methods of the program "
                f"({', '.join(names)}); got {', '.join(unknown)}"
            )
        return {name: _as_list(p) for name, p in partitioner.items()}
    return {name: _as_list(partitioner) for name in names}


def _as_list(partitioner: Partitioner | Sequence[Partitioner]) -> list[Partitioner]:
    given: Any = partitioner
    is_one = isinstance(given, str) or not isinstance(given, Sequence)
    found: list[Any] = [given] if is_one else list(given)
    for one in found:
        # Strings have a method `partition` too, and so has a class that was not called.
        if isinstance(one, (str, type)) or not hasattr(one, "partition"):
            raise TypeError(
                f"[to_backend] a partitioner must have a method `partition`; got {one!r}; "
                f"try an instance, such as XnnpackPartitioner()"
            )
    return [adapted(one) for one in found]


def _make_edge(
    methods: Mapping[str, ExportedProgram],
    partitioner: Partitioners,
    constant_methods: Mapping[str, Any] | None,
    config: EdgeCompileConfig,
    manager: type[EdgeProgramManager] | None = None,
) -> EdgeProgramManager:
    """manager: the class of what is made."""
    exported = dict(methods)
    partitioners = _partitioners_by_method(partitioner, methods)
    methods = {name: _transformed(p, partitioners.get(name, ())) for name, p in exported.items()}
    # All methods or none: they share state.
    upcasts = _upcasts(partitioners)
    reports = {
        name: ReportBuilder(name, upcast=True)
        for name, program in methods.items()
        if upcasts and partitioners.get(name) and computes_bfloat16(program)
    }
    timings = {name: Timings() for name in methods}
    programs = {}
    for name, program in methods.items():
        chosen = partitioners.get(name, ())
        keeper = functools.partial(_keeper, partitioners=chosen, config=config)
        with internal_errors("to_edge"), sizes_stay_open(program, "to_edge"):
            programs[name] = to_edge_program(program, keeper, timings[name], upcasts=upcasts)
    # What one method writes changes under another one that only reads it.
    written = {t for p in programs.values() for t in p.graph_signature.buffers_to_mutate.values()}
    for name, program in methods.items():
        own = set(programs[name].graph_signature.buffers_to_mutate.values())
        if (written - own) & set(program.graph_signature.buffers):
            chosen = partitioners.get(name, ())
            keeper = functools.partial(_keeper, partitioners=chosen, config=config)
            with internal_errors("to_edge"):
                programs[name] = to_edge_program(program, keeper, timings[name], written, upcasts)
    for name, program in programs.items():
        add_debug_handles(program.graph)
        restore_marks(program, methods[name])
    origin = Origin(
        exported,
        lambda others: _make_edge(others, partitioner, constant_methods, config, manager),
    )
    made = manager or EdgeProgramManager
    return made(programs, constant_methods, config, reports=reports, timings=timings, origin=origin)


def _upcasts(partitioners: Mapping[str, Sequence[Partitioner]]) -> bool:
    everyone = [one for chosen in partitioners.values() for one in chosen]
    return any(getattr(one, "upcasts_bfloat16", False) for one in everyone)


def _transformed(program: ExportedProgram, partitioners: Sequence[Partitioner]) -> ExportedProgram:
    """What the partitioners make of the exported program. Each gets a copy."""
    for one in partitioners:
        transform = getattr(type(one), "transform_for_pre_decomposition", None)
        if transform in (None, Partitioner.transform_for_pre_decomposition):
            continue
        with whose_code(one):
            program = transform(one, copy_with_modules(program))
        if not isinstance(program, ExportedProgram):
            raise TypeError(
                f"[to_edge] transform_for_pre_decomposition of {type(one).__name__} must return an "
                f"ExportedProgram; got {type(program).__name__}"
            )
    return program


def _keeper(
    program: ExportedProgram, partitioners: Sequence[Partitioner], config: EdgeCompileConfig
) -> Callable[[Node], bool]:
    """Which nodes stay whole: what the user preserves, and what a partitioner asks for."""
    preserved = set(config.preserve_ops)
    wanted = []
    for one in partitioners:
        with whose_code(one):
            ops, wants = one.ops_to_not_decompose(program)
        asks = getattr(one, "reasons_to_decompose", lambda program: None)
        if wants is not None and not is_ours(one):
            wants = as_users(wants)
        wanted.append((backend_name(one), set(ops), wants, asks(program)))

    def keep(node: Node) -> bool:
        if node.target in preserved:
            return True
        refusals = {}
        for backend, ops, wants, reasons in wanted:
            if node.target not in ops:
                continue
            if wants is None or wants(node):
                return True
            if reasons is not None:
                refusals[backend] = list(reasons(node))
        if refusals:
            note(node, refusals)
        return False

    return keep


def _partition(
    program: ExportedProgram,
    partitioners: Sequence[Partitioner],
    builder: ReportBuilder,
    path: str,
) -> ExportedProgram:
    """Cuts out, in place, what each partitioner tags, in branches and loops as well.

    path: of the body that `program` is, such as "true_graph_0/"; "" for a whole method.
    """
    check_quantization(program)  # passes of the user's may have changed something
    for one in partitioners:
        run_partitioner(one, program, builder, path)
    # What stayed behind must be something that a kernel exists for.
    normalize(program)
    transform_bodies(
        program, lambda body, name: _partition(body, partitioners, builder, f"{path}{name}/")
    )
    resolve_symbolic_shapes(program)
    sync_outputs(program)
    return program


def _missing_kernels(program: ExportedProgram) -> dict[str, str]:
    """By the report's names of nodes, those of the kernels that this process lacks."""
    graphs = [("", program.graph_module)]
    graphs += [(f"{path}/", body) for path, body in graphs_within(program.graph_module)]
    return {
        str(node.meta.get(REPORTED_AS, path + node.name)): kernel
        for path, module in graphs
        for node, kernel in missing_kernels(module.graph.nodes).items()
    }


def apply_pass(one: PassType, program: ExportedProgram) -> ExportedProgram:
    """The program that a pass makes, which may edit this one. A pass whose `takes_program` is true
    is called on the program, and gives a result with an `exported_program`; others are called on
    its graph module."""
    if not callable(one):
        raise EdgewiseError(
            f"[transform] a pass must be a function of a graph module; got {one!r}; "
            "try a function or an ExportPass"
        )
    if getattr(one, "takes_program", False):
        made = one(program).exported_program  # type: ignore[arg-type]
        if not isinstance(made, ExportedProgram):
            raise EdgewiseError(
                f"[transform] a pass over programs must return an ExportedProgram; "
                f"got {type(made).__name__}"
            )
        return made
    result = one(program.graph_module)
    module = getattr(result, "graph_module", result)
    if module is None or module is program.graph_module:
        return program
    if not isinstance(module, GraphModule):
        raise EdgewiseError(
            f"[transform] a pass must return a GraphModule, a PassResult or None; "
            f"got {type(module).__name__}"
        )
    from edgewise.edge.program import make_program

    return make_program(module.graph, program.graph_signature, like=program, root=module)


__all__ = [
    "EdgeProgramManager",
    "ExecutorchProgramManager",
    "to_edge",
    "to_edge_transform_and_lower",
]
