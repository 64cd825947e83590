"""The stages from an exported program to the edge dialect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.additive_masks import make_masks_additive
from edgewise.edge.bodies import transform_bodies
from edgewise.edge.cache_operators import thread_caches
from edgewise.edge.causal_masks import make_causal_masks
from edgewise.edge.fold_batch_norm import fold_batch_norm
from edgewise.edge.fold_constants import fold_constants
from edgewise.edge.fold_masks import fold_masks
from edgewise.edge.functionalize import (
    drop_identities,
    functionalize,
    may_return_views,
    writes_in_custom_operators,
)
from edgewise.edge.inline_regions import inline_regions
from edgewise.edge.move_before_choice import move_before_choice
from edgewise.edge.nested_writes import flatten_nested_writes
from edgewise.edge.normalize import decompositions, normalize
from edgewise.edge.program import copy_program, drop_unused_constants, mark_state, sync_outputs
from edgewise.edge.quantization_parameters import check_quantization
from edgewise.edge.quantized_embeddings import fuse_quantized_embeddings
from edgewise.edge.quantized_linears import recompose_linears
from edgewise.edge.recurrent_states import check_recurrent_states
from edgewise.edge.resolve_symbolic_shapes import resolve_symbolic_shapes
from edgewise.edge.unwrap_subclasses import unwrap_subclasses


@dataclass
class Timings:
    """Seconds of each stage, in order."""

    stages: list[tuple[str, float]] = field(default_factory=list)

    def run(self, name: str, stage: Callable[[], object]) -> None:
        start = time.perf_counter()
        stage()
        self.stages.append((name, time.perf_counter() - start))


def to_edge_program(
    program: ExportedProgram,
    keep: Callable[[ExportedProgram], Callable[[Node], bool]],
    timings: Timings | None = None,
    state: Iterable[str] = (),
) -> ExportedProgram:
    """A copy of `program` in the edge dialect. `keep` says which nodes stay whole.

    state: buffers that other methods write: they are no constants here, either.

    The program is traced as a whole only if it writes through views or to buffers; then
    once, for torch to functionalise it. Bodies of control flow are programs of their own.
    """
    timings = timings or Timings()
    check_recurrent_states(program)
    edge = copy_program(program)
    start = time.perf_counter()
    inline_regions(edge, program.graph_module)
    unwrap_subclasses(edge)
    recompose_linears(edge)
    drop_identities(edge)
    thread_caches(edge)
    if functionalize(edge) is None:
        edge = copy_program(_functionalize_by_trace(edge))
    mark_state(edge, state)
    timings.stages.append(("functionalize", time.perf_counter() - start))
    check_quantization(edge)
    timings.run("fold_batch_norm", lambda: fold_batch_norm(edge))
    timings.run("quantized_embeddings", lambda: fuse_quantized_embeddings(edge))
    # Before `keep` is asked: whether a row takes a node may hang on its mask being known.
    timings.run("fold_masks", lambda: fold_masks(edge))
    timings.run("normalize", lambda: _normalize(edge, keep))
    timings.run("move_before_choice", lambda: move_before_choice(edge))
    timings.run("nested_writes", lambda: flatten_nested_writes(edge))
    timings.run("fold_constants", lambda: fold_constants(edge))
    timings.run("bodies", lambda: transform_bodies(edge, lambda b, _: to_edge_program(b, keep)))
    timings.run("resolve_symbolic_shapes", lambda: resolve_symbolic_shapes(edge))
    drop_unused_constants(edge)
    sync_outputs(edge)
    return edge


def _normalize(
    program: ExportedProgram, keep: Callable[[ExportedProgram], Callable[[Node], bool]]
) -> None:
    keeps = keep(program)
    if make_causal_masks(program, keeps):
        keeps = keep(program)
    if make_masks_additive(program, keeps):
        fold_constants(program)
        keeps = keep(program)
    normalize(program, keeps)


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
        functional: ExportedProgram = program.run_decompositions(table)
    return functional
