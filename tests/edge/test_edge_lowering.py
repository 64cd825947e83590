"""`to_edge` and `to_edge_transform_and_lower`: methods, passes, partitioners, errors."""

from __future__ import annotations

import copy
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from edge_support import spelling
from test_edge_functionalize import traces

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.edge.graph import calls
from edgewise.errors import EdgewiseError, InvalidGraphError, PartitionError
from edgewise.partition import CompileSpec, DelegationSpec, Partitioner, PartitionResult
from support import Fn, assert_close, eager64, export, operators, partitioners, run_ours

pytestmark = pytest.mark.matrix

aten = torch.ops.aten
X = (torch.randn(3, 4),)
lstm = torch.nn.LSTM(4, 2, batch_first=True)


def snapshot(program: torch.export.ExportedProgram) -> tuple[Any, ...]:
    return (
        str(program.graph),
        str(program.graph_signature),
        [(n.name, sorted(n.meta), str(n.meta.get("val"))) for n in program.graph.nodes],
        {k: (id(v), v.clone()) for k, v in program.state_dict.items()},
        sorted(program.constants),
    )


def same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    states = zip(a[3].items(), b[3].items(), strict=True)
    return (
        a[:3] == b[:3]
        and a[4] == b[4]
        and all(k == m and i == j and torch.equal(x, y) for (k, (i, x)), (m, (j, y)) in states)
    )


class Everything(torch.nn.Module):
    """In-place operators, a buffer that is written, a norm to fold, a dead constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        y = self.norm(self.conv(x)).relu_()
        y[0].mul_(2)
        return self.linear(y.mean((2, 3))) + self.calls


@pytest.mark.parametrize("name", ["everything", "tiny_cnn", "bert_small"])
def test_the_users_program_is_not_changed_and_traced_once_at_most(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.models import MODELS

    if name == "everything":
        module, inputs = Everything().eval(), (torch.randn(1, 3, 5, 5),)
    else:
        module, inputs = MODELS[name].build(0), MODELS[name].example_inputs(0)
    program = export(module, inputs)
    before, count = snapshot(program), traces(monkeypatch)
    for partitioner in ([], partitioners("xnnpack")):
        count.clear()
        edgewise.to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch()
        assert len(count) == (1 if name == "everything" else 0)
        assert same(before, snapshot(program))


def test_managers_are_not_changed() -> None:
    first = edgewise.to_edge(export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), X))
    before, report = str(first.exported_program().graph), str(first.delegation_report())
    second = first.to_backend(XnnpackPartitioner())
    third = second.transform([lambda module: None])
    assert str(first.exported_program().graph) == before
    assert str(first.delegation_report()) == report
    assert operators(second.to_executorch().buffer) == ["delegate"]
    assert operators(third.to_executorch().buffer) == ["delegate"]
    assert str(second.delegation_report()) == str(second.delegation_report())
    assert len(second.delegation_report().nodes) == len(third.delegation_report().nodes)
    assert "to_backend" not in [stage for stage, _ in first.timings["forward"].stages]


def test_several_methods_and_partitioners_of_their_own() -> None:
    one, other = Fn(lambda x: x.sin() + 1), torch.nn.Linear(4, 2)
    edge = edgewise.to_edge_transform_and_lower(
        {"one": export(one, X), "other": export(other, X)},
        partitioner={"other": XnnpackPartitioner()},
        constant_methods={
            "version": 3,
            "names": ["a", "b"],
            "scale": 0.5,
            "table": torch.arange(3),
        },
    )
    assert edge.methods == {"one", "other"}
    assert edge.config_methods == {"version", "names", "scale", "table"}
    program = edge.to_executorch()
    pte = program.buffer
    assert operators(pte, "other") == ["delegate"]
    assert "delegate" not in operators(pte, "one")
    assert_close(run_ours(pte, X, method="one")[0], eager64(one, X))
    assert_close(run_ours(pte, X, method="other")[0], eager64(other, X))
    assert run_ours(pte, (), method="version") == [[3]]
    assert run_ours(pte, (), method="scale") == [[0.5]]
    assert_close(run_ours(pte, (), method="table")[0], [torch.arange(3)])
    assert {r.method for r in map(program.delegation_report, edge.methods)} == {"one", "other"}


def test_partitioners_take_turns() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid())
    pair = [XnnpackPartitioner(["linear"]), XnnpackPartitioner(["sigmoid"])]
    edge = edgewise.to_edge_transform_and_lower(export(module, X), partitioner=pair)
    assert operators(edge.to_executorch().buffer) == ["delegate", "delegate"]
    again = edgewise.to_edge_transform_and_lower(export(module, X), partitioner=pair[:1])
    assert operators(again.to_executorch().buffer) == ["delegate", "aten::sigmoid.out"]
    twice = again.to_backend(pair[1])
    assert operators(twice.to_executorch().buffer) == ["delegate", "delegate"]
    report = twice.delegation_report()
    assert [n.operator for n in report.nodes] == ["aten.linear.default", "aten.sigmoid.default"]
    assert report.share() == 1


# --- passes ----------------------------------------------------------------------------


def sine_to_cosine(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.cos.default


def returns_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    sine_to_cosine(module)
    return module


def returns_result(module: torch.fx.GraphModule) -> Any:
    from torch.fx.passes.infra.pass_base import PassResult

    sine_to_cosine(module)
    return PassResult(module, True)


def returns_copy(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    new = torch.fx.GraphModule(module, module.graph)
    sine_to_cosine(new)
    return new


@pytest.mark.parametrize(
    "one", [sine_to_cosine, returns_module, returns_result, returns_copy], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
def test_transform_passes(one: Any, partitioner: str | None) -> None:
    edge = edgewise.to_edge_transform_and_lower(
        export(Fn(torch.sin), X), transform_passes=[one], partitioner=partitioners(partitioner)
    )
    assert_close(run_ours(edge.to_executorch().buffer, X)[0], [X[0].cos()])


class SinesFirst(Partitioner):
    """Wants sines in place of gelu, which would be decomposed; in turn, cosines for sines."""

    def __init__(self, old: Any, new: Any) -> None:
        self.old, self.new, self.asked = old, new, 0

    def transform_for_pre_decomposition(
        self, exported_program: torch.export.ExportedProgram
    ) -> torch.export.ExportedProgram:
        self.asked += 1
        for node in calls(exported_program.graph):
            if node.target == self.old:
                node.target, node.kwargs = self.new, {}
        return exported_program

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})


def test_partitioners_transform_what_was_exported() -> None:
    """In turn, before decomposition, a copy of the user's program; only the methods they are of."""
    gelu, sin, cos = aten.gelu.default, aten.sin.default, aten.cos.default
    net = Fn(lambda x: torch.nn.functional.gelu(x, approximate="tanh") * 2)
    programs = {"forward": export(net, X), "other": export(net, X)}
    before = snapshot(programs["forward"])
    first, second = SinesFirst(gelu, sin), SinesFirst(sin, cos)
    edge = edgewise.to_edge_transform_and_lower(programs, partitioner={"forward": [first, second]})
    assert (first.asked, second.asked) == (1, 1)
    program = edge.to_executorch()
    assert_close(run_ours(program.buffer, X)[0], [X[0].cos() * 2])
    assert_close(run_ours(program.buffer, X, method="other")[0], [net(*X)])
    assert same(snapshot(programs["forward"]), before)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_lstm_states_of_another_shape(used: int) -> None:
    """As torch.export of 2.12 records them: refused, if they are used."""
    program = export(Fn(lambda x: lstm(x)[0] if used == 0 else lstm(x)[1][used - 1]), (X[0][None],))
    (node,) = (n for n in calls(program.graph) if n.target == aten.lstm.input)
    y, *states = node.meta["val"]
    rule = r"first, \(1, 1, 2\); got \(1, 1, 1, 2\)"
    node.meta["val"] = (y, *(s if s.dim() == 4 else s.unsqueeze(0) for s in states))
    with pytest.raises(InvalidGraphError, match=rule) if used else nullcontext():
        edgewise.to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])


def test_a_transform_that_returns_nothing() -> None:
    class Forgetful(SinesFirst):
        def transform_for_pre_decomposition(self, exported_program: Any) -> Any:
            return None

    with pytest.raises(TypeError, match="Forgetful must return an ExportedProgram; got NoneType"):
        edgewise.to_edge_transform_and_lower(
            export(Fn(torch.sin), X), partitioner=[Forgetful(None, None)]
        )


def test_transform_passes_by_method() -> None:
    programs = {"a": export(Fn(torch.sin), X), "b": export(Fn(torch.sin), X)}
    pte = (
        edgewise.to_edge_transform_and_lower(programs, transform_passes={"b": [sine_to_cosine]})
        .to_executorch()
        .buffer
    )
    assert_close(run_ours(pte, X, method="a")[0], [X[0].sin()])
    assert_close(run_ours(pte, X, method="b")[0], [X[0].cos()])


# --- options -----------------------------------------------------------------------------


def test_preserved_operators_stay_whole() -> None:
    config = edgewise.EdgeCompileConfig(preserve_ops=[aten.silu.default])
    edge = edgewise.to_edge(export(torch.nn.SiLU(), X), compile_config=config)
    assert spelling(edge.exported_program()) == ["silu.default"]


# --- errors -----------------------------------------------------------------------------


def break_view(module: torch.fx.GraphModule) -> None:
    (node,) = [n for n in calls(module.graph) if n.target is aten.sin.default]
    node.target = aten.detach.default


def break_mutation(module: torch.fx.GraphModule) -> None:
    (node,) = [n for n in calls(module.graph) if n.target is aten.sin.default]
    node.target = aten.sin_.default


def break_function(module: torch.fx.GraphModule) -> None:
    (node,) = [n for n in calls(module.graph) if n.target is aten.sin.default]
    node.target = torch.sin


def break_value(module: torch.fx.GraphModule) -> None:
    (node,) = [n for n in calls(module.graph) if n.target is aten.sin.default]
    del node.meta["val"]


def break_method(module: torch.fx.GraphModule) -> None:
    (node,) = [n for n in calls(module.graph) if n.target is aten.sin.default]
    node.op, node.target = "call_method", "sin"


@pytest.mark.parametrize(
    ("breaks", "rule"),
    [
        (break_view, "operators must not return views; got aten.detach.default"),
        (
            break_mutation,
            "operators must be functional; got aten.sin_.default, which writes its input",
        ),
        (break_function, "calls must be of operators; got sin"),
        (break_value, "nodes must carry a value; got none"),
        (break_method, "calls must be of functions; got a call_method; try torch.export"),
    ],
)
def test_dialect_errors_name_the_node_and_the_source_line(breaks: Any, rule: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)  # the line in question

    edge = edgewise.to_edge(export(Model(), X))
    with pytest.raises(InvalidGraphError) as raised:
        edge.transform([breaks])
    message = str(raised.value)
    assert rule in message
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.endswith("  # the line in question"))
    assert message.startswith("[sin: ")
    assert f"{__file__}:{line}]" in message


def test_an_exception_lets_an_operator_pass() -> None:
    config = edgewise.EdgeCompileConfig(_core_aten_ops_exception_list=[aten.detach.default])
    edgewise.to_edge(export(Fn(torch.sin), X), compile_config=config).transform([break_view])
    config = edgewise.EdgeCompileConfig(_check_ir_validity=False)
    edgewise.to_edge(export(Fn(torch.sin), X), compile_config=config).transform([break_view])


class Tagger(Partitioner):
    """Tags what it is told to, right or wrong."""

    def __init__(self, tag: Any, specs: dict[str, DelegationSpec], same: bool = True) -> None:
        self._tag, self._specs, self._same = tag, specs, same

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        for node in calls(exported_program.graph):
            tag = self._tag(node)
            if tag:
                node.meta["delegation_tag"] = tag
        program = exported_program if self._same else export(Fn(torch.sin), X)
        return PartitionResult(program, self._specs)


XNNPACK = DelegationSpec("XnnpackBackend", [CompileSpec("k", b"v")])


def program() -> torch.export.ExportedProgram:
    return export(Fn(lambda x: (x.sin() + 1).sigmoid()), X)


ERRORS: dict[str, tuple[Any, type[Exception], str]] = {
    "not a program": (
        lambda: edgewise.to_edge(torch.nn.ReLU()),
        TypeError,
        "[to_edge] programs must be an ExportedProgram or a non-empty dict of them; got ReLU; try",
    ),
    "no programs": (lambda: edgewise.to_edge({}), TypeError, "non-empty dict"),
    "a method that is no program": (
        lambda: edgewise.to_edge({"encode": torch.nn.ReLU()}),
        TypeError,
        "[encode] programs must be torch.export.ExportedProgram; got ReLU",
    ),
    "a name for a partitioner": (
        lambda: edgewise.to_edge_transform_and_lower(program(), partitioner=["xnnpack"]),
        TypeError,
        "a partitioner must have a method `partition`; got 'xnnpack'; try an instance",
    ),
    "a class that was not called": (
        lambda: edgewise.to_edge_transform_and_lower(program(), partitioner=[XnnpackPartitioner]),
        TypeError,
        "try an instance, such as XnnpackPartitioner()",
    ),
    "a partitioner for no method": (
        lambda: edgewise.to_edge_transform_and_lower(
            program(), partitioner={"encode": XnnpackPartitioner()}
        ),
        PartitionError,
        "partitioners must be for methods of the program (forward); got encode",
    ),
    "an unknown method": (
        lambda: edgewise.to_edge(program()).exported_program("encode"),
        KeyError,
        "must be one of forward; got 'encode'",
    ),
    "a pass that returns something else": (
        lambda: edgewise.to_edge(program()).transform([lambda module: 3]),
        EdgewiseError,
        "a pass must return a GraphModule, a PassResult or None; got int",
    ),
    "an unknown tag": (
        lambda: edgewise.to_edge(program()).to_backend(Tagger(lambda n: "t", {})),
        PartitionError,
        "a node's delegation_tag must be a key of partition_tags; got 't' on sin",
    ),
    "an unknown backend": (
        lambda: edgewise.to_edge(program()).to_backend(
            Tagger(lambda n: "t", {"t": DelegationSpec("Abacus")})
        ),
        PartitionError,
        "must name an imported backend; got 'Abacus'; try one of:",
    ),
    "another program": (
        lambda: edgewise.to_edge(program()).to_backend(Tagger(lambda n: None, {}, same=False)),
        PartitionError,
        "[Tagger] partition must return the program that it was given, tagged; got another one",
    ),
    "a partition around another node": (
        lambda: edgewise.to_edge(program()).to_backend(
            Tagger(lambda n: None if "add" in n.name else "t", {"t": XNNPACK})
        ),
        PartitionError,
        "a partition must not depend on itself through nodes outside of it; got a cycle through",
    ),
    "a node that the backend has no row for": (
        lambda: edgewise.to_edge(export(Fn(torch.atan), X)).to_backend(
            Tagger(lambda n: "t", {"t": XNNPACK})
        ),
        PartitionError,
        "an operator of the XNNPACK table; got aten.atan.default; try a partitioner that tags what",
    ),
    "an unknown row": (
        lambda: XnnpackPartitioner(["relu", "abacus"]),
        ValueError,
        "configs must be names of the operator table; got abacus; try some of: ",
    ),
    "a precision that is none": (
        lambda: XnnpackPartitioner(config_precisions="fp32"),
        TypeError,
        "config_precisions must be of ConfigPrecisionType; got 'fp32'",
    ),
    "two methods of one name": (
        lambda: edgewise.to_edge(program(), constant_methods={"forward": 3}).to_executorch(),
        EdgewiseError,
        "a name must be one method's; got forward twice",
    ),
    "a constant method that returns an object": (
        lambda: edgewise.to_edge(program(), constant_methods={"x": object()}).to_executorch(),
        EdgewiseError,
        "[x] constant methods return numbers, strings or tensors; got object",
    ),
    "a model without inputs": (
        lambda: edgewise.compile(torch.nn.ReLU()),
        TypeError,
        "example_inputs must be given for a module; got None",
    ),
    "a backend that is none": (
        lambda: edgewise.compile(torch.nn.ReLU(), X, backend="abacus"),
        ValueError,
        "backend must be one of xnnpack, coreml, vulkan, openvino, none, or a target of Ethos-U",
    ),
    "a model that is none": (
        lambda: edgewise.compile("model"),
        TypeError,
        "must be a torch.nn.Module or an ExportedProgram; got str",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=re.escape(text)):
        call()


COMPILED = {
    "float": {},
    "int8": {"quantize": "int8", "calibration": [X[0]]},
    "int8-dynamic": {"quantize": "int8-dynamic"},
    "auto": {"quantize": "auto", "calibration": [X[0]]},
}


@pytest.mark.parametrize("name", COMPILED)
def test_compile_leaves_each_module_in_its_mode(name: str) -> None:
    """A frozen part of a model that trains, say."""
    frozen = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    model = torch.nn.Sequential(frozen, torch.nn.Dropout())
    before = [(module, module.training) for module in model.modules()]
    assert {training for _, training in before} == {True, False}
    compiled = edgewise.compile(model, X[0], **COMPILED[name])
    assert [(module, module.training) for module in model.modules()] == before
    (got,) = run_ours(compiled.buffer, X)[0]
    assert torch.nn.functional.mse_loss(torch.as_tensor(got), frozen(X[0])) < 1e-3


class NamedLikeAFunction(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.linear(input)


@pytest.mark.parametrize("what", ["exported", "edge", "lowered", "finished"])
def test_copies_lower(what: str) -> None:
    """copy.deepcopy renames `input` in the graph, not in the signature."""
    module, inputs = NamedLikeAFunction().eval(), (torch.randn(4, 3),)
    exported = export(module, inputs)
    if what == "exported":
        exported = copy.deepcopy(exported)
    edge = edgewise.to_edge(exported)
    edge = copy.deepcopy(edge) if what == "edge" else edge
    lowered = edge.to_backend(XnnpackPartitioner())
    program = (copy.deepcopy(lowered) if what == "lowered" else lowered).to_executorch()
    program = copy.deepcopy(program) if what == "finished" else program
    assert_close(run_ours(program.buffer, inputs)[0], eager64(module, inputs))


def test_the_report_of_several_methods_shows_all() -> None:
    programs = {n: export(NamedLikeAFunction(), (torch.randn(4, 3),)) for n in ("encode", "decode")}
    edge = edgewise.to_edge(programs)
    for report in (edge.delegation_report(), edge.to_executorch().delegation_report()):
        shown = [line for line in str(report).splitlines() if line.startswith("method")]
        assert [line.partition(":")[0] for line in shown] == ["method encode", "method decode"]
    assert str(edge.delegation_report("decode")).startswith("method decode")
    assert "encode" not in str(edge.delegation_report("decode"))


def test_complex_numbers_are_refused_with_their_line() -> None:
    """Where an operator has no form in real ones."""
    model = Fn(lambda x: torch.logcumsumexp(torch.complex(x, x), 0).abs())
    with pytest.raises(EdgewiseError, match=r"\[\w+: aten\.\S+, \S*:\d+\] .*complex.*; try real"):
        edgewise.to_edge(export(model, (torch.randn(3, 4),)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x << 2,
        lambda x: x >> 1,
        lambda x: 3 << x.abs(),
        lambda x: torch.bitwise_right_shift(1000, x.abs()),
        lambda x: torch.bitwise_left_shift(x, x.abs()),
        lambda x: torch._int_mm(x.to(torch.int8).repeat(8, 4), x.to(torch.int8).repeat(8, 4).T),
    ],
)
def test_shifts_and_products_of_integers(function: Any) -> None:
    x = torch.randint(-5, 6, (4, 8))
    module = Fn(function)
    pte = edgewise.to_edge(export(module, (x,))).to_executorch().buffer
    assert torch.equal(torch.as_tensor(run_ours(pte, (x,))[0][0]), module(x))
