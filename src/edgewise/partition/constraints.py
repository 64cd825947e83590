"""Rules that a definition of an operator sets, and the reasons it gives for a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from edgewise.edge.graph import fake, shape_of
from edgewise.edge.program import Constants
from edgewise.edge.sizes import are_quotients
from edgewise.partition.spec import Refusal


@dataclass(frozen=True)
class Query:
    """A question to a constraint: this node, with these arguments and constants."""

    node: Node
    args: dict[str, Any]
    constants: Constants


Check = Callable[[Any], "str | None"]


@dataclass(frozen=True)
class Constraint:
    """A rule that a node must keep. `check` answers None, or what it found instead."""

    rule: str
    check: Check
    hint: str = ""

    def refusal(self, query: Query) -> Refusal | None:
        got = self.check(query)
        return None if got is None else Refusal(self.rule, got, self.hint)


def constant(
    *names: str,
    hint: str = "a parameter or buffer, or torch.matmul for a product with a computed matrix",
) -> Constraint:
    """The named arguments are parameters, buffers or constants (or absent)."""

    def check(q: Query) -> str | None:
        for name in names:
            node = q.args.get(name)
            if node is not None and node not in q.constants:
                return f"{name} is computed by {getattr(node, 'name', node)}"
        return None

    return Constraint(f"constant {' and '.join(names)}", check, hint)


def _without_dims(q: Query) -> str | None:
    return None if shape_of(q.args["self"]) else "0-D"


HAS_DIMS = Constraint("self has dimensions", _without_dims)


def only_first(rule: str, others: str, hint: str = "") -> Constraint:
    """Of several results only the first is read; `others` says what the rest are."""

    def check(q: Query) -> str | None:
        used = [u.name for u in q.node.users if u.args[1] != 0 and u.users]
        return None if not used else f"{others} used by {', '.join(used)}"

    return Constraint(rule, check, hint)


def equals(name: str, *allowed: Any, hint: str = "") -> Constraint:
    shown = " or ".join(str(a) for a in allowed)

    def check(q: Query) -> str | None:
        return None if q.args[name] in allowed else f"{name}={q.args[name]}"

    return Constraint(f"{name}={shown}", check, hint)


def rank(name: str, *allowed: int) -> Constraint:
    shown = " or ".join(f"{a}-D" for a in allowed)

    def check(q: Query) -> str | None:
        found = fake(q.args[name]).dim()
        return None if found in allowed else f"{found}-D"

    return Constraint(f"{name} is {shown}", check)


def last_dim(name: str = "dim", operand: str = "self") -> Constraint:
    def check(q: Query) -> str | None:
        dim, of = q.args[name], fake(q.args[operand]).dim()
        return None if dim % max(of, 1) == of - 1 else f"dim={dim} of {of}-D"

    hint = "moving dim to the end: x.movedim(dim, -1)"
    return Constraint("dim is the last dimension", check, hint)


def _scale_by_sizes(q: Query) -> str | None:
    args = q.args
    factors = args.get("scale_factors") or [args[n] for n in ("scales_h", "scales_w") if n in args]
    source = args["input"] if "input" in args else args["self"]
    before, after = shape_of(source)[2:], shape_of(q.node)[2:]
    if args.get("align_corners") or are_quotients(factors, before, after):
        return None
    return f"scale_factors={factors} from {list(before)} to {list(after)}"


SCALE_BY_SIZES = Constraint(
    "scale_factors are the quotients of the sizes",
    _scale_by_sizes,
    "the result's size instead of scale_factor, or recompute_scale_factor=True",
)
"""Of images that are resized: torch steps by 1 / scale, backends by the sizes' quotient."""
