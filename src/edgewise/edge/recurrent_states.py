"""Last states of LSTMs have the shapes of their first ones.

torch.export of torch 2.12 gives those of `aten.lstm` a leading dimension more than PyTorch itself
(recorded as (1, 1, 2, 8) for (1, 2, 8)), and traces with that what is computed from them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewise.edge.graph import arguments, calls
from edgewise.edge.node_errors import at_node
from edgewise.errors import InvalidGraphError

_LSTMS = (torch.ops.aten.lstm.input, torch.ops.aten.lstm.data)


def check_recurrent_states(program: ExportedProgram) -> None:
    """Raises InvalidGraphError where a last state that is used has too many dimensions."""
    for node in calls(program.graph):
        if node.target not in _LSTMS:
            continue
        first: Any = arguments(node)["hx"]
        for user in node.users:
            index: Any = user.args[1] if user.target is operator.getitem else 0
            if index == 0 or not user.users:
                continue
            found = tuple(node.meta["val"][index].shape)
            want = tuple(first[index - 1].meta["val"].shape)
            if len(found) != len(want):  # sizes may be symbolic
                raise InvalidGraphError(
                    f"{at_node(node)} the last state of an LSTM must have the shape of its first, "
                    f"{want}; got {found} of torch.export {torch.__version__}; try torch 2.13 or "
                    "later, or a model that uses the sequence alone"
                )
