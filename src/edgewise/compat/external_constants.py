"""`executorch.exir.passes.external_constants_pass`: weights of delegates in data files."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node
from torch.fx.passes.infra.pass_base import PassResult

from edgewise.edge import mark_constants


def delegate_external_constants_pass_unlifted(
    module: torch.nn.Module, gen_tag_fn: Callable[[Node], str | None] | None = None
) -> PassResult:
    """`edgewise.edge.mark_constants`, as a pass; without `gen_tag_fn` nothing."""
    modified = gen_tag_fn is not None and mark_constants(module, gen_tag_fn)
    return PassResult(module, modified)
