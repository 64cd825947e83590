"""Mixtures of experts as programs: what no token chose is not computed."""

from __future__ import annotations

import copy
from typing import Any

import torch

__all__ = ["LinearExperts", "with_linear_experts", "with_plain_integers"]


class LinearExperts(torch.nn.Module):
    """The experts of a `transformers` model, which holds them as tensors [experts, out, in].

    Each has linear layers of its own, which can be quantized as all others. An expert runs in a
    branch: for a single token, those that it chose and no others are computed and their weights
    read; an expert that some token of a prompt chose is computed for all of them.
    """

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.act_fn = original.act_fn
        self.gate_up = torch.nn.ModuleList(map(_linear, original.gate_up_proj))
        self.down = torch.nn.ModuleList(map(_linear, original.down_proj))

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """hidden_states [T, hidden]; top_k_index and top_k_weights [T, k], of each token's experts.

        Returns the weighted sum [T, hidden].
        """
        result = torch.zeros_like(hidden_states)
        for number in range(len(self.down)):
            is_chosen = top_k_index == number
            share = torch.where(is_chosen, top_k_weights, torch.zeros(())).sum(-1, keepdim=True)

            def run(x: Any, share: Any, sum_: Any, number: int = number) -> Any:
                both = self.gate_up[number](x)
                half = both.shape[-1] // 2
                active = self.act_fn(both[:, :half]) * both[:, half:]
                return sum_ + self.down[number](active) * share

            def skip(x: Any, share: Any, sum_: Any) -> Any:
                return sum_.clone()

            operands = hidden_states, share, result
            if torch.compiler.is_exporting():
                result = torch.cond(is_chosen.any(), run, skip, operands)
            elif is_chosen.any():
                result = run(*operands)
        return result


class IntegerLinear(torch.nn.Module):
    """A linear layer that torchao's `quantize_` made, with its integers as plain tensors.

    torch traces branches in a way that torchao's tensors do not take.
    """

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        weight: Any = layer.weight
        for name in ("qdata", "scale", "zero_point"):
            self.register_buffer(name, getattr(weight, name), persistent=False)
        self.bias = layer.bias
        self._is_dynamic = weight.activation_quantization is not None
        bits = int(str(weight.target_dtype).removeprefix("torch.int"))
        self._bounds = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        self._block_size, self._dtype = weight.block_size, weight.dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        from torchao.quantization.quantize_.workflows.intx import intx_unpacked_to_int8_tensor as ao

        if self._is_dynamic:
            x = ao._apply_int8_act_asym_per_token_quant_dequant(x)
        weight = ao.dequantize_affine(
            self.qdata,
            self._block_size,
            self.scale,
            self.zero_point,
            torch.int8,
            *self._bounds,
            output_dtype=self._dtype,
        )
        return torch.nn.functional.linear(x, weight, self.bias)


def with_plain_integers(model: Any) -> None:
    """Quantized layers of the model's experts become `IntegerLinear`, in place."""
    for experts in model.modules():
        if not isinstance(experts, LinearExperts):
            continue
        for layers in (experts.gate_up, experts.down):
            for number, layer in enumerate(layers):
                if hasattr(layer, "weight") and hasattr(layer.weight, "qdata"):
                    layers[number] = IntegerLinear(layer)  # type: ignore[arg-type]


def with_linear_experts(model: Any) -> Any:
    """The model itself, or a copy with the same weights if it has experts."""
    found = [name for name, module in model.named_modules() if _has_experts(module)]
    if not found:
        return model
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, tensors)
    for name in found:
        model.set_submodule(name, LinearExperts(model.get_submodule(name)))
    return model


def _has_experts(module: Any) -> bool:
    stacked = (getattr(module, name, None) for name in ("gate_up_proj", "down_proj"))
    is_stacked = all(isinstance(t, torch.Tensor) and t.dim() == 3 for t in stacked)
    # gpt-oss has biases, and its weights the other way round.
    return is_stacked and getattr(module, "gate_up_proj_bias", None) is None


def _linear(weight: torch.Tensor) -> torch.nn.Linear:
    made = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    made.weight = torch.nn.Parameter(weight.detach(), requires_grad=False)
    return made
