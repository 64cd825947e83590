"""A backend for three operators, which numpy runs. docs/backends.md goes through it."""

import json

import numpy as np

from edgewise.backends import Backend, OperatorFacts

OPERATORS = {"aten.add.Tensor": "add", "aten.mul.Tensor": "multiply", "aten.tanh.default": "tanh"}


class Numpy(Backend):
    name, delegate_id = "numpy", "NumpyBackend"

    def partitioner(self, target):
        from edgewise_numpy.lowering import NumpyPartitioner  # imports torch, so not above

        return NumpyPartitioner()

    def operators(self):
        return [OperatorFacts(name, [name], "float32") for name in OPERATORS]

    def runtime_factory(self):
        return load


def load(payload, compile_specs, named_data):
    *steps, (_, outputs) = json.loads(payload)

    def run(arguments):
        values = arguments[: -len(outputs)]
        for name, operands in steps:
            values.append(getattr(np, name)(*(values[one] for one in operands)))
        return [values[one] for one in outputs]

    return run
