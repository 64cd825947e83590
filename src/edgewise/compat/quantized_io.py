"""`executorch.exir.passes.quantize_io_pass`, and NXP's pass for all inputs and outputs: borders of
a quantized program become integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from edgewise.lowering import EdgeProgramManager
from edgewise.lowering.quantized_io import Chosen, constant_name, quantize_io

__all__ = [
    "QuantizeInputs",
    "QuantizeOutputs",
    "RemoveIOQuantOpsPass",
    "extract_io_quant_params",
    "get_config_method_name",
]


class QuantizeIOPass:
    """A pass for `edge.transform`, which has `EdgeProgramManager.quantize_io` do it."""

    inputs: Chosen = False
    outputs: Chosen = False

    def __init__(self, edge_program_manager: Any = None, method_name: str | None = None) -> None:
        self.edge_program_manager = edge_program_manager
        self.method_name = method_name

    def __call__(self, module: GraphModule) -> None:
        """ValueError: a graph does not say which of its values are inputs."""
        raise ValueError(
            f"[{type(self).__name__}] is for a program; got a graph; try edge.transform([it])"
        )

    def apply(self, manager: EdgeProgramManager) -> EdgeProgramManager:
        """The manager with integers at its borders."""
        return manager.quantize_io(self.inputs, self.outputs, self.method_name)


class QuantizeInputs(QuantizeIOPass):
    """quantized_inputs_idx: indices of inputs. A dict with a scale for each, as ExecuTorch takes
    it, is refused: the inputs are given as the model quantizes them."""

    def __init__(
        self,
        edge_program_manager: Any,
        quantized_inputs_idx: Sequence[int] | Mapping[int, Any],
        method_name: str | None = None,
        exported_program: Any = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name)
        if isinstance(quantized_inputs_idx, Mapping):
            given = {i: value for i, value in quantized_inputs_idx.items() if value is not None}
            if given:
                raise ValueError(
                    f"[QuantizeInputs] inputs are given with the scales that the model quantizes "
                    f"them with; got others for {', '.join(map(str, given))}; try a list of indices"
                )
        self.inputs = list(quantized_inputs_idx)


class QuantizeOutputs(QuantizeIOPass):
    """quantized_outputs_idx_list: indices of outputs."""

    def __init__(
        self,
        edge_program_manager: Any,
        quantized_outputs_idx_list: Sequence[int],
        method_name: str | None = None,
        exported_program: Any = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name)
        self.outputs = list(quantized_outputs_idx_list)


class RemoveIOQuantOpsPass(QuantizeIOPass):
    """All inputs and outputs that are quantized."""

    inputs = True
    outputs = True


def extract_io_quant_params(
    edge_prog: EdgeProgramManager,
    *,
    input_idxs: Sequence[int] = (0,),
    output_idxs: Sequence[int] = (0,),
) -> dict[str, dict[str, dict[str, Any]]]:
    """The scale and zero point of each input and output that is named by index, by their nodes'
    names: {"inputs": {"x": {"scale": ..., "zero_point": ...}}, "outputs": {...}}. The program
    stays as it is. EdgewiseError if one is not quantized with one scale."""
    program = edge_prog.exported_program()
    signature = program.graph_signature
    names = {"input": signature.user_inputs, "output": signature.user_outputs}
    found: dict[str, dict[str, dict[str, Any]]] = {"inputs": {}, "outputs": {}}
    for border in quantize_io(program, list(input_idxs), list(output_idxs))[1]:
        found[f"{border.kind}s"][str(names[border.kind][border.index])] = {
            "scale": float(border.quantized.scale),
            "zero_point": int(border.quantized.zero_point),
        }
    return found


def get_config_method_name(
    prefix: str | None = "forward", arg_type: str = "input", index: int = 0, key: str = "scale"
) -> str:
    """Of the constant method that tells a scale, zero point, bound or type."""
    return constant_name(arg_type, index, key, prefix)
