"""How quantized checkpoints of `transformers` hold weights, and the numbers that these stand for.

One function for each `quant_method` takes the stored tensors by name and returns those of the float
model, in float32. A weight is [out, in]; groups are of inputs that share a scale.

Sources: AutoGPTQ's and GPTQModel's `pack`, AutoAWQ's `WQLinear_GEMM`, for the order of bits; OCP
Microscaling Formats 1.0 for MXFP4; compressed-tensors' compressors; bitsandbytes' `QuantState`;
torchao's tensor classes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from edgewise.llm.export.mlx_weights import FP4, mlx_problem, mlx_weights

__all__ = ["PACKINGS", "packing_problem"]

Tensors = Mapping[str, torch.Tensor]

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in 32 bits AWQ puts 4-bit columns 0 to 7."""


def packing_problem(about: Mapping[str, Any]) -> str:
    """Why weights under this `quantization_config` cannot be read; "" if they can."""
    method = about.get("quant_method")
    if method not in PACKINGS:
        return (
            f"a quantized checkpoint must be of {', '.join(PACKINGS)} or GGUF; got {method!r}; "
            f"try the model's float checkpoint"
        )
    if method in ("gptq", "awq"):
        bits, version = int(about.get("bits", 4)), str(about.get("version", "gemm")).lower()
        if bits not in (4, 8) or (method == "awq" and (bits, version) != (4, "gemm")):
            return (
                f"must be gptq of 4 or 8 bits, or awq of 4 in the form gemm; got {method} of "
                f"{bits} bits, {version}"
            )
    if method == "mlx":
        return mlx_problem(about)
    if method == "compressed-tensors":
        sparse = (about.get("sparsity_config") or {}).get("format", "dense")
        formats = {sparse} - {"dense"} | {_format(about, group) for group in _groups(about)}
        unknown = sorted(formats - _COMPRESSED)
        if unknown:
            known = ", ".join(sorted(_COMPRESSED))
            return f"compressed-tensors must be {known}; got {', '.join(unknown)}"
    return ""


def _gptq(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """`qweight` [in / n, out], `qzeros` [groups, out / n], `scales` [groups, out]; `g_idx` [in],
    the group of each input."""
    bits, added = int(about.get("bits", 4)), 0 if about.get("checkpoint_format") == "gptq_v2" else 1
    found = _others(stored, ("qweight", "qzeros", "scales", "g_idx"))
    for layer, parts in _layers(stored, "qweight", ("qzeros", "scales")):
        integers = _unpacked(parts["qweight"], bits, 0)
        zeros = (_unpacked(parts["qzeros"], bits, 1) + added) & ((1 << bits) - 1)
        order = stored.get(f"{layer}.g_idx")
        weight = _of_groups(layer, integers, zeros, parts["scales"].float(), order)
        found[f"{layer}.weight"] = weight
    return found


def _awq(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """`qweight` [in, out / 8], `qzeros` [groups, out / 8], `scales` [groups, out]."""

    def in_order(packed: torch.Tensor) -> torch.Tensor:
        columns = _unpacked(packed, 4, 1).view(packed.shape[0], -1, 8)
        return columns[:, :, list(_AWQ_ORDER)].flatten(1)

    found = _others(stored, ("qweight", "qzeros", "scales"))
    for layer, parts in _layers(stored, "qweight", ("qzeros", "scales")):
        integers, zeros = in_order(parts["qweight"]), in_order(parts["qzeros"])
        found[f"{layer}.weight"] = _of_groups(layer, integers, zeros, parts["scales"].float())
    return found


def _of_groups(
    layer: str,
    integers: torch.Tensor,
    zeros: torch.Tensor,
    scales: torch.Tensor,
    order: torch.Tensor | None = None,
) -> torch.Tensor:
    """[out, in] of integers [in, out] less zeros, times scales [groups, out]."""
    (inputs, outputs), groups = integers.shape, scales.shape[0]
    fits = scales.shape == zeros.shape and scales.shape[1] == outputs
    if order is None and fits and inputs % groups == 0:
        order = torch.arange(inputs) // (inputs // groups)
    if not fits or order is None or len(order) != inputs or int(order.max()) >= groups:
        raise _misfit(layer, {"weights": integers, "scales": scales, "zero points": zeros})
    rows = order.long()
    return ((integers - zeros[rows]).float() * scales[rows]).t().contiguous()


def _mxfp4(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Experts: `x_blocks` [E, out, in / 32, 16], two numbers a byte, the first in the low bits, and
    `x_scales` [E, out, in / 32], powers of two, biased by 127. The model's are [E, in, out]."""
    found = _others(stored, ("_blocks", "_scales"))
    for name, blocks in stored.items():
        if not name.endswith("_blocks"):
            continue
        stem = name.removesuffix("_blocks")
        scales = _beside(stored, name, f"{stem}_scales")
        if blocks.dim() != scales.dim() + 1 or blocks.shape[:-1] != scales.shape:
            raise _misfit(stem, {"blocks": blocks, "scales": scales})
        numbers = torch.ldexp(_fp4(blocks), scales.int().unsqueeze(-1) - 127)
        found[stem] = numbers.flatten(-2).transpose(-2, -1).contiguous()
    return found


def _fp8(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """float8 weights, `x_scale_inv` what blocks of them, or all, are multiplied by."""
    found = _others(stored, ("_scale_inv", "activation_scale"))
    block = about.get("weight_block_size") or ()
    for name in [name for name in stored if name.endswith("_scale_inv")]:
        weight = name.removesuffix("_scale_inv")
        found[weight] = _scaled(weight, _beside(stored, name, weight), stored[name], block)
    return found


_COMPRESSED = {
    "dense",
    "float-quantized",
    "int-quantized",
    "mxfp4-pack-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "pack-quantized",
}


def _compressed(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """`weight`, integers or float8, or `weight_packed` of smaller ones; with `weight_scale`,
    `weight_zero_point` and `weight_g_idx`, the group of each input."""
    suffixes = ["packed", "scale", "zero_point", "g_idx", "shape", "global_scale"]
    activations = ["input_scale", "input_zero_point", "input_global_scale", "output_scale"]
    caches = ["output_zero_point", "k_scale", "v_scale", "q_scale"]
    parts = [f"weight_{suffix}" for suffix in suffixes]
    found = _others(stored, (*parts, *activations, *caches))
    schemes = [dict(group.get("weights") or {}) for group in _groups(about)]
    for name in [name for name in stored if name.endswith("weight_scale")]:
        stem = name.removesuffix("_scale")
        scale, zero = stored[name].float(), stored.get(f"{stem}_zero_point")
        packed = stored.get(f"{stem}_packed")
        if packed is None:
            numbers = _beside(stored, name, stem)
            scheme = _scheme_of(schemes, numbers)
        elif packed.dtype == torch.uint8:
            numbers, scheme = _fp4(packed), {}
            total = stored.get(f"{stem}_global_scale")
            scale = torch.exp2(scale - 127) if total is None else scale / total.float()
        else:
            shape = [int(size) for size in stored[f"{stem}_shape"]]
            scheme = _packed_scheme(schemes, stem, packed, shape)
            bits = int(scheme["num_bits"])
            half = 1 << (bits - 1)
            numbers = (_unpacked(packed, bits, 1)[:, : shape[1]] - half).float()
            if zero is not None and zero.dtype == torch.int32:
                zero = _unpacked(zero, bits, 0)[: shape[0]] - half
        order = stored.get(f"{stem}_g_idx")
        if order is not None and int(order.min()) >= 0:
            rows = order.long()
            scale, zero = scale[:, rows], None if zero is None else zero[:, rows]
        block = scheme.get("block_structure") or (1, scheme.get("group_size") or 0)
        found[stem] = _scaled(stem, numbers, scale, block, zero)
    return found


def _groups(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((about.get("config_groups") or {}).values())


def _format(about: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    return str(group.get("format") or about.get("format", "dense"))


def _scheme_of(schemes: Sequence[dict[str, Any]], weight: torch.Tensor) -> dict[str, Any]:
    """The one of this kind of numbers."""
    kind = "float" if weight.is_floating_point() else "int"
    return next((scheme for scheme in schemes if scheme.get("type", "int") == kind), {})


def _packed_scheme(
    schemes: Sequence[dict[str, Any]], name: str, packed: torch.Tensor, shape: Sequence[int]
) -> dict[str, Any]:
    """The one whose bits make rows of 32-bit integers as long as these."""
    for scheme in schemes:
        bits = int(scheme.get("num_bits") or 0)
        if bits and 32 % bits == 0 and math.ceil(shape[1] * bits / 32) == packed.shape[1]:
            return scheme
    told = sorted({int(scheme.get("num_bits") or 0) for scheme in schemes})
    raise ValueError(
        f"[checkpoint] {name} must be of 1, 2, 4 or 8 bits, as config.json says; got {told} bits, "
        f"{list(packed.shape)} for {shape}"
    )


def _bitsandbytes(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """4 bits: `weight`, two numbers a byte, the first in the high bits, in the order of the flat
    weight; `absmax` of blocks, which may be bytes with scales of their own. 8 bits: `SCB`, the
    largest of each row."""
    nested = (
        "weight.absmax",
        "weight.quant_map",
        "weight.nested_absmax",
        "weight.nested_quant_map",
    )
    found = _others(stored, (*nested, "SCB", "weight_format"))
    for name in [name for name in stored if ".quant_state.bitsandbytes__" in name]:
        weight = name.partition(".quant_state.")[0]
        found.pop(name)
        state = json.loads(bytes(stored[name].tolist()))
        part = {
            key: stored[f"{weight}.{key}"]
            for key in ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
            if f"{weight}.{key}" in stored
        }
        scale = part["absmax"]
        if "nested_absmax" in part:
            size = int(state["nested_blocksize"])
            values = part["nested_quant_map"][scale.long()].float()
            blocks = part["nested_absmax"].float().repeat_interleave(size)[: len(values)]
            scale = values * blocks + float(state["nested_offset"])
        bytes_ = stored[weight].flatten()
        numbers = torch.stack([bytes_ >> 4, bytes_ & 15], -1).flatten().long()
        shape = [int(size) for size in state["shape"]]
        numbers = part["quant_map"].float()[numbers[: math.prod(shape)]]
        spread = scale.float().repeat_interleave(int(state["blocksize"]))[: len(numbers)]
        if len(numbers) != math.prod(shape) or len(spread) != len(numbers):
            raise _misfit(weight, {"bytes": bytes_, "scales": scale})
        found[weight] = (numbers * spread).view(shape)
    for name in [name for name in stored if name.endswith(".SCB")]:
        weight = f"{name.removesuffix('.SCB')}.weight"
        integers = _beside(stored, name, weight)
        found[weight] = integers.float() * (stored[name].float() / 127).unsqueeze(-1)
    return found


def _torchao(stored: Tensors, about: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """`_weight_qdata`, one number an element, with `_weight_scale` of rows or groups, and
    `_weight_zero_point`; so for other parameters. Tensors that torchao itself has read as such are
    asked for their numbers."""
    found: dict[str, torch.Tensor] = {}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in stored.items():
        layer, _, last = name.rpartition(".")
        split = _TORCHAO_PART.fullmatch(last)
        if split is not None:
            weight = ".".join(filter(None, (layer, split["parameter"])))
            parts.setdefault(weight, {})[split["part"]] = tensor
        elif hasattr(tensor, "qdata"):
            _check_torchao(name, vars(tensor).keys() | {"qdata"}, tensor)
            found[name] = tensor.dequantize().float()
        else:
            found[name] = tensor.float() if tensor.is_floating_point() else tensor
    for name, held in parts.items():
        numbers = _beside(held, name, "qdata")
        _check_torchao(name, held.keys(), numbers)
        scale, zero = _beside(held, name, "scale"), held.get("zero_point")
        found[name] = _scaled(name, numbers, scale, zero=zero)
    return found


_TORCHAO_PART = re.compile(
    "_(?P<parameter>.+?)_(?P<part>qdata|scale|zero_point|act_pre_scale|per_tensor_scale)"
)
_TORCHAO_ELEMENTS = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)


def _check_torchao(name: str, parts: Collection[str], numbers: torch.Tensor) -> None:
    """ValueError for forms that stand for other numbers."""
    held: Any = getattr(numbers, "qdata", numbers)
    other = {part for part in ("act_pre_scale", "per_tensor_scale") if part in parts}
    absent = {part for part in other if getattr(numbers, part, 0) is None}
    if held.dtype not in _TORCHAO_ELEMENTS or other - absent:
        raise ValueError(
            f"[checkpoint] {name} must be of torchao's IntxUnpackedToInt8Tensor, Int8Tensor or "
            f"Float8Tensor; got {held.dtype} with {', '.join(sorted(parts))}; try the model's "
            f"float checkpoint"
        )


PACKINGS: Mapping[str, Callable[[Tensors, Mapping[str, Any]], dict[str, torch.Tensor]]] = {
    "gptq": _gptq,
    "awq": _awq,
    "mxfp4": _mxfp4,
    "fp8": _fp8,
    "compressed-tensors": _compressed,
    "bitsandbytes": _bitsandbytes,
    "torchao": _torchao,
    "mlx": mlx_weights,
}
"""What makes float weights of stored ones, by `quant_method`."""


def _beside(stored: Tensors, name: str, other: str) -> torch.Tensor:
    """What must be stored beside `name`. ValueError if it is not."""
    if other not in stored:
        raise ValueError(f"[checkpoint] {other} must be there, beside {name}")
    return stored[other]


def _others(stored: Tensors, parts: Sequence[str]) -> dict[str, torch.Tensor]:
    """What is stored as it is: all that ends otherwise; floating point as float32."""
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in stored.items()
        if not name.endswith(tuple(parts))
    }


def _layers(
    stored: Tensors, first: str, others: Sequence[str]
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Each layer that has `first`, and its parts. ValueError if one of the others is not there."""
    for name in stored:
        layer, _, part = name.rpartition(".")
        if part != first:
            continue
        missing = [other for other in others if f"{layer}.{other}" not in stored]
        if missing:
            raise ValueError(f"[checkpoint] {layer} must have {' and '.join(missing)}")
        yield layer, {key: stored[f"{layer}.{key}"] for key in (first, *others)}


def _unpacked(packed: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """int32, of which each holds 32 / bits numbers along `dim`, the first in the lowest bits."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    shape = [1] * (packed.dim() + 1)
    shape[dim + 1] = len(shifts)
    wide = (packed.unsqueeze(dim + 1) >> shifts.view(shape)) & ((1 << bits) - 1)
    return wide.flatten(dim, dim + 1)


def _fp4(packed: torch.Tensor) -> torch.Tensor:
    """float32 [..., 2 * n] of bytes [..., n], the first of two numbers in the low bits."""
    return FP4[torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()]


def _scaled(
    name: str,
    numbers: torch.Tensor,
    scale: torch.Tensor,
    block: Sequence[int] = (),
    zero: torch.Tensor | None = None,
) -> torch.Tensor:
    """Numbers [..., out, in], less `zero`, times a scale for all, for rows, or for blocks, whose
    sizes are `block`; 0 and none: as many as the numbers divide into."""
    numbers = numbers.float()
    scale = scale.float()
    if scale.numel() == 1:
        return (numbers - (0 if zero is None else zero.float().flatten())) * scale.flatten()
    if scale.dim() == 1:
        scale, zero = scale.unsqueeze(-1), None if zero is None else zero.view(-1, 1)
    for offset, size in enumerate(numbers.shape[-2:]):
        dim = numbers.dim() - 2 + offset
        held = scale.shape[dim] if scale.dim() == numbers.dim() else 0
        if held in (1, size):
            continue
        times = int(block[offset]) if len(block) == 2 and block[offset] else 0
        if held and (not times or math.ceil(size / times) != held):
            times = size // held if size % held == 0 else 0
        if not held or not times:
            raise _misfit(name, {"weights": numbers, "scales": scale})
        scale = scale.repeat_interleave(times, dim).narrow(dim, 0, size)
        if zero is not None:
            zero = zero.repeat_interleave(times, dim).narrow(dim, 0, size)
    return (numbers - (0 if zero is None else zero.float())) * scale


def _misfit(layer: str, tensors: Tensors) -> ValueError:
    shapes = ", ".join(f"{what} {list(tensor.shape)}" for what, tensor in tensors.items())
    return ValueError(f"[checkpoint] the parts of {layer} must fit each other; got {shapes}")
