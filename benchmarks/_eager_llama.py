"""What `llm_equality.py` decodes in eager PyTorch: weights, and the same model in float64."""

import copy
import sys
from typing import Any

import torch
from torchao.quantization import IntxUnpackedToInt8Tensor
from torchao.quantization.quantize_.workflows.intx import intx_unpacked_to_int8_tensor as torchao

NORM_WEIGHTS = (0.5, 1.5)
_KNOWN = 0.02  # loss
_STEPS, _LARGEST_STEP = 80, 1e-3


def draw(model: Any, gain: float, seed: int) -> None:
    """Random weights whose text is not one token repeated: matrices `gain` times as large, the
    norms' weights spread."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(*NORM_WEIGHTS, generator=generator)
            elif "embed" not in name:
                weight.mul_(gain)


def learn(model: Any, text: torch.Tensor) -> None:
    """Trains until the model knows the tokens [1, S] by heart. RuntimeError if it does not.

    By the signs of the gradients, in steps that get smaller: nothing is kept for each weight.
    """
    weights = list(model.train().parameters())
    for step in range(_STEPS):
        loss = model(input_ids=text, labels=text).loss
        if step % 10 == 0:
            print(f"  step {step}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
        if loss.item() < _KNOWN:
            model.zero_grad()
            model.eval()
            return
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in weights:
                weight.add_(weight.grad.sign_(), alpha=-_LARGEST_STEP * (1 - step / _STEPS))
    raise RuntimeError(f"[learn] the loss must fall below {_KNOWN}; got {loss.item():.3f}")


def generate(model: Any, prompt: torch.Tensor, count: int) -> Any:
    """Greedy: `sequences` [1, prompt and new tokens], `logits` of each new token."""
    with torch.no_grad():
        return model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=count,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        )


class OnceDequantized:
    """While it is entered, torchao dequantizes each weight once, not in every call."""

    def __enter__(self) -> None:
        self._dequantize = dequantize = IntxUnpackedToInt8Tensor.dequantize
        known: dict[int, Any] = {}

        def once(weight: Any, *args: Any, **kwargs: Any) -> Any:
            place = weight.qdata.data_ptr()
            if place not in known:
                known[place] = dequantize(weight, *args, **kwargs)
            return known[place]

        IntxUnpackedToInt8Tensor.dequantize = once

    def __exit__(self, *error: object) -> None:
        IntxUnpackedToInt8Tensor.dequantize = self._dequantize


def _round_to_int8(x: torch.Tensor) -> torch.Tensor:
    """The rule of torchao, which takes no float64: each token's values in 256 steps."""
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(x.dtype).smallest_normal)
    zero = (-128 - torch.round(low / scale)).clamp(-128, 127)
    return ((torch.round(x * (1 / scale)) + zero).clamp(-128, 127) - zero) * scale


def _check_rule() -> None:
    x = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))
    if not torch.equal(_round_to_int8(x), torchao._apply_int8_act_asym_per_token_quant_dequant(x)):
        raise RuntimeError("[float64] activations must be quantized as torchao does")


class _Linear(torch.nn.Module):
    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self._quantizes = getattr(layer.weight, "activation_quantization", None) is not None
        self.weight = torch.nn.Parameter(_plain(layer.weight).double(), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._quantizes:
            x = _round_to_int8(x)
        return torch.nn.functional.linear(x, self.weight, self.bias)


class _Norm(torch.nn.Module):
    """That of `transformers` computes in float32 whatever it is given."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.double(), requires_grad=False)
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps)


def in_float64(model: Any) -> Any:
    """The same weights, activations quantized by the same rules, all sums in float64."""
    _check_rule()
    with torch.no_grad():
        skeleton = copy.deepcopy(model)
        for name, module in list(skeleton.named_modules()):
            if isinstance(module, torch.nn.Linear):
                skeleton.set_submodule(name, _Linear(module))
            elif type(module).__name__ == "LlamaRMSNorm":
                skeleton.set_submodule(name, _Norm(module.weight, module.variance_epsilon))
            elif isinstance(module, torch.nn.Embedding):
                module.weight = torch.nn.Parameter(_plain(module.weight), requires_grad=False)
        return skeleton.double()


def _plain(weight: torch.Tensor) -> torch.Tensor:
    is_quantized = isinstance(weight, IntxUnpackedToInt8Tensor)
    return (weight.dequantize() if is_quantized else weight).detach()
