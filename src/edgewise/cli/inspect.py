"""`edgewise inspect`: what is in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from edgewise.cli.options import Json, Method, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import facts, share, size, table

if TYPE_CHECKING:
    from edgewise.inspect.contents import Contents, DelegateContents, MethodContents
    from edgewise.inspect.record import MethodRecord, ProgramRecord

_MOST_ROWS = 12
_MOST_NODES = 4


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte or .ptd file.")],
    method: Method = None,
    instructions: Annotated[
        bool, typer.Option("--instructions", "-i", help="The steps, one a line.")
    ] = False,
    graph: Annotated[
        bool, typer.Option("--graph", "-g", help="The operators inside delegates, one a line.")
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights", "-w", help="Constants, one a line, the largest first.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", "-p", help="Which tensor lies where in memory, and when.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All of these.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What is in a file: methods, inputs, outputs, delegates and their graphs, memory, sizes.

    Reads files of edgewise and of ExecuTorch. Needs neither torch nor a backend. With --json
    everything is told, whatever else is asked for.
    """
    from edgewise.cli.files import chosen_methods
    from edgewise.inspect.needs import needs_of, runs_on
    from edgewise.inspect.reading import read_contents
    from edgewise.inspect.record import find_record, record_path

    out = Output(json=json, quiet=quiet)
    contents = read_contents(file)
    methods = chosen_methods(contents, method)
    record = find_record(file) if contents.methods else None
    known = {one.name: one for one in record.methods} if record else {}

    needs = needs_of(file.read_bytes()) if contents.methods else []

    def show(console: Console) -> None:
        _file(console, file, contents, record)
        if contents.methods:
            console.print()
            console.print(
                f"runs on {runs_on(needs)}", *map(str, needs), sep="\n  uses ", markup=False
            )
        for one in methods:
            _method(console, one, known.get(one.name))
            if instructions or everything:
                _instructions(console, one, known.get(one.name))
            if graph or everything:
                _graphs(console, one, known.get(one.name))
            if plan or everything:
                _plan(console, one)
            if weights or everything:
                _weights(console, one, known.get(one.name))

    data = {"file": str(file), **contents.to_dict()}
    if contents.methods:
        data |= {"runs_on": runs_on(needs), "needs": [str(need) for need in needs]}
    data["record"] = str(record_path(file)) if record else None
    data["methods"] = [one for one in data["methods"] if one["name"] in {m.name for m in methods}]
    out.result(data, show)


def _file(console: Console, file: Path, contents: Contents, record: ProgramRecord | None) -> None:
    console.print(Text(str(file), "bold"), f"{contents.identifier}, {size(contents.nbytes)}")
    if record is not None:
        made = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        console.print(f"compiled by {made}, with a record: see edgewise explain", style="dim")
    rows = [
        (name, size(count), share(count, contents.nbytes))
        for name, count in sorted(contents.sizes.items(), key=lambda one: -one[1])
    ]
    console.print(table(["bytes for", ">size", ">share"], rows))
    if not contents.methods:
        names = list(contents.named_data.items())
        console.print()
        console.print(table(["name", ">size"], [(n, size(b)) for n, b in names]))


def _method(console: Console, method: MethodContents, record: MethodRecord | None) -> None:
    console.print()
    console.print(Text.assemble(("method ", "dim"), (method.name, "bold cyan")))
    names = _input_names(method, record)
    rows = [
        (f"input {i}", f"{v}{_order(v.dim_order)}{name and f'  {name}'}")
        for i, (v, name) in enumerate(zip(method.inputs, names, strict=True))
    ]
    rows += [(f"output {i}", f"{v}{_order(v.dim_order)}") for i, v in enumerate(method.outputs)]
    kinds = Counter(step.kind for step in method.instructions)
    steps = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    rows.append(("steps", f"{len(method.instructions)}" + (f" ({steps})" if steps else "")))
    rows.append(("memory", f"{size(sum(method.arenas))}, for {len(method.plan)} tensors"))
    states = [v for v in method.values if v.place == "state"]
    if states:
        rows.append(("state", f"{len(states)} tensors, {size(sum(v.nbytes for v in states))}"))
    constants = method.constants
    if constants:
        rows.append(
            ("constants", f"{len(constants)}, {size(sum(v.nbytes for v in constants))}, of kernels")
        )
    console.print(facts(rows))
    for number, delegate in enumerate(method.delegates):
        _delegate(console, number, delegate)
    if method.kernels:
        kernels = list(method.kernels.items())
        rest = len(kernels) - _MOST_ROWS
        console.print(table(["the runtime's kernels", ">calls"], kernels[:_MOST_ROWS]))
        if rest > 0:
            console.print(f"and {rest} more: --instructions", style="dim")


def _input_names(method: MethodContents, record: MethodRecord | None) -> list[str]:
    """As the model's arguments are called, if the record tells."""
    found = [n.name for n in record.nodes if n.kind == "input"] if record else []
    return found if len(found) == len(method.inputs) else [""] * len(method.inputs)


def _order(order: list[int]) -> str:
    return ", channels last" if order == [0, 2, 3, 1] else ""


def _delegate(console: Console, number: int, delegate: DelegateContents) -> None:
    head = Text.assemble(
        ("delegate ", "dim"),
        (f"{number} ", "bold"),
        (delegate.backend, "bold green"),
        f"  payload {size(delegate.payload_bytes)}",
    )
    console.print(head)
    if delegate.graph is None:
        console.print(f"  not shown: {delegate.problem}", style="yellow", markup=False)
        return
    found = delegate.graph
    constants = [t for t in found.tensors if t.role == "constant"]
    rows: list[tuple[str, Any]] = []
    if found.nodes:
        kinds = Counter(node.kind for node in found.nodes)
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        rows.append(("  operators", f"{len(found.nodes)}: {told}"))
    if constants:
        types = Counter(t.dtype for t in constants)
        told = ", ".join(f"{count} {kind}" for kind, count in types.most_common())
        total = size(sum(t.nbytes for t in constants))
        rows.append(("  constants", f"{len(constants)}, {total}: {told}"))
    for name, value in found.facts.items():
        if name not in ("nodes", "operations"):
            amount = size(value) if name.endswith("_bytes") else value
            rows.append((f"  {name.removesuffix('_bytes').replace('_', ' ')}", amount))
    for name, text in delegate.options.items():
        rows.append((f"  {name}", text if text.isprintable() and len(text) < 200 else "(binary)"))
    console.print(facts(rows))


def _instructions(console: Console, method: MethodContents, record: MethodRecord | None) -> None:
    console.print()
    rows: list[tuple[Any, ...]] = []
    for number, step in enumerate(method.instructions):
        values = ", ".join(_argument(method, i) for i in step.arguments)
        nodes = record.instructions[number].nodes if record else ()
        rows.append((number, step.kind, step.what, values, _computes(nodes, record)))
    console.print(table([">step", "!kind", "what", "values", "computes"], rows))


def _computes(nodes: Sequence[str], record: MethodRecord | None) -> str:
    """What a step or an operator of a delegate stands for in the user's model."""
    if record is None or not nodes:
        return ""
    if len(nodes) > _MOST_NODES:
        return f"{len(nodes)} nodes, {nodes[0]} to {nodes[-1]}"
    first = record.by_name.get(nodes[0])
    where = f" ({first.module or first.source})" if first and (first.module or first.source) else ""
    return ", ".join(nodes) + where


def _argument(method: MethodContents, index: int) -> str:
    value = method.values[index]
    if value.kind == "Tensor":
        return f"%{index}:{value}"
    return "None" if value.kind == "Null" else f"{value.value}"


def _graphs(console: Console, method: MethodContents, record: MethodRecord | None) -> None:
    for number, delegate in enumerate(method.delegates):
        if delegate.graph is None:
            continue
        tensors = {t.name: t for t in delegate.graph.tensors}

        def told(name: str, known: dict[str, Any] = tensors) -> str:
            if name not in known:
                return name
            one = known[name]
            return f"{name}:{one.dtype} {'x'.join(map(str, one.shape))}"

        console.print()
        rows = []
        for at, node in enumerate(delegate.graph.nodes):
            options = _brief(node.options)
            inputs, outputs = ", ".join(map(told, node.inputs)), ", ".join(map(told, node.outputs))
            payload = record.delegates[number].payload if record else ()
            nodes = payload[at].nodes if at < len(payload) else ()
            rows.append((at, node.kind, inputs, outputs, options, _computes(nodes, record)))
        columns = [">node", "!operator", "reads", "writes", "options", "computes"]
        console.print(table(columns, rows, f"delegate {number}, {delegate.graph.format}"))


_DULL = ("flags", "num_dims", "group_input_channels", "group_output_channels")


def _brief(options: Mapping[str, Any]) -> str:
    """Heights and widths as one, without what is as usual; JSON has all of it."""
    told = []
    for name, value in options.items():
        both = name.removesuffix("_height")
        if name in _DULL or (name == "groups" and str(value) == "1") or name.endswith("_width"):
            continue
        if both != name:
            height, width = str(value), str(options.get(both + "_width", 0))
            if (height, width) != ("1", "1") or both in ("kernel", "pooling"):
                told.append(f"{both.replace('subsampling', 'stride')} {height}x{width}")
        else:
            told.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(told)


def _plan(console: Console, method: MethodContents) -> None:
    console.print()
    rows = [
        (
            f"%{p.value}",
            str(method.values[p.value]),
            p.arena,
            p.offset,
            size(p.nbytes),
            f"{p.first} to {p.last}",
        )
        for p in method.plan
    ]
    columns = ["!value", "what", ">arena", ">offset", ">size", "!in use, steps"]
    console.print(table(columns, rows, "planned memory"))


def _weights(console: Console, method: MethodContents, record: MethodRecord | None) -> None:
    rows: list[tuple[Any, ...]] = []
    for value in method.constants:
        what = f"{value.dtype} {'x'.join(map(str, value.shape)) or 'scalar'}"
        rows.append((value.nbytes, value.name or f"%{value.index}", what, "", "kernels"))
    for number, delegate in enumerate(method.delegates):
        for one in delegate.graph.tensors if delegate.graph else []:
            if one.role == "constant":
                what = f"{one.dtype} {'x'.join(map(str, one.shape)) or 'scalar'}"
                where = f"delegate {number}"
                rows.append((one.nbytes, one.name, what, one.quantization, where))
    rows.sort(key=lambda row: -row[0])
    console.print()
    cells = [(size(row[0]), *row[1:]) for row in rows]
    console.print(table([">size", "name", "!what", "quantized", "!of"], cells, "constants"))
    if record is not None:
        _named_weights(console, record)


def _named_weights(console: Console, record: MethodRecord) -> None:
    """The model's own names of its weights, with what reads each; from the record."""
    rows: dict[str, tuple[Any, ...]] = {}
    for node in record.nodes:
        for one in node.weights:
            tensor = one.tensor
            what = f"{tensor.dtype} {'x'.join(map(str, tensor.shape)) or 'scalar'}"
            where = "kernels" if node.delegate is None else f"delegate {node.delegate}"
            reader = f"{node.operator}{f' in {node.module}' if node.module else ''}"
            rows.setdefault(one.name, (tensor.bytes, one.name, what, reader, where))
    if rows:
        cells = [(size(r[0]), *r[1:]) for r in sorted(rows.values(), key=lambda r: -r[0])]
        console.print()
        columns = [">size", "name", "!what", "read by", "!of"]
        console.print(table(columns, cells, "weights of the model"))
