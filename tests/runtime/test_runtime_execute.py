"""Inputs of every kind and layout, and outputs that belong to the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgewise.runtime import Error, InvalidArgumentError, Method, Runtime

pytestmark = pytest.mark.matrix


def load(data: bytes) -> Method:
    return Runtime.get().load_program(data).load_method("forward")


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "spread": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(b"?" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "memoryview": memoryview,
    "torch": torch.from_numpy,
    "torch transposed": lambda x: torch.from_numpy(np.ascontiguousarray(x.T)).T,
    "torch spread": lambda x: torch.from_numpy(x).repeat_interleave(2, 1)[:, ::2],
    "torch negated view": lambda x: torch._neg_view(torch.from_numpy(-x)),
    "torch expanded back": lambda x: torch.from_numpy(x)[:, None].expand(2, 4, 3)[:, 2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(plus_one: Method, x: np.ndarray, layout: str) -> None:
    (y,) = plus_one.execute([LAYOUTS[layout](x)])
    np.testing.assert_array_equal(y, x + 1)


def test_broadcast_input(add: Method) -> None:
    row = np.broadcast_to(np.float32([1, 2, 3]), (2, 3))
    (y,) = add.execute((row, torch.tensor([[1.0], [2.0]]).expand(2, 3)))
    np.testing.assert_array_equal(y, [[2, 3, 4], [3, 4, 5]])


class Same(torch.nn.Module):
    """Gives back its input without arithmetic."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"],
)
def test_element_types(make_pte: Any, dtype: str) -> None:
    x = np.array([[0, 1], [1, 0]]).astype(dtype)
    method = load(make_pte(Same(), (torch.from_numpy(x),), partitioner=None))
    for given in (x, x.T.copy().T, torch.from_numpy(x)):
        (y,) = method.execute([given])
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)


def test_bfloat16(make_pte: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([[1.5, -2.0], [3e38, 0.0]], dtype=torch.bfloat16)
    method = load(make_pte(Same(), (x,), partitioner=None))
    (y,) = method.execute([x])
    assert y.dtype.name in ("bfloat16", "float32")
    np.testing.assert_array_equal(y.astype(np.float32), x.float().numpy())
    if y.dtype.name == "bfloat16":
        (z,) = method.execute([y])
        np.testing.assert_array_equal(z.astype(np.float32), x.float().numpy())
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    (y,) = method.execute([x])
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, x.float().numpy())


def test_rank_zero(make_pte: Any) -> None:
    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * y

    method = load(make_pte(Product(), (torch.tensor(2.0), torch.tensor(3.0)), partitioner=None))
    for two in (np.float32(2), np.array(2, np.float32), torch.tensor(2.0)):
        (y,) = method.execute([two, np.float32(3)])
        assert y.shape == ()
        assert y == 6


def test_channels_last(make_pte: Any) -> None:
    class Increment(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    example = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    method = load(make_pte(Increment(), (example,), partitioner=None))
    assert method.metadata.input_tensor_meta(0).dim_order() == (0, 2, 3, 1)
    x = np.random.default_rng(0).random((2, 3, 4, 5), dtype=np.float32)
    last = torch.from_numpy(x).to(memory_format=torch.channels_last)
    for given in (x, last, last.numpy(), np.asfortranarray(x)):
        (y,) = method.execute([given])
        assert y.shape == x.shape
        np.testing.assert_array_equal(y, x + 1)
        np.testing.assert_array_equal(method.execute([y])[0], x + 2)


def test_numbers_and_none(make_pte: Any) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x, n, mask=None, flag=True, s=2.5):  # type: ignore[no-untyped-def]
            return x * n * s, 7, None, flag

    example = (torch.ones(2), 3, None, True, 2.5)
    method = load(make_pte(Scaled(), example, partitioner=None))
    y, seven, none, flag = method.execute([np.float32([1, 2]), 3, None, True, 2.5])
    np.testing.assert_array_equal(y, [7.5, 15])
    assert (seven, none, flag) == (7, None, True)
    y, *_ = method.execute([np.float32([1, 2]), np.int64(3), None, True, np.float64(2.5)])
    np.testing.assert_array_equal(y, [7.5, 15])


def test_dynamic_shape() -> None:
    from runtime_models import PlusOne, lower

    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(PlusOne(), (torch.ones(4, 3),), dynamic_shapes=({0: batch},))
    method = load(lower(program))
    assert method.metadata.input_tensor_meta(0).sizes() == (8, 3)
    kept = []
    for size in (1, 8, 3):
        x = np.full((size, 3), size, np.float32)
        (y,) = method.execute([x])
        assert y.shape == x.shape
        kept.append(y)
    assert [float(y[0, 0]) for y in kept] == [2, 9, 4]
    with pytest.raises(Error):
        method.execute([np.ones((9, 3), np.float32)])
    (y,) = method.execute([np.ones((2, 3), np.float32)])
    np.testing.assert_array_equal(y, np.full((2, 3), 2))


def test_outputs_belong_to_the_caller(add: Method, x: np.ndarray) -> None:
    (first,) = add.execute([x, x])
    (second,) = add.execute([x + 1, x])
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, 2 * x + 1)
    assert first.flags.writeable
    first[:] = 0
    (third,) = add.execute([second, second])
    np.testing.assert_array_equal(third, 4 * x + 2)
    np.testing.assert_array_equal(second, 2 * x + 1)


def test_outputs_that_are_inputs_or_one_another(make_pte: Any, x: np.ndarray) -> None:
    class Fan(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x + 1
            return x, y, y, y * 2

    method = load(make_pte(Fan(), (torch.ones(2, 3),), partitioner=None))
    for _ in range(2):
        given = x.copy()
        outputs = method.execute([given])
        for y, expected in zip(outputs, (x, x + 1, x + 1, 2 * x + 2), strict=True):
            np.testing.assert_array_equal(y, expected)
            y[:] = -1
        np.testing.assert_array_equal(given, x)


def test_state_and_reset() -> None:
    from runtime_models import lower

    class Count(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    program = Runtime.get().load_program(lower(torch.export.export(Count(), (torch.zeros(1),))))
    one, other = program.load_method("forward"), program.load_method("forward")
    zero = np.zeros(1, np.float32)
    outputs = [one.execute([zero])[0] for _ in range(3)]
    assert [float(y[0]) for y in outputs] == [1, 2, 3]
    assert other.execute([zero])[0][0] == 1
    one.reset()
    assert one.execute([zero])[0][0] == 1
    assert other.execute([zero])[0][0] == 2


class OnGpu:
    """What a tensor on a CUDA device looks like from outside."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> None:
        raise AssertionError("must not be asked for")


class NoCapsule:
    def __dlpack__(self) -> str:
        return "dltensor"


ONES = np.ones((2, 3), np.float32)
REFUSED = {
    "too few": ([ONES], "takes 2 inputs; got 1"),
    "too many": ([ONES] * 3, "takes 2 inputs; got 3"),
    "none at all": ([], "takes 2 inputs; got 0"),
    "no sequence": (3, "list or tuple.*got int"),
    "an array instead": (np.ones((2, 2, 3), np.float32), r"try execute\(\[x\]\)"),
    "a tensor instead": (torch.ones(2, 2, 3), r"try execute\(\[x\]\)"),
    "dtype": ([ONES, ONES.astype(np.float64)], "input 1.*float32.*float64"),
    "dtype of torch": ([torch.ones(2, 3).long(), ONES], "input 0.*float32.*int64"),
    "rank": ([ONES[0], ONES], r"input 0.*\[2, 3\].*\[3\]"),
    "shape": ([ONES, ONES.T], r"input 1.*\[2, 3\].*\[3, 2\]"),
    "empty": ([ONES, ONES[:0]], r"input 1.*\[2, 3\].*\[0, 3\]"),
    "many dimensions": ([ONES, torch.ones([1] * 17)], "input 1.*dimensions"),
    "number": ([ONES, 1.0], "input 1"),
    "huge number": ([ONES, 1 << 80], "input 1.*64 bits"),
    "none": ([None, ONES], "input 0.*None"),
    "list": ([ONES.tolist(), ONES], "input 0.*got list.*asarray"),
    "str": (["x", ONES], "input 0.*str"),
    "object": ([object(), ONES], "input 0.*got object"),
    "object array": ([np.array([None, 1]), ONES], "input 0.*astype"),
    "text array": ([np.array(["a"]), ONES], "input 0.*astype"),
    "dates": ([np.array([1, 2], "M8[s]"), ONES], r"input 0.*datetime64.*astype"),
    "complex": ([ONES.astype(np.complex64), ONES], "input 0.*astype"),
    "byte order": ([ONES.astype(">f4"), ONES], "input 0.*byte order"),
    "gradient": ([torch.ones(2, 3, requires_grad=True), ONES], r"input 0.*detach\(\)"),
    "sparse": ([torch.ones(2, 3).to_sparse(), ONES], "input 0.*__dlpack__"),
    "complex torch": ([torch.ones(2, 3, dtype=torch.complex64), ONES], "input 0"),
    "meta device": ([torch.ones(2, 3, device="meta"), ONES], "input 0"),
    "cuda device": ([OnGpu(), ONES], r"input 0.*CUDA.*\.cpu\(\)"),
    "no capsule": ([ONES, NoCapsule()], "input 1.*capsule"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_inputs(add: Method, case: str) -> None:
    inputs, message = REFUSED[case]
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        add.execute(inputs)
    assert isinstance(caught.value, (Error, ValueError))
    assert str(caught.value).startswith("[")
    (y,) = add.execute([ONES, ONES])  # and nothing broke
    np.testing.assert_array_equal(y, 2 * ONES)
