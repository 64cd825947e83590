"""Partitioners and backends of ExecuTorch's own package, over our lowering."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram

import edgewise
from edgewise.errors import PartitionError
from edgewise.format.file import read
from support import RUNTIMES, Fn, assert_close, eager, eager64, export, operators, payload_bytes

pytestmark = pytest.mark.peer


def named(path: str) -> Any:
    """An object of the installed ExecuTorch, imported when the test runs."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"executorch.{module}"), name)


def xnnpack() -> Any:
    return named("backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner")()


def vulkan() -> Any:
    return named("backends.vulkan.partitioner.vulkan_partitioner:VulkanPartitioner")()


class Conv(torch.nn.Sequential):
    """With a hardswish, which becomes sums and products with numbers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.Hardswish(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(8, 4),
        )


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.cond(x.sum() > 0, lambda x: self.a(x) + 1, lambda x: self.b(x), (x,))
        return found * 3


IMAGE = torch.rand(2, 3, 8, 8)
ROWS = torch.linspace(-1, 2, 12).reshape(3, 4)

NETS: dict[str, tuple[Callable[[], torch.nn.Module], torch.Tensor, Any, int]] = {
    "convolution": (Conv, IMAGE, None, 1),
    "open sizes": (Conv, IMAGE, ({0: Dim("b", max=4)},), 1),
    "branches": (Branches, ROWS, None, 3),
    "scaled sums": (lambda: Fn(lambda x: torch.add(x, 2, alpha=3) * 0.5 - 1), ROWS, None, 1),
}


@pytest.mark.parametrize("name", NETS)
def test_their_delegates_run_on_both_runtimes(name: str) -> None:
    make, x, shapes, delegates = NETS[name]
    module = make().eval()
    edge = edgewise.to_edge_transform_and_lower(
        export(module, (x,), dynamic_shapes=shapes), partitioner=[xnnpack()]
    )
    assert len(edge.delegation_report().delegates) == delegates
    pte = bytes(edge.to_executorch().buffer)
    calls = [(x,), (-x[:1] if shapes else -x,)]
    for run in RUNTIMES.values():
        for inputs, got in zip(calls, run(pte, *calls), strict=True):
            assert_close(got, eager64(module, inputs))


def test_the_payload_is_theirs(peer_pte: Callable[..., bytes]) -> None:
    """ExecuTorch's partitioner and ours name the same backend."""
    program = export(Fn(lambda x: torch.sigmoid(x) + x), (ROWS,))
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[xnnpack()])
    found = payload_bytes(bytes(edge.to_executorch().buffer))
    assert [*map(bytes, found)] == [*map(bytes, payload_bytes(peer_pte("sums", program)))]


def test_quantized_nodes_keep_what_the_partitioner_says_of_them() -> None:
    """Its marks of quantizations that are part of an operator, which its backend reads."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    home = "backends.xnnpack.quantizer.xnnpack_quantizer"
    quantizer = named(f"{home}:XNNPACKQuantizer")()
    quantizer.set_global(named(f"{home}:get_symmetric_quantization_config")(is_per_channel=True))
    prepared = prepare_pt2e(export(Conv().eval(), (IMAGE,)).module(), quantizer)
    prepared(IMAGE)
    module = convert_pt2e(prepared)
    edge = edgewise.to_edge_transform_and_lower(
        torch.export.export(module, (IMAGE,)), partitioner=[xnnpack()]
    )
    pte = bytes(edge.to_executorch().buffer)
    assert operators(pte) == ["delegate"]
    want = eager(module, (IMAGE,))
    steps = (want[0].max() - want[0].min()) / 255
    for run in RUNTIMES.values():
        assert_close(run(pte, (IMAGE,))[0], want, rel=0, floor=1.01 * float(steps))


def test_vulkan_then_ours() -> None:
    module = Fn(lambda x, w: torch.sort(x @ w).values.cumsum(1).exp(), w=torch.ones(4, 4))
    program = export(module, (ROWS,))
    edge = edgewise.to_edge_transform_and_lower(
        program, partitioner=[vulkan(), edgewise.backends.xnnpack.XnnpackPartitioner()]
    )
    report = edge.delegation_report()
    backends = {spec.backend_id for spec in _specs(edge)}
    assert backends == {"VulkanBackend"}
    assert "VulkanBackend: not a node that VulkanPartitioner takes" in " ".join(str(report).split())
    pte = bytes(edge.to_executorch().buffer)
    with pytest.raises(Exception, match="needs the backend 'VulkanBackend'"):
        RUNTIMES["ours"](pte, (ROWS,))


def _specs(edge: Any) -> Iterator[Any]:
    yield from edge.exported_program().graph_module.children()


@pytest.mark.parametrize("name", ["coreml", "vulkan"])
def test_by_name(name: str) -> None:
    if name == "coreml":
        pytest.importorskip("coremltools")
    module = Fn(lambda x: torch.relu(x) + x)
    program = edgewise.compile(module, (ROWS,), backend=f"{name},xnnpack", verbose=False)
    (delegate,) = {node.backend for node in program.delegation_report().nodes}
    assert delegate == {"coreml": "CoreMLBackend", "vulkan": "VulkanBackend"}[name]
    assert operators(bytes(program.buffer)) == ["delegate"]
    (need,) = program.needs()
    assert f"delegate {delegate}, where an application has it (from 1.0 on" in str(need)


def test_core_ml_keeps_state_that_it_takes_over() -> None:
    pytest.importorskip("coremltools")
    backend = named("backends.apple.coreml.compiler:CoreMLBackend")
    specs = backend.generate_compile_specs(
        minimum_deployment_target=importlib.import_module("coremltools").target.iOS18
    )

    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)  # type: ignore[operator]
            return self.total * 2

    for takes, buffers in ((True, []), (False, ["total"])):
        partitioner = named("backends.apple.coreml.partition:CoreMLPartitioner")(
            compile_specs=specs, take_over_mutable_buffer=takes
        )
        edge = edgewise.to_edge_transform_and_lower(
            export(Sum(), (ROWS,)), partitioner=[partitioner]
        )
        signature = edge.exported_program().graph_signature
        assert list(signature.buffers_to_mutate.values()) == list(signature.buffers) == buffers
        assert operators(bytes(edge.to_executorch().buffer)).count("delegate") == 1


@pytest.fixture(scope="module")
def theirs() -> Any:
    """A partitioner and backends as somebody wrote them for ExecuTorch."""
    base = named("exir.backend.backend_details:BackendDetails")
    result = named("exir.backend.backend_details:PreprocessResult")
    store = named("exir._serialize._named_data_store:NamedDataStore")
    spec = named("exir.backend.partitioner:DelegationSpec")
    tagged = named("exir.backend.partitioner:PartitionResult")
    option = named("exir.backend.compile_spec_schema:CompileSpec")
    names = named("exir.dialects._ops:ops")

    class Writing(base):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> Any:
            data = store()
            for name, tensor in edge_program.state_dict.items():
                data.add_named_data(name, tensor.detach().numpy().tobytes(), external_tag="kept")
                tensor.detach().zero_()  # a program of its own: the user's weights stay
            called = [n.target for n in edge_program.graph.nodes if n.op == "call_function"]
            assert set(called) <= {
                names.edge.aten.linear.default,
                names.edge.aten.tanh.default,
                names.edge.aten.mul.Tensor,
            }
            said = f"{len(called)} calls, {compile_specs[0].key}={compile_specs[0].value.decode()}"
            return result(said.encode(), data_store_output=data.get_named_data_store_output())

    class Together(base):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> Any:
            raise NotImplementedError

        @classmethod
        def preprocess_multimethod(cls, edge_programs: Any, compile_specs: Any) -> Any:
            count = sum(map(len, edge_programs.values()))
            return {
                name: [result(f"{name} {i} of {count}".encode()) for i, _ in enumerate(programs)]
                for name, programs in edge_programs.items()
            }

    class Broken(base):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> Any:
            raise KeyError("what Broken raises")

    class Own(named("exir.backend.partitioner:Partitioner")):
        def __init__(
            self, backend: str, adds: bool = False, taken: str = "linear.default tanh.default"
        ) -> None:
            super().__init__()
            self.delegation_spec = spec(backend, [option("level", b"7")])
            self.adds = adds
            self.taken = [attrgetter(name)(names.edge.aten) for name in taken.split()]

        def ops_to_not_decompose(self, ep: ExportedProgram) -> Any:
            return [torch.ops.aten.linear.default], None

        def partition(self, exported_program: ExportedProgram) -> Any:
            tag = str(self.taken)
            for node in exported_program.graph.nodes:
                if node.target in self.taken:
                    node.meta["delegation_tag"] = tag
                    for source in node.all_input_nodes:
                        if source.op == "placeholder" and source.name != "x":
                            source.meta["delegation_tag"] = tag
            if self.adds:
                graph = exported_program.graph
                (end,) = [node for node in graph.nodes if node.op == "output"]
                with graph.inserting_before(end):
                    graph.call_function(names.edge.aten.neg.default, (end.args[0][0],))
            return tagged(exported_program, {tag: self.delegation_spec})

    Own.backends = Writing, Together, Broken  # they are found among what is alive
    return Own


def linear() -> ExportedProgram:
    torch.manual_seed(0)
    return export(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()), (ROWS,))


def test_options_weights_and_data_files(theirs: Any) -> None:
    program = linear()
    weights = {name: value.detach().clone() for name, value in program.state_dict.items()}
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[theirs("Writing")])
    made = edge.to_executorch()
    assert bytes(payload_bytes(bytes(made.buffer))[0]) == b"2 calls, level=7"
    (delegate,) = read(bytes(made.buffer)).program.execution_plan[0].delegates
    assert [(s.key, bytes(s.value)) for s in delegate.compile_specs] == [("level", b"7")]
    (lowered,) = _specs(edge)
    assert {n: bytes(b) for n, b in lowered.named_data.items()} == {
        name: value.numpy().tobytes() for name, value in weights.items()
    }
    assert set(made._emitted.data_files) == {"kept"}
    for name, value in program.state_dict.items():
        assert torch.equal(value, weights[name])


def test_a_constant_of_two_partitioners(theirs: Any) -> None:
    """Each owns it: neither is given the weight as an input."""
    module = Fn(lambda x, w: torch.nn.functional.linear(x, w) + (x[:2] * w).sum(), w=ROWS[:2] + 1)
    edge = edgewise.to_edge_transform_and_lower(
        export(module, (ROWS,)),
        partitioner=[
            theirs("Writing", taken="linear.default"),
            theirs("Writing", taken="mul.Tensor"),
        ],
    )
    lowered = [*_specs(edge)]
    assert [list(one.original_module.state_dict) for one in lowered] == [["w"], ["w"]]
    assert [len(one.original_module.graph_signature.user_inputs) for one in lowered] == [1, 1]


def test_all_methods_at_once(theirs: Any) -> None:
    edge = edgewise.to_edge({"a": linear(), "b": linear()}).to_backend(theirs("Together"))
    found = {bytes(one) for one in payload_bytes(bytes(edge.to_executorch().buffer))}
    assert found == {b"a 0 of 2", b"b 0 of 2"}


def test_errors(theirs: Any) -> None:
    for partitioner, error, told in (
        (theirs("Missing"), PartitionError, r"imported backend of ExecuTorch's; got 'Missing'"),
        (theirs("Broken"), KeyError, "what Broken raises"),
        (theirs("Writing", adds=True), PartitionError, r"^\[Own\] .* got aten_neg_default"),
    ):
        with pytest.raises(error, match=told):
            edgewise.to_edge_transform_and_lower(linear(), partitioner=[partitioner])
