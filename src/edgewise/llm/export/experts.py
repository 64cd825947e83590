"""Mixtures of experts as programs: what no token chose is not computed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from edgewise.llm.export.shared_copy import shared_copy

__all__ = ["LinearExperts", "with_linear_experts", "with_plain_integers"]


class LinearExperts(torch.nn.Module):
    """The experts of a `transformers` model, which holds them as tensors [experts, out, in], or
    [experts, in, out] if they are transposed.

    Each has linear layers of its own, which can be quantized as all others. An expert runs in a
    branch: for a single token, those that it chose and no others are computed and their weights
    read; an expert that some token of a prompt chose is computed for all of them. Numbers of
    experts beyond those that have a second layer stand for the token as it is (LongCat).
    """

    def __init__(self, original: Any) -> None:
        super().__init__()
        has_gate = _first(original) == "gate_up_proj"
        self._activation = _activation(original) if has_gate else original.act_fn
        up = list(_linear_layers(original, _first(original)))
        self.down = torch.nn.ModuleList(_linear_layers(original, "down_proj"))
        self.up = torch.nn.ModuleList(up[: len(self.down)])
        self._has_identities = len(up) > len(self.down)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """hidden_states [T, hidden]; top_k_index and top_k_weights [T, k], of each token's experts.

        Returns the weighted sum [T, hidden].
        """
        result = torch.zeros_like(hidden_states)
        if self._has_identities:
            is_kept = top_k_index >= len(self.down)
            share = torch.where(is_kept, top_k_weights, torch.zeros(())).sum(-1, keepdim=True)
            result = hidden_states * share
        for number in range(len(self.down)):
            is_chosen = top_k_index == number
            share = torch.where(is_chosen, top_k_weights, torch.zeros(())).sum(-1, keepdim=True)

            def run(x: Any, share: Any, sum_: Any, number: int = number) -> Any:
                active = self._activation(self.up[number](x))
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
        for layers in (experts.up, experts.down):
            for number, layer in enumerate(layers):
                if hasattr(layer, "weight") and hasattr(layer.weight, "qdata"):
                    layers[number] = IntegerLinear(layer)  # type: ignore[arg-type]


def with_linear_experts(model: Any) -> Any:
    """The model itself, or a copy with the same weights if it has experts.

    ValueError if experts compute something else than two linear layers with the gate between them.
    """
    found = [name for name, module in model.named_modules() if _has_experts(module)]
    if not found:
        return model
    model = shared_copy(model)
    checked: set[type] = set()
    for name in found:
        original = model.get_submodule(name)
        made = LinearExperts(original)
        if type(original) not in checked:
            checked.add(type(original))
            _check_same(original, made)
        model.set_submodule(name, made)
    return model


_TOKENS = 3


def _check_same(original: Any, made: LinearExperts) -> None:
    """On a few random tokens, each of which chooses two experts."""
    weight: Any = made.down[0].weight
    generator = torch.Generator().manual_seed(0)
    count = len(getattr(original, _first(original)))
    states = torch.randn(_TOKENS, weight.shape[0], generator=generator).to(weight.dtype)
    last = torch.tensor([0, count // 2, count - 1])  # all kinds of experts that there may be
    chosen = torch.stack([torch.randint(count, (_TOKENS,), generator=generator), last], -1)
    shares = torch.rand(_TOKENS, 2, generator=generator).to(weight.dtype)
    with torch.no_grad():
        want, got = original(states, chosen, shares), made(states, chosen, shares)
    if not torch.allclose(got, want, rtol=1e-3, atol=1e-3 * float(want.std())):
        raise ValueError(
            f"[llm] experts must be two linear layers with a gate between them; got "
            f"{type(original).__name__}, which computes something else; try a model that "
            f"docs/llm.md lists"
        )


def _has_experts(module: Any) -> bool:
    stacked = (getattr(module, name, None) for name in (_first(module), "down_proj"))
    if len(inspect.signature(module.forward).parameters) < 3:
        return False  # computes all experts for all tokens
    return all(isinstance(t, torch.Tensor) and t.dim() == 3 for t in stacked)


def _first(experts: Any) -> str:
    """The name of the weights that an expert's input meets."""
    return "gate_up_proj" if hasattr(experts, "gate_up_proj") else "up_proj"


def _activation(original: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """What becomes of a gate and what it lets through, [T, 2 * inner] to [T, inner]."""
    if not hasattr(original, "_apply_gate"):  # before transformers 5.4

        def apply_gate(both: torch.Tensor) -> torch.Tensor:
            gate, up = both.chunk(2, dim=-1)
            active: torch.Tensor = original.act_fn(gate) * up
            return active

        return apply_gate
    without_weights = copy.copy(original)
    without_weights._parameters = {}
    apply: Callable[[torch.Tensor], torch.Tensor] = without_weights._apply_gate
    return apply


def _linear_layers(original: Any, name: str) -> Iterator[torch.nn.Linear]:
    biases = getattr(original, f"{name}_bias", None)
    for number, weight in enumerate(getattr(original, name)):
        weight = weight.detach()
        if getattr(original, "is_transposed", False):
            weight = weight.T.contiguous()
        out, in_ = weight.shape
        made = torch.nn.Linear(in_, out, bias=biases is not None, device="meta")
        made.weight = torch.nn.Parameter(weight, requires_grad=False)
        if biases is not None:
            made.bias = torch.nn.Parameter(biases[number].detach(), requires_grad=False)
        yield made
