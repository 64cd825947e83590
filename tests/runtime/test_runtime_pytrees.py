"""Structured inputs and outputs."""

from __future__ import annotations

import functools
import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as torch_pytree

import edgewise.runtime as runtime
from edgewise.runtime import InvalidArgumentError, InvalidProgramError, _pytree

pytestmark = pytest.mark.matrix

STRUCTURES = [
    1,
    (1,),
    [1, 2],
    (),
    {},
    {"b": 1, "a": 2},
    {1: "x", 0: "y"},
    OrderedDict(b=1, a=(2, [3])),
    ((1, {"x": [2, (3,)]}), {"k": None}),
    [None, {"a": []}],
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
def test_as_torch_does(structure: Any) -> None:
    leaves, spec = torch_pytree.tree_flatten(structure)
    tree = _pytree.parse(torch_pytree.treespec_dumps(spec))
    assert tree.leaves == len(leaves)
    assert _pytree.flatten(tree, structure) == leaves
    built = _pytree.unflatten(tree, leaves)
    assert built == structure
    assert type(built) is type(structure)


def test_class_of_the_model() -> None:
    def spec(context: str) -> str:
        leaf = {"type": None, "context": None, "children_spec": []}
        node = {"type": "my.models.Output", "context": context, "children_spec": [leaf, leaf]}
        return json.dumps([1, node])

    assert _pytree.unflatten(_pytree.parse(spec('["a", "b"]')), [1, 2]) == {"a": 1, "b": 2}
    assert _pytree.unflatten(_pytree.parse(spec("null")), [1, 2]) == (1, 2)


LEAF = '{"type": null, "context": null, "children_spec": []}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "3",
        f"[2, {LEAF}]",
        "[1, 3]",
        '[1, {"type": "builtins.tuple"}]',
        '[1, {"type": 3, "context": null, "children_spec": []}]',
        f'[1, {{"type": null, "context": null, "children_spec": [{LEAF}]}}]',
        f'[1, {{"type": "builtins.dict", "context": "[]", "children_spec": [{LEAF}]}}]',
        f'[1, {{"type": "builtins.dict", "context": "[[]]", "children_spec": [{LEAF}]}}]',
        "[" * 100_000,
        '[1, {"type": "builtins.list", "context": "", "children_spec": [' * 200,
        "[1, "
        + '{"type": "builtins.list", "context": "", "children_spec": [' * 200
        + "]}" * 200
        + "]",
    ],
    ids=range(13),
)
def test_refused_specs(text: str) -> None:
    with pytest.raises(InvalidProgramError, match=r"^\[pytree\]"):
        _pytree.parse(text)


class Nested(torch.nn.Module):
    def forward(self, x, d, k=None):  # type: ignore[no-untyped-def]
        return {"z": x + d["a"], "y": (x * 2, [k + d["b"], None, 3])}


@pytest.fixture(scope="module")
def nested() -> runtime.Model:
    from runtime_models import lower

    x, a, b, k = torch.ones(4, 2).unbind()  # not one tensor: export would merge them
    program = torch.export.export(Nested(), (x.clone(), {"a": a.clone(), "b": b.clone()}), {"k": k})
    return runtime.load(lower(program))


def test_nested_model(nested: runtime.Model) -> None:
    x, a, b, k = (np.float32([i, 10 * i]) for i in range(1, 5))
    result = nested(x, {"b": b, "a": a}, k=k)
    assert list(result) == ["z", "y"]
    assert isinstance(result["y"], tuple)
    assert isinstance(result["y"][1], list)
    np.testing.assert_array_equal(result["z"], x + a)
    np.testing.assert_array_equal(result["y"][0], 2 * x)
    np.testing.assert_array_equal(result["y"][1][0], k + b)
    assert result["y"][1][1:] == [None, 3]


def test_inputs_that_do_not_fit(nested: runtime.Model) -> None:
    x = np.ones(2, np.float32)
    d = {"a": x, "b": x}
    for inputs, keywords, message in [
        ((x,), {"k": x}, "takes 2 positional arguments; got 1"),
        ((x, d, x, x), {}, "takes 2 positional arguments; got 4"),
        ((x, d), {}, "keyword arguments must be"),
        ((x, d), {"q": x}, "keyword arguments must be"),
        ((x, x), {"k": x}, r"arguments\[1\] must be a dict.*got ndarray"),
        ((x, {"a": x}), {"k": x}, r"arguments\[1\] must be a dict.*got the keys"),
        ((x, {"a": [x], "b": x}), {"k": x}, "input 1.*got list"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            nested(*inputs, **keywords)


def test_plain_model(add_pte: bytes, x: np.ndarray) -> None:
    model = runtime.load(add_pte, threads=1)
    y = model(x, x)
    assert isinstance(y, np.ndarray)
    np.testing.assert_array_equal(y, 2 * x)
    assert model.metadata.num_inputs() == 2
    for inputs, keywords in [((x,), {}), ((x, x, x), {}), ((x, x), {"k": x})]:
        with pytest.raises(InvalidArgumentError, match="argument"):
            model(*inputs, **keywords)


def test_other_methods(two_methods_pte: bytes, x: np.ndarray) -> None:
    model = runtime.load(two_methods_pte)
    assert model.method_names == {"encode", "decode"}
    np.testing.assert_array_equal(model.encode(x), x + 1)
    np.testing.assert_array_equal(model.run("decode", x), 2 * x)
    np.testing.assert_array_equal(runtime.load(two_methods_pte, method="decode")(x), 2 * x)
    with pytest.raises(runtime.NotFoundError, match="encode"):
        model(x)
    with pytest.raises(AttributeError, match="embed"):
        model.embed  # noqa: B018
    assert not hasattr(model, "_secret")


class Named(torch.nn.Module):
    def forward(self, x, mask=None, *, scale=None, extra=None):  # type: ignore[no-untyped-def]
        x = x if mask is None else x * mask
        return x if scale is None else x + scale["a"] - scale["b"][0]


X, MASK, SCALE = 2.0, 3.0, {"a": 5.0, "b": [7.0]}


@pytest.mark.parametrize(
    ("exported", "inputs", "keywords"),
    [
        # By edgewise.compile, which knows the order of `forward`; keywords in another order.
        ("compile", (X,), {"mask": MASK, "scale": SCALE}),
        ("compile", (X, MASK), {"scale": SCALE}),
        ("compile", (X, MASK, SCALE), {}),
        ("compile", (), {"scale": SCALE, "mask": MASK, "x": X}),
        # By torch.export, which keeps the order of the keywords that it was given.
        ("torch", (X,), {"mask": MASK, "scale": SCALE}),
        ("torch", (), {"scale": SCALE, "mask": MASK, "x": X}),
        # Everything by position there.
        ("positional", (X,), {"mask": MASK}),
        ("positional", (), {"mask": MASK, "x": X}),
        # One keyword, which can be meant alone.
        ("single", (X, SCALE), {}),
    ],
)
def test_by_position_and_by_name(exported: str, inputs: Any, keywords: Any) -> None:
    model = _named(exported)
    given = torch_pytree.tree_map(lambda v: np.full(2, v, np.float32), (inputs, keywords))
    values = {**dict(zip(("x", "mask", "scale"), inputs, strict=False)), **keywords}
    if exported == "single":
        values = {"x": X, "scale": SCALE}
    wanted = Named()(**torch_pytree.tree_map(torch.tensor, values))
    np.testing.assert_array_equal(model(*given[0], **given[1]), np.full(2, float(wanted)))


@pytest.mark.parametrize(
    ("exported", "inputs", "keywords", "message"),
    [
        ("torch", (X, MASK, SCALE), {}, "takes 1 positional.*try the others by name: scale, mask"),
        ("compile", (X, MASK), {"mask": MASK, "scale": SCALE}, "got mask by position and by name"),
        ("compile", (), {"mask": MASK, "scale": SCALE}, "got 0; x missing"),
        ("compile", (X, MASK, SCALE, X), {}, "takes 1 positional"),
        ("compile", (X,), {"mask": MASK}, r"keys \['scale', 'mask'\]; got the keys \['mask'\]"),
        ("positional", ({"x": X},), {}, r"try model\(\*\*inputs\)"),
    ],
)
def test_refused_names(exported: str, inputs: Any, keywords: Any, message: str) -> None:
    given = torch_pytree.tree_map(lambda v: np.full(2, v, np.float32), (inputs, keywords))
    with pytest.raises(InvalidArgumentError, match=message):
        _named(exported)(*given[0], **given[1])


@functools.cache
def _named(exported: str) -> runtime.Model:
    import edgewise

    def t() -> torch.Tensor:
        return torch.randn(2)

    scale = {"a": t(), "b": [t()]}
    if exported == "compile":
        call = {"example_kwargs": {"scale": scale, "mask": t()}}
        return runtime.load(edgewise.compile(Named(), (t(),), verbose=False, **call).buffer)  # type: ignore[arg-type]
    args: Any = {
        "torch": ((t(),), {"scale": scale, "mask": t()}),
        "positional": ((t(), t()), {}),
        "single": ((t(),), {"scale": scale}),
    }[exported]
    program = torch.export.export(Named(), *args)
    return runtime.load(edgewise.compile(program, verbose=False).buffer)


@pytest.mark.parametrize(
    "names", ['"x"', "[1]", '["x", "x"]', '["x", "y", "z"]', "[]", '["x"]', '["x", "k"]']
)
def test_names_in_a_spec(names: str) -> None:
    leaf = '{"type": null, "context": null, "children_spec": []}'
    spec = (
        '[1, {"type": "builtins.tuple", "context": "null", "children_spec": ['
        '{"type": "builtins.tuple", "context": "null", "children_spec": [' + leaf + "]}, "
        '{"type": "builtins.dict", "context": "[\\"k\\"]", "children_spec": [' + leaf + "]}], "
        '"arguments": ' + names + "}]"
    )
    torch_pytree.treespec_loads(spec)  # it passes over what it does not know
    if names in ("[]", '["x"]', '["x", "k"]'):
        assert list(_pytree.parse_call(spec)[1]) == json.loads(names)
    else:
        with pytest.raises(InvalidProgramError, match="argument"):
            _pytree.parse_call(spec)
