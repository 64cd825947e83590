import json

from edgewise.edge.graph import calls, op_name
from edgewise.partition import BackendDetails, NodePartitioner, PreprocessResult, Refusal
from edgewise_numpy import OPERATORS


class NumpyPartitioner(NodePartitioner):
    delegate_id, owns_constants = "NumpyBackend", False

    def refusals(self, node, program):
        taken = op_name(node) in OPERATORS and {*node.args} == {*node.all_input_nodes}
        return (
            [] if taken else [Refusal(f"one of {', '.join(OPERATORS)}, of tensors", op_name(node))]
        )


class NumpyBackend(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        graph, number = edge_program.graph, list(edge_program.graph.nodes).index
        steps = [(OPERATORS[op_name(n)], list(map(number, n.args))) for n in calls(graph)]
        outputs = list(map(number, graph.output_node().args[0]))
        return PreprocessResult(json.dumps([*steps, ("outputs", outputs)]).encode())
