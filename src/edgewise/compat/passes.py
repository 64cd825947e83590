"""`executorch.exir.pass_base` and `pass_manager`: passes that write a graph anew, node by node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._export.pass_base import _ExportPassBaseDeprecatedDoNotUse as _InterpreterPass
from torch._export.pass_infra.node_metadata import NodeMetadata
from torch._export.pass_infra.proxy_value import ProxyValue
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra import pass_manager as fx
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils import _pytree as pytree

from edgewise.lowering.managers import apply_pass
from edgewise.partition.lowered_module import LoweredBackendModule, call_delegate

__all__ = [
    "ConvertToLinearPass",
    "DuplicateDynamicQuantChainPass",
    "ExportPass",
    "ExportedProgramPassBase",
    "ExportedProgramPassManager",
    "ExportedProgramPassResult",
    "InitializedMutableBufferPass",
    "NodeMetadata",
    "PassManager",
    "PassType",
    "ProxyValue",
    "QuantFusionPass",
    "RemoveRedundantTransposes",
]

PassType = Callable[[GraphModule], Any]


class ExportPass(_InterpreterPass):
    """A pass that goes through all nodes: override what it changes (`call_operator`, ...).

    What an override calls of the class above it is written to the new graph. The class is torch's
    own, which knows no delegates.
    """

    class ExportTracer(_InterpreterPass.ExportTracer):
        """Writes the new graph; delegates are `lowered_module_0` and on."""

        def create_arg(self, a: Any) -> Any:
            """An argument of a node; a delegate is an attribute of the graph's module."""
            if not isinstance(a, LoweredBackendModule):
                return super().create_arg(a)
            name = self.submodules.get(a)
            if name is None:
                known = sum(isinstance(one, LoweredBackendModule) for one in self.submodules)
                name = self.submodules[a] = f"lowered_module_{known}"
                self.root.add_module(name, a)
            return self.create_node("get_attr", name, (), {}, name)

    class ExportInterpreter(_InterpreterPass.ExportInterpreter):
        """Reads the old graph."""

        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """A call, by what is called."""
            if target is not call_delegate:
                return super().call_function(target, args, kwargs)
            assert isinstance(self.callback, ExportPass)
            meta = NodeMetadata(self.node.meta)
            return self.callback.call_delegate(args[0], args[1:], kwargs, meta)

    def call_delegate(
        self,
        lowered_module: LoweredBackendModule,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        meta: NodeMetadata,
    ) -> ProxyValue[Any]:
        """A delegate's call: its results have the shapes that they had."""
        inputs = pytree.tree_map_only(ProxyValue, lambda value: value.proxy, args)
        made = self.tracer.create_proxy(
            "call_function", call_delegate, (lowered_module, *inputs), kwargs
        )
        made.node.meta.update(meta.data)
        return ProxyValue(made.node.meta["val"], made)


@dataclass(frozen=True)
class ExportedProgramPassResult:
    """The program, and whether it is another than before."""

    exported_program: ExportedProgram
    modified: bool


class ExportedProgramPassBase(ABC):
    """A pass over a program: its graph and its signature."""

    takes_program = True

    def __call__(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """`requires`, `call`, and `ensures` of what it made."""
        self.requires(exported_program)
        result = self.call(exported_program)
        self.ensures(result.exported_program)
        return result

    @abstractmethod
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """What the pass does."""

    def requires(self, exported_program: ExportedProgram) -> None:
        """Raises if the program is not one for the pass."""
        return

    def ensures(self, exported_program: ExportedProgram) -> None:
        """Raises if the program is not what the pass should make."""
        return


class ExportedProgramPassManager(ExportedProgramPassBase):
    """Passes over programs and over graph modules, one after the other; itself a pass."""

    def __init__(self, passes: Sequence[Any] | None = None, steps: int = 1) -> None:
        self.passes = pytree.tree_leaves(list(passes or ()))
        self.steps = steps

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """All passes, `steps` times."""
        program = exported_program
        for one in self.passes * self.steps:
            program = apply_pass(one, program)
        return ExportedProgramPassResult(program, bool(self.passes))


class QuantFusionPass(ExportPass):
    """Of no effect: quantized operators outside of delegates are computed as they stand."""

    def __init__(self, _fix_node_meta_val: bool = False) -> None:
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """The graph as it is."""
        return PassResult(graph_module, False)


class DuplicateDynamicQuantChainPass(QuantFusionPass):
    """Of no effect: one quantization at run time may have several readers."""


class ConvertToLinearPass(QuantFusionPass):
    """Of no effect: linear layers are not taken apart."""


class InitializedMutableBufferPass(QuantFusionPass):
    """Of no effect: all buffers start with the values that they had when the model was exported."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = list(patterns)


class RemoveRedundantTransposes(ExportPass):
    """Takes out pairs of `transpose` or of `permute` that undo each other."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Changes the graph in place."""
        changed = False
        for node in list(graph_module.graph.nodes):
            before: Any = node.args[0] if node.args else None
            if not (_is_permutation(node) and _is_permutation(before)):
                continue
            dims = list(range(node.meta["val"].dim()))
            if _permuted(_permuted(dims, before), node) == dims:
                node.replace_all_uses_with(before.args[0])
                changed = True
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
        return PassResult(graph_module, changed)


class PassManager(fx.PassManager):
    """Passes one after the other, in lists of lists if need be; itself a pass."""

    def __init__(
        self,
        passes: Sequence[Any] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        super().__init__(
            [fx.pass_result_wrapper(one) for one in pytree.tree_leaves(list(passes or ()))],
            run_checks_after_each_pass=run_checks_after_each_pass,
            suppress_check_failures=suppress_check_failures,
            steps=steps,
        )

    def check(self, module: torch.nn.Module) -> None:
        """Raises for a graph that is not well-formed."""
        assert isinstance(module, GraphModule)
        module.recompile()
        module.graph.lint()


def _is_permutation(node: Any) -> bool:
    return isinstance(node, Node) and node.target in (
        torch.ops.aten.transpose.int,
        torch.ops.aten.permute.default,
    )


def _permuted(dims: list[int], node: Any) -> list[int]:
    """The dimensions' order behind the node."""
    if node.target is torch.ops.aten.permute.default:
        return [dims[i] for i in node.args[1]]
    one, other = node.args[1:]
    swapped = list(dims)
    swapped[one], swapped[other] = dims[other], dims[one]
    return swapped
