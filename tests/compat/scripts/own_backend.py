# A backend of one's own, as ExecuTorch's documentation for makers of backends has it: whole modules,
# what a partitioner tags, several methods at once, and named data.
import tempfile
from pathlib import Path

import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_api import (
    LoweredBackendModule,
    MethodProgramsPartitionerSpec,
    to_backend,
)
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import DelegateMappingBuilder, tag_constant_data
from executorch.exir.lowered_backend_module import get_lowered_submodules
from executorch.exir.passes.external_constants_pass import (
    delegate_external_constants_pass_unlifted,
)
from executorch.exir.schema import DataLocation, DelegateCall
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

import edgewise

OPERATORS = {
    torch.ops.aten.sin.default: np.sin,
    torch.ops.aten.add.Tensor: np.add,
    torch.ops.aten.mul.Tensor: np.multiply,
}


class Interpreter(BackendDetails):
    """The payload is text: a line for each call, with the places of its arguments."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        builder, data, lines = DelegateMappingBuilder(generated_identifiers=True), NamedDataStore(), []
        places = {}
        tensors = {**edge_program.state_dict, **edge_program.constants}
        signature = edge_program.graph_signature
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for node in edge_program.graph.nodes:
            if node.op == "output":
                break
            places[node] = len(places)
            if node.name in held:
                tag = dict((s.key, s.value.decode()) for s in compile_specs).get("file")
                data.add_named_data(node.name, tensors[held[node.name]], external_tag=tag)
                lines.append(f"data {node.name}")
            elif node.op == "placeholder":
                lines.append("input")
            else:
                builder.insert_delegate_mapping_entry(nodes=node)
                name = next(o._schema.name for o in OPERATORS if o is node.target)
                lines.append(" ".join([name, *(str(places[a]) for a in node.args)]))
        lines.append(" ".join(["return", *(str(places[n]) for n in node.args[0])]))
        return PreprocessResult(
            "\n".join(lines).encode(),
            builder.get_delegate_mapping(),
            data.get_named_data_store_output(),
        )


def start(payload, compile_specs, named_data):
    calls = {op._schema.name: function for op, function in OPERATORS.items()}

    def run(arguments):
        given, values = iter(arguments), []
        for line in bytes(payload).decode().splitlines():
            name, *rest = line.split()
            if name == "return":
                return [values[int(place)] for place in rest]
            if name == "input":
                values.append(next(given))
            elif name == "data":
                values.append(np.frombuffer(named_data(rest[0]), np.float32))
            else:
                values.append(calls[name](*(values[int(place)] for place in rest)))

    return run


edgewise.runtime.register_backend("Interpreter", start)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.sin(x) * self.weight


def edge_of(module, *inputs):
    return to_edge(torch.export.export(module, inputs))


x = torch.randn(4)
net = Net().eval()

# A whole module, alone and as a part of another one.
lowered = to_backend("Interpreter", edge_of(net, x).exported_program(), [])
assert isinstance(lowered, LoweredBackendModule)
assert lowered.backend_id == "Interpreter"
assert lowered.processed_bytes.startswith(b"data p_weight")
assert torch.equal(lowered(x), net(x))
(alone,) = _load_for_executorch_from_buffer(lowered.buffer()).forward((x,))
assert torch.allclose(alone, net(x), atol=1e-6)


class Composed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = lowered
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(self.part(self.part(x)).reshape(1, 4)), self.part(x)


composed = Composed().eval()
for strict in (False, True):
    program = torch.export.export(composed, (x,), strict=strict)
    made = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    graph_module = made.exported_program().graph_module
    backends = [module.backend_id for _, module, _ in get_lowered_submodules(graph_module)]
    assert sorted(backends) == ["Interpreter"] * 3 + ["XnnpackBackend"], backends
    results = _load_for_executorch_from_buffer(made.to_executorch().buffer).forward((x,))
    for result, expected in zip(results, composed(x)):
        assert torch.allclose(result, expected, atol=1e-5)
assert "torch.ops.higher_order.executorch_call_delegate" in graph_module.code


class Tags(Partitioner):
    """All sines and products, with the constants that they read or without."""

    def __init__(self, with_constants, specs=()):
        super().__init__({"constants": with_constants})
        self.delegation_spec = DelegationSpec("Interpreter", list(specs))

    def partition(self, program):
        for node in program.graph.nodes:
            if node.op == "call_function" and node.target in OPERATORS:
                node.meta["delegation_tag"] = "all"
        if self.spec["constants"]:
            tag_constant_data(program)
        return PartitionResult(program, {"all": self.delegation_spec})


for with_constants in (False, True):
    delegated = edge_of(net, x).to_backend(Tags(with_constants))
    program = delegated.exported_program()
    ((_, module, call),) = get_lowered_submodules(program.graph_module)
    assert len(call.args) == (2 if with_constants else 3), "the constant is an input, or owned"
    assert len(program.state_dict) == (0 if with_constants else 1)
    assert module.debug_handle_map == {0: (1,), 1: (2,)}, module.debug_handle_map
    executorch = delegated.to_executorch()
    plan = executorch.executorch_program.execution_plan[0]
    assert isinstance(plan.chains[0].instructions[0].instr_args, DelegateCall)
    assert plan.delegates[0].processed.location == DataLocation.SEGMENT
    (result,) = _load_for_executorch_from_buffer(executorch.buffer).forward((x,))
    assert torch.allclose(result, net(x), atol=1e-6)


# Beside another partitioner, whose partitions own what they read.
program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), Net()).eval(), (x[None],))
both = [Tags(with_constants=False), XnnpackPartitioner()]
delegated = to_edge_transform_and_lower(program, partitioner=both).exported_program()
calls = get_lowered_submodules(delegated.graph_module)
found = sorted((module.backend_id, len(call.args)) for _, module, call in calls)
assert found == [("Interpreter", 3), ("XnnpackBackend", 2)], found
try:
    data = NamedDataStore()
    data.add_named_data("key", b"one")
    data.add_named_data("key", b"other")
except ValueError:
    data.add_named_data("another", b"other")
    assert data.get_named_data_store_output().buffers == [b"one", b"other"]


# Methods that are compiled together.
class Together(Interpreter):
    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        count = sum(map(len, edge_programs.values()))
        assert {name: len(specs) for name, specs in compile_specs.items()} == {"a": 1, "b": 1}
        return {
            name: [
                PreprocessResult(f"{count} partitions".encode(), {}) for program in edge_programs[name]
            ]
            for name in edge_programs
        }


class TagsTogether(Tags):
    def __init__(self):
        super().__init__(True)
        self.delegation_spec = DelegationSpec("Together", [CompileSpec("key", b"value")])


programs = {name: edge_of(net, x).exported_program() for name in "ab"}
for name, program in to_backend(MethodProgramsPartitionerSpec(programs, TagsTogether())).items():
    assert program.graph_module.lowered_module_0.processed_bytes == b"2 partitions", name

# Weights in a file beside the program: of one's own backend, and of XNNPACK's.
own = edge_of(net, x).to_backend(Tags(True, [CompileSpec("file", b"weights")])).to_executorch()
layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
unlifted = torch.export.export(layers, (x[None],)).module()
delegate_external_constants_pass_unlifted(
    unlifted, lambda node: "weights" if str(node.target).startswith("0.") else None
)
xnnpack = to_edge_transform_and_lower(
    torch.export.export(unlifted, (x[None],)),
    partitioner=[XnnpackPartitioner()],
    compile_config=EdgeCompileConfig(_check_ir_validity=False),
).to_executorch()
with tempfile.TemporaryDirectory() as folder:
    for program, model, given in ((own, net, x), (xnnpack, layers, x[None])):
        file = Path(folder, "model.pte")
        file.write_bytes(program.buffer)
        program.write_tensor_data_to_file(folder)
        weights = Path(folder, "weights.ptd")
        loaded = edgewise.load(file, data_path=weights)
        assert np.allclose(loaded(given.numpy()), model(given).detach().numpy(), atol=1e-5)
        weights.unlink()
assert len(xnnpack._tensor_data["weights"]) < 8 * 5 * 4 + 1024, "the first layer alone"
