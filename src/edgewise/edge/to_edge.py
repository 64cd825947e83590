"""The stages from an exported program to the edge dialect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.additive_masks import make_masks_additive
from edgewise.edge.arguments import arguments_of, note_arguments
from edgewise.edge.auto_functionalized import expand_auto_functionalized
from edgewise.edge.bodies import transform_bodies
from edgewise.edge.boolean_casts import read_booleans_from_integers
from edgewise.edge.bounded_choices import make_choices_bounds
from edgewise.edge.cache_operators import thread_caches
from edgewise.edge.causal_masks import make_causal_masks
from edgewise.edge.dialect import check_layouts
from edgewise.edge.fold_batch_norm import fold_batch_norm
from edgewise.edge.fold_constants import fold_constants
from edgewise.edge.fold_masks import fold_masks
from edgewise.edge.forward_writes import forward_writes
from edgewise.edge.functionalize import (
    composites_of,
    drop_identities,
    functionalize,
    is_vectorized,
    may_return_views,
    writes_in_custom_operators,
)
from edgewise.edge.graph import is_complex, is_spectral
from edgewise.edge.inline_regions import inline_regions
from edgewise.edge.masked_writes import choose_by_masks
from edgewise.edge.mixed_operands import cast_mixed_operands
from edgewise.edge.move_before_choice import move_before_choice
from edgewise.edge.nested_writes import flatten_nested_writes
from edgewise.edge.normalize import decompositions, normalize
from edgewise.edge.program import copy_program, drop_unused_constants, mark_state, sync_outputs
from edgewise.edge.quantization_parameters import check_quantization
from edgewise.edge.quantized_embeddings import fuse_quantized_embeddings
from edgewise.edge.quantized_linears import recompose_linears
from edgewise.edge.recurrent_states import check_recurrent_states
from edgewise.edge.relative_positions import multiply_by_distance
from edgewise.edge.resolve_symbolic_shapes import resolve_symbolic_shapes
from edgewise.edge.several_indices import join_indices
from edgewise.edge.unwrap_subclasses import unwrap_subclasses
from edgewise.edge.upcast import upcast_bfloat16
from edgewise.edge.verify import in_the_dialect, text, verify
from edgewise.edge.written_gelu import recognize_gelu
from edgewise.passes import Pass, PassManager, watching

Keep = Callable[[ExportedProgram], Callable[[Node], bool]]
"""Of a program, which of its nodes stay whole."""


@dataclass
class Timings:
    """Seconds of each stage, in order."""

    stages: list[tuple[str, float]] = field(default_factory=list)


def to_edge_program(
    program: ExportedProgram,
    keep: Keep,
    timings: Timings | None = None,
    state: Iterable[str] = (),
    upcasts: bool = False,
) -> ExportedProgram:
    """A copy of `program` in the edge dialect. `keep` says which nodes stay whole.

    state: buffers that other methods write: they are no constants here, either. upcasts: whether
    bfloat16 is computed in float32.

    The program is traced as a whole only if it writes through views or to buffers, for torch to
    functionalise it, or has parts of `torch.vmap`. Bodies of control flow are programs of their
    own.
    """
    timings = timings or Timings()
    check_layouts(program)
    check_recurrent_states(program)
    start = time.perf_counter()
    program = without_vmap(program)
    edge = copy_program(program)
    _as_exported(program, upcasts)(edge)
    if functionalize(edge) is None:
        edge = copy_program(_functionalize_by_trace(edge))
        expand_auto_functionalized(edge)
    mark_state(edge, state)
    timings.stages.append(("functionalize", time.perf_counter() - start))
    check_quantization(edge)
    with watching(_Stages(timings, edge)):
        _to_the_dialect(keep, upcasts)(edge)
    return edge


def _as_exported(program: ExportedProgram, upcasts: bool) -> PassManager[ExportedProgram]:
    """What torch.export leaves in a program that functions of tensors have no need of."""
    return PassManager(
        "export",
        (
            Pass(
                lambda edge: inline_regions(edge, program.graph_module, upcasts),
                name="inline_regions",
            ),
            Pass(unwrap_subclasses),
            Pass(recompose_linears),
            Pass(drop_identities),
            Pass(thread_caches),
            Pass(expand_auto_functionalized),
        ),
        verify,
        text,
    )


def _to_the_dialect(keep: Keep, upcasts: bool) -> PassManager[ExportedProgram]:
    """Of a functional program."""
    return PassManager(
        "edge",
        (
            *((Pass(upcast_bfloat16),) if upcasts else ()),
            Pass(_separate_complex_numbers, name="separate_complex_numbers"),
            Pass(fold_batch_norm),
            Pass(fuse_quantized_embeddings),
            # Before `keep` is asked: whether a row takes a node may hang on its mask being known.
            Pass(fold_masks),
            Pass(lambda edge: read_booleans_from_integers(edge.graph), name="boolean_casts"),
            Pass(choose_by_masks, name="masked_writes"),
            Pass(lambda edge: recognize_gelu(edge.graph), name="written_gelu"),
            Pass(
                lambda edge: _normalize(edge, keep),
                ensures=(in_the_dialect(keep, bodies=False),),
                name="normalize",
            ),
            Pass(move_before_choice),
            Pass(flatten_nested_writes),
            Pass(forward_writes),
            Pass(fold_constants),
            Pass(multiply_by_distance),
            Pass(join_indices),
            Pass(
                lambda edge: transform_bodies(edge, lambda body, _: to_edge_program(body, keep)),
                name="bodies",
            ),
            Pass(resolve_symbolic_shapes),
            Pass(drop_unused_constants),
            Pass(sync_outputs, ensures=(in_the_dialect(keep),)),
        ),
        verify,
        text,
    )


def _separate_complex_numbers(program: ExportedProgram) -> bool:
    if not any(is_complex(node) or is_spectral(node) for node in program.graph.nodes):
        return False
    # Torch's own complex tensors are imported for those that have some.
    from edgewise.edge.complex_numbers import separate_complex_numbers

    return separate_complex_numbers(program)


@dataclass
class _Stages:
    """Adds what passes over one program take to its timings; not those over bodies inside of it."""

    timings: Timings
    program: ExportedProgram

    def before(self, manager: PassManager[Any], one: Pass[Any], graph: Any) -> None:
        pass

    def after(
        self, manager: PassManager[Any], one: Pass[Any], graph: Any, changed: bool, seconds: float
    ) -> None:
        if graph is self.program:
            self.timings.stages.append((one.name, seconds))


def _normalize(program: ExportedProgram, keep: Keep) -> bool:
    keeps = keep(program)
    causal = make_causal_masks(program, keeps)
    if causal:
        keeps = keep(program)
    bounded = make_choices_bounds(program, keeps)
    if bounded:
        keeps = keep(program)
    mixed = cast_mixed_operands(program, keeps)
    if mixed:
        keeps = keep(program)
    additive = make_masks_additive(program, keeps)
    if additive:
        fold_constants(program)
        keeps = keep(program)
    return normalize(program, keeps) or causal or additive or bounded or mixed


@contextmanager
def _keeping_whole(operators: set[Any]) -> Iterator[None]:
    """Within it, torch's decomposition keeps these composite operators whole: it would register a
    kernel for each of the thousand that there are, which takes longer than a small program's trace.
    """
    from torch.export import exported_program as torchs

    asked = "_collect_all_valid_cia_ops"
    if not hasattr(torchs, asked):  # of another version
        yield
        return
    with patch.object(torchs, asked, lambda: operators):
        yield


def without_vmap(program: ExportedProgram) -> ExportedProgram:
    """The program with the batches of `torch.vmap` as dimensions: itself, if there are none."""
    return _functionalize_by_trace(program) if is_vectorized(program) else program


def _functionalize_by_trace(program: ExportedProgram) -> ExportedProgram:
    """Torch's own functionalisation, which keeps composite operators whole."""
    known = decompositions()
    table = {target: known[target] for target in may_return_views(program) if target in known}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if writes_in_custom_operators(program):
            from torch._export import config

            # The form that names what is written itself, not a view of it by numbers.
            stack.enter_context(config.patch(enable_auto_functionalized_v2_for_export=False))
        stack.enter_context(_keeping_whole(composites_of(program)))
        functional: ExportedProgram = program.run_decompositions(table)
    note_arguments(functional, arguments_of(program))
    return functional
