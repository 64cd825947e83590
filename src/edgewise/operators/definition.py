"""An operator that a backend supports, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch.fx import Node

from edgewise.edge.spellings import spellings
from edgewise.partition.accuracy import Accuracies, Deviation
from edgewise.partition.constraints import Constraint
from edgewise.quantize.patterns import Elementwise, Pattern

Target = torch._ops.OpOverload
Patterns = Mapping[Target, Pattern]

L = TypeVar("L")


@dataclass(frozen=True)
class OperatorDefinition(Generic[L]):
    """All there is to say about one operator of a backend, which subclasses it to say more.

    `lower` is a function of the backend's lowering context, the node and its arguments by name.
    """

    name: str
    """As in the documentation: `conv2d`, `linear`."""
    targets: tuple[Target | str, ...]
    """Operators of the edge dialect; by name where the package that defines them may not be
    imported. None is another definition's."""
    lower: L
    constraints: tuple[Constraint, ...] = ()
    """What must hold of a node; each that does not is a reason to refuse it."""
    keep: bool = False
    """Whether a node that satisfies the constraints must not be decomposed before."""
    also: str = ""
    """How it is computed where the backend has no operator of its own for it."""
    quantization: Pattern | Patterns | None = field(default=None, compare=False)
    """What a quantizer annotates around it, and around all operators of `torch.export` that become
    it; a mapping, if these differ. None: it stays in floating point, or is decomposed before."""
    deviations: tuple[Deviation, ...] = ()
    """Where special values give something else than in PyTorch."""

    def accuracies(self) -> Accuracies:
        """How exact the result is, by data type."""
        raise NotImplementedError

    def patterns(self) -> dict[Target, Pattern]:
        """`quantization` by operator of `torch.export`."""
        given = self.quantization
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            given = {t: given for t in self.targets if not isinstance(t, str)}
        found: dict[Target, Pattern] = {}
        for target, pattern in given.items():
            # A comparison in place writes zeros and ones among real numbers.
            is_real = not isinstance(pattern, Elementwise) or pattern.real
            for spelled in spellings(target) if is_real else [target]:
                found.setdefault(spelled, pattern)
        return {**found, **given}


P = ParamSpec("P")
D = TypeVar("D", bound=OperatorDefinition[Any])


class OperatorTable(Generic[P, D]):
    """A backend's definitions, in the order in which they were added.

    kind: the backend's subclass of `OperatorDefinition`, whose arguments `define` takes.
    """

    def __init__(self, kind: Callable[P, D]) -> None:
        self._kind = kind
        self.definitions: list[D] = []
        self.by_target: dict[Target | str, D] = {}

    def define(self, *args: P.args, **kwargs: P.kwargs) -> D:
        """A new definition. ValueError if one of its operators has one already."""
        definition = self._kind(*args, **kwargs)
        self.definitions.append(definition)
        for target in definition.targets:
            if target in self.by_target:
                raise ValueError(
                    f"[{definition.name}] an operator must have one definition; got two for "
                    f"{target}"
                )
            self.by_target[target] = definition
        return definition

    def of(self, node: Node) -> D | None:
        """The definition of the node's operator, if it has one."""
        target: Any = node.target
        return self.by_target.get(target) or self.by_target.get(str(target))

    def kept(self) -> list[Target]:
        """Composite operators that have a definition of their own."""
        return [
            target
            for definition in self.definitions
            if definition.keep
            for target in definition.targets
            if not isinstance(target, str)
        ]

    def patterns(self) -> dict[Target, Pattern]:
        """For a `TableQuantizer`: what is annotated around each operator of `torch.export`."""
        found: dict[Target, Pattern] = {}
        for definition in self.definitions:
            for target, pattern in definition.patterns().items():
                if found.setdefault(target, pattern) != pattern:
                    raise ValueError(
                        f"[{definition.name}] an operator must have one quantization; "
                        f"got two for {target}"
                    )
        return found


__all__ = ["OperatorDefinition", "OperatorTable", "Patterns", "Target"]
