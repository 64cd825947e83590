"""Writes cases/*.txt: kernel calls with the results of eager PyTorch.

    python native/tests/kernels/make_cases.py

Run it where torch is installed, after a kernel or a case was added. Inputs come from a generator
whose seed is made of the case's own text, so that a case stays as it is when others come or go.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed
import torchao.quantization  # noqa: F401  defines its own
from case_tables import TABLES, Maker, Strided
from case_tables_core import CORE
from reference import magnitudes, references
from special_tables import NAMED, SPECIAL
from type_lines import type_lines

NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.bool: "bool",
}


def number(value: float | bool, type_: torch.dtype) -> str:
    """The text of one element, which reads back as the same element."""
    if type_.is_floating_point:
        return f"{value:.9g}" if type_ != torch.float64 else repr(float(value))
    return str(int(value))


def tensor_text(tensor: torch.Tensor) -> str:
    """The text of a tensor, with its dim_order unless that is the usual one."""
    for name, named in NAMED.items():
        if named is tensor:
            return f"${name}"
    return written_out(tensor)


def written_out(tensor: torch.Tensor) -> str:
    """The same with all elements."""
    sizes = ", ".join(map(str, tensor.shape))
    order = ""
    if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.numel() > 0:
        order = ":" + "".join(map(str, tensor.dim_order()))
    items = ", ".join(number(x, tensor.dtype) for x in tensor.flatten().tolist())
    return f"{NAMES[tensor.dtype]}[{sizes}]{order}{{{items}}}"


def magnitude_text(tensor: torch.Tensor) -> str:
    """A tensor of magnitudes, with few digits; subnormal ones are not read back."""
    items = ", ".join(
        f"{min(max(x, 1e-300), 1e308):.4g}" if x else "0" for x in tensor.flatten().tolist()
    )
    return f"f64[{', '.join(map(str, tensor.shape))}]{{{items}}}"


def text(value: Any, schema_type: str) -> str:
    """The text of an argument, whose kind the schema may decide."""
    if value is None:
        return "none"
    if isinstance(value, Strided):
        return tensor_text(value.tensor)
    if isinstance(value, torch.Tensor):
        return tensor_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, torch.dtype):
        return "6"  # kernels go by the type of the output
    if isinstance(value, int):
        return f"f:{value}" if schema_type == "float" else str(value)
    if isinstance(value, float):
        return f"f:{value!r}"
    if isinstance(value, str):
        return f'"{value}"'
    if any(isinstance(item, torch.Tensor) or item is None for item in value):
        return "< " + " ".join(text(item, "Tensor") for item in value) + " >"
    if "float" in schema_type:
        return "d(" + ", ".join(map(repr, map(float, value))) + ")"
    return "(" + ", ".join(str(int(item)) for item in value) + ")"


def functional(packet: Any, out_schema: Any) -> Any:
    """The overload that takes the out-variant's arguments without its outputs."""
    wanted = [a.name for a in out_schema.arguments if not a.is_out]
    kinds = [str(a.type) for a in out_schema.arguments if not a.is_out]
    best = None
    for name in packet.overloads():
        schema = getattr(packet, name)._schema
        if any(a.is_out or a.alias_info is not None for a in schema.arguments):
            continue
        given = [a.name for a in schema.arguments]
        if given == wanted and [str(a.type) for a in schema.arguments] == kinds:
            return getattr(packet, name)
        if set(wanted) <= set(given) and best is None:
            best = getattr(packet, name)
    assert best is not None, out_schema
    return best


def case(name: str, args: tuple[Any, ...]) -> str:
    """The line of one call; `args` are those of the out-variant, outputs left out."""
    namespace, rest = name.split("::")
    op, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), op)
    if namespace in ("quantized_decomposed", "torchao"):
        # Their out-variants are the runtime's own: the functional arguments, then the outputs.
        call = getattr(packet, "tensor" if overload == "Tensor_out" else "default")
        schema = call._schema
    else:
        schema = getattr(packet, overload)._schema
        call = functional(packet, schema)
    inputs = [a for a in schema.arguments if not a.is_out]
    values = list(args) + [a.default_value for a in inputs[len(args) :]]
    keywords = {}
    positional = []
    for argument, value in zip(inputs, values, strict=True):
        given = value.tensor if isinstance(value, Strided) else value
        if argument.kwarg_only:
            keywords[argument.name] = given
        else:
            positional.append(given)
    results = call(*positional, **keywords)
    single = isinstance(results, torch.Tensor)
    own = [results] if single else list(results)
    kinds = [str(a.type) for a in inputs]
    expected = references(name, call, kinds, positional, keywords, own)
    written = " ".join(text(v, str(a.type)) for a, v in zip(inputs, values, strict=True))
    outs = [a for a in schema.arguments if a.is_out]
    shown = " ".join(map(tensor_text, expected))
    if outs and "List" in str(outs[0].type):
        return f"{name} {written} -> < {shown} >"
    terms = magnitudes(name, call, positional, keywords)
    if terms is not None:
        shown += " ~ " + " ".join(map(magnitude_text, terms))
    return f"{name} {written} -> {shown}"


def seed_of(name: str, make: Maker) -> int:
    """The seed of a case: of what its text is with the seed 0."""
    torch.manual_seed(0)
    written = " ".join(text(value, "") for value in make())
    return zlib.crc32(f"{name} {written}".encode())


def main() -> None:
    """Writes all tables."""
    folder = Path(__file__).parent / "cases"
    for table, cases in {**TABLES, "core": CORE, "special": SPECIAL}.items():
        lines: list[str] = []
        if table == "special":
            lines += [f"${name} = {written_out(tensor)}" for name, tensor in NAMED.items()]
        for name, make in cases:
            torch.manual_seed(seed_of(name, make))
            lines.append(case(name, make()))
        header = f"# Written by make_cases.py with eager PyTorch {torch.__version__}.\n"
        (folder / f"{table}.txt").write_text(header + "\n".join(lines) + "\n")
        print(f"{table}: {len(lines)} cases")
    lines = type_lines(folder)
    (folder / "by_type.tsv").write_text("\n".join(lines) + "\n")
    print(f"types: {len(lines)} kernels")


if __name__ == "__main__":
    main()
