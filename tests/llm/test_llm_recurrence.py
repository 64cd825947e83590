"""Linear attention: the kernel against the rule in float64, and the state that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
import edgewise.edge.cache_operators  # (defines torch.ops.edgewise)
from edgewise.runtime import Runtime


@dataclass(frozen=True)
class Case:
    heads: int = 4
    key_heads: int = 2
    length: int = 5
    depth: int = 16
    width: int = 24
    by_key: bool = False
    batch: int = 1


CASES = {
    "a token": Case(length=1),
    "several": Case(),
    "each key decays by itself": Case(by_key=True),
    "each head has its state": Case(heads=3, key_heads=3, width=32),
    "columns in two blocks": Case(width=65),
    "one column": Case(width=1, depth=7),
    "two at once": Case(batch=2, length=3, by_key=True),
    "shared by threads": Case(heads=16, key_heads=16, length=40, depth=128, width=128),
}


class Rule(torch.nn.Module):
    """Keeps its state, unless it is given one."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        shape = (case.batch, case.key_heads, case.depth, case.width)
        self.register_buffer("state", torch.zeros(shape))

    def forward(self, q: Any, k: Any, v: Any, decay: Any, beta: Any) -> Any:
        ops: Any = torch.ops.edgewise
        result, state = ops.gated_delta_rule(q, k, v, decay, beta, self.state)
        self.state.copy_(state)
        return result, state.sum(-1)


def inputs_of(case: Case, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)

    def made(heads: int, *sizes: int) -> torch.Tensor:
        return torch.randn(case.batch, heads, case.length, *sizes, generator=generator)

    query, value = made(case.heads, case.depth), made(case.key_heads, case.width)
    key = torch.nn.functional.normalize(made(case.key_heads, case.depth), dim=-1)
    decay = 1 - torch.sigmoid(made(case.key_heads, *([case.depth] if case.by_key else []))) / 3
    return query, key, value, decay, torch.sigmoid(made(case.key_heads))


def expected(inputs: tuple[torch.Tensor, ...], state: Any) -> tuple[Any, Any]:
    """The rule as its authors write it, with a matrix for each token, in float64."""
    q, k, v, decay, beta = (t.double() for t in inputs)
    shared = q.shape[1] // k.shape[1]
    unit = torch.eye(k.shape[3], dtype=torch.float64)
    results = []
    for t in range(q.shape[2]):
        factors = decay[:, :, t] if decay.dim() == 4 else decay[:, :, t, None].expand_as(k[:, :, t])
        key, value, rate = k[:, :, t, :, None], v[:, :, t, None, :], beta[:, :, t, None, None]
        erase = unit - rate * key @ key.mT
        state = erase @ (torch.diag_embed(factors) @ state) + rate * key @ value
        read = q[:, :, t, None, :] @ state.repeat_interleave(shared, 1)
        results.append(read.squeeze(2))
    return torch.stack(results, 2), state


def lowered(case: Case) -> bytes:
    program = torch.export.export(Rule(case), inputs_of(case))
    return edgewise.to_edge_transform_and_lower(program).to_executorch().buffer


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize("name", CASES)
def test_calls_go_on_from_the_state_that_the_last_one_left(name: str, runtime: str) -> None:
    case = CASES[name]
    file = lowered(case)
    if runtime == "ours":
        method = Runtime.get().load_program(file).load_method("forward")
    else:
        import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401
        from executorch.runtime import Runtime as PeerRuntime

        program = PeerRuntime.get().load_program(file)
        method = program.load_method("forward")
    state: Any = torch.zeros(case.batch, case.key_heads, case.depth, case.width).double()
    for seed in range(3):
        inputs = inputs_of(case, seed)
        want, state = expected(inputs, state)
        got, sums = (np.asarray(t) for t in method.execute(list(inputs)))
        assert np.abs(got - want.numpy()).max() < 2e-6 * max(1.0, float(want.abs().max()))
        assert np.abs(sums - state.sum(-1).numpy()).max() < 2e-5


def test_the_state_is_computed_where_it_lies() -> None:
    """No copy of it is an instruction of its own, where nothing else reads the new one."""

    class Alone(Rule):
        def forward(self, *inputs: Any) -> Any:
            return super().forward(*inputs)[0]

    case = Case()
    program = torch.export.export(Alone(case), inputs_of(case))
    file = edgewise.to_edge_transform_and_lower(program).to_executorch().buffer
    method = Runtime.get().load_program(file).load_method("forward")
    state: Any = torch.zeros(1, 2, 16, 24).double()
    for seed in range(3):
        inputs = inputs_of(case, seed)
        want, state = expected(inputs, state)
        assert np.abs(method.execute(list(inputs))[0] - want.numpy()).max() < 4e-6
    with edgewise.profile() as profile:
        method.execute(list(inputs_of(case)))
    (summary,) = profile.summaries()
    assert sum(row.events for row in summary.instructions) == 1


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    case = CASES["shared by threads"]
    file, results = lowered(case), []
    for threads in (1, 2, 3):
        method = Runtime.get().load_program(file, threads=threads).load_method("forward")
        results.append(method.execute(list(inputs_of(case)))[0])
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_the_operator_in_pytorch_is_the_rule() -> None:
    for case in (CASES["several"], CASES["each key decays by itself"]):
        inputs = tuple(t.double() for t in inputs_of(case))
        state = torch.randn(1, case.key_heads, case.depth, case.width).double()
        for got, want in zip(
            edgewise.edge.cache_operators.gated_delta_rule(*inputs, state),
            expected(inputs, state),
            strict=True,
        ):
            torch.testing.assert_close(got, want)
