"""`edgewise explain`: where each node of a model runs, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from edgewise.cli.compiling import Backend, Calibration, KeepFloat, Quantize
from edgewise.cli.errors import CliError
from edgewise.cli.explain_runtime import show_kernels
from edgewise.cli.explain_tables import short_location, show_layers, show_refused
from edgewise.cli.models import ExampleShapes
from edgewise.cli.options import DataFiles, Json, Method, Quiet, Threads
from edgewise.cli.output import Output
from edgewise.cli.tables import share, size, table
from edgewise.inspect.layers import layers as layers_of
from edgewise.registry import DEFAULT

if TYPE_CHECKING:
    from edgewise.inspect.record import MethodRecord, NodeRecord, ProgramRecord, RefusalRecord

_MOST_NODES = 100


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A model (model.py:make, a .pt2 file), a .pte file with its record beside it, "
            "or a record.",
        ),
    ],
    backend: Backend = DEFAULT,
    quantize: Quantize = "none",
    calibration: Calibration = None,
    keep_float: KeepFloat = None,
    shape: ExampleShapes = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            "-f",
            metavar="TEXT",
            help="Only nodes whose name, operator, module or line has this in it, one by one.",
        ),
    ] = None,
    modules: Annotated[
        int | None,
        typer.Option("--modules", min=1, metavar="N", help="By module, so many names deep."),
    ] = None,
    layers: Annotated[
        int,
        typer.Option(
            "--layers", min=0, metavar="N", help="Show so many layers of an NPU, the slowest first."
        ),
    ] = 10,
    runtime: Annotated[
        bool,
        typer.Option(
            "--runtime",
            help="Of a .pte file: which kernels run its delegates on this machine, and what those "
            "that do not ask for.",
        ),
    ] = False,
    threads: Threads = None,
    data: DataFiles = None,
    method: Method = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What runs where, and why not elsewhere.

    Of a model, which is compiled for that, or of a file that was. For int8 without calibration
    data the example inputs are used: reasons do not depend on them. With --runtime a file is
    loaded as it would be run, with --threads and --data as for that.
    """
    out = Output(json=json, quiet=quiet)
    if runtime:
        show_kernels(out, source, method, threads, data, find)
        return
    if Path(source).suffix == ".pte" or source.endswith((".record.json.gz", ".record.json")):
        record = _recorded(Path(source))
    else:
        record = _compiled(source, backend, quantize, calibration, keep_float, shape, out)
    methods = [m for m in record.methods if method in (None, m.name)]
    if not methods:
        names = ", ".join(m.name for m in record.methods)
        raise CliError(f"[--method] must be one of {names}; got {method!r}")
    nodes = {m.name: _found(m, find) for m in methods}
    if find is not None and not any(nodes.values()):
        raise CliError(
            f"[--find] must be part of a node's name, operator, module or line; got {find!r}; "
            f"try edgewise explain {source} --json for all nodes"
        )

    def show(console: Console) -> None:
        for one in methods:
            if find is not None:
                _nodes(console, nodes[one.name])
            else:
                _summary(console, one)
                show_refused(console, one)
                show_layers(console, one, layers)
                if modules is not None:
                    _modules(console, one, modules)

    told = {
        "source": source,
        "methods": [
            {
                "name": m.name,
                "delegates": len(m.delegates),
                "nodes": _plain(nodes[m.name]),
                "layers": [one.to_dict() for one in layers_of(m)],
            }
            for m in methods
        ],
    }
    out.result(told, show)


def _recorded(path: Path) -> ProgramRecord:
    from edgewise.inspect.record import find_record, load_record, record_path

    if not path.exists():
        raise CliError(f"[SOURCE] no such file: {path}")
    if path.suffix != ".pte":
        return load_record(path)
    record = find_record(path)
    if record is None:
        beside = record_path(path)
        got = f"{beside} is of another file" if beside.exists() else f"no {beside}"
        raise CliError(
            f"[{path}] a .pte file does not hold reasons: its record does; got {got}; try "
            f"edgewise compile, which writes one, or edgewise explain model.py:make"
        )
    return record


def _compiled(
    source: str,
    backend: str,
    quantize: str,
    calibration: Sequence[str] | None,
    keep_float: Sequence[str] | None,
    shape: Sequence[str] | None,
    out: Output,
) -> ProgramRecord:
    from edgewise.cli.compiling import Way, check, compile_one, data, scheme
    from edgewise.cli.images import preprocessing
    from edgewise.cli.models import load_model

    way = check(Way(backend, scheme(quantize), tuple(keep_float or ())), calibration or ["-"])
    with out.progress(f"loading {source}"):
        loaded = load_model(source, shape)
    batches = None
    if calibration:
        batches = data(loaded, calibration, preprocessing("imagenet"), 8, "--calibration")
    elif way.quantize == "int8":
        batches = [loaded.example()]
    return compile_one(loaded, way, out, batches).program.record()


def _calls(method: MethodRecord) -> list[NodeRecord]:
    return [node for node in method.nodes if node.kind == "call"]


def _found(method: MethodRecord, text: str | None) -> list[NodeRecord]:
    calls = _calls(method)
    if text is None:
        return calls
    return [
        n for n in calls if any(text in part for part in (n.name, n.operator, n.module, n.source))
    ]


def _plain(nodes: list[NodeRecord]) -> list[dict[str, Any]]:
    return [
        {
            "name": n.name,
            "operator": n.operator,
            "module": n.module,
            "source": n.source,
            "backend": n.backend,
            "delegate": n.delegate,
            "inputs": [asdict(t) for t in n.inputs],
            "outputs": [asdict(t) for t in n.outputs],
            "refusals": [asdict(r) for r in n.refusals],
            "decomposed_from": n.decomposed_from,
            "splits": n.splits,
            "notes": list(n.notes),
            "macs": n.macs,
            "bytes": n.bytes,
        }
        for n in nodes
    ]


def _summary(console: Console, method: MethodRecord) -> None:
    calls = _calls(method)
    head = Text.assemble(("method ", "dim"), (method.name, "bold cyan"))
    count = len(method.delegates)
    console.print(head, f"{len(calls)} nodes, {count} delegate{'s' * (count != 1)}")
    macs, moved = sum(n.macs for n in calls), sum(n.bytes for n in calls)
    rows = []
    for backend in sorted({n.backend for n in calls}, key=lambda b: (b == "runtime", b)):
        mine = [n for n in calls if n.backend == backend]
        count = len({n.delegate for n in mine if n.delegate is not None})
        rows.append(
            (
                backend,
                count or None,
                f"{len(mine)} ({share(len(mine), len(calls))})",
                f"{_short(sum(n.macs for n in mine))} ({share(sum(n.macs for n in mine), macs)})",
                f"{size(sum(n.bytes for n in mine))} ({share(sum(n.bytes for n in mine), moved)})",
            )
        )
    console.print(table(["runs on", ">delegates", ">nodes", ">MACs", ">bytes moved"], rows))
    notes: dict[str, set[str]] = {}
    for note in (note for node in calls for note in node.notes):
        notes.setdefault(note.split(": ")[0], set()).add(note)
    for start, found in notes.items():
        count = sum(bool(found.intersection(node.notes)) for node in calls)
        said = start if len(found) > 1 else next(iter(found))
        text = f"{count} node{'s' * (count != 1)}: {said}"
        console.print(text, style="yellow", markup=False)


def _reason(refusal: RefusalRecord, operator: str) -> Text:
    if refusal.got == operator:
        text = Text(f"{refusal.backend}: not {refusal.rule}")
    else:
        text = Text(f"{refusal.backend}: {refusal.rule}")
    if refusal.got and refusal.got != operator:
        text.append(f"; got {refusal.got}")
    if refusal.hint:
        text.append(f"\ntry {refusal.hint}", "green")
    return text


def _modules(console: Console, method: MethodRecord, depth: int) -> None:
    groups: dict[str, list[NodeRecord]] = {}
    for node in _calls(method):
        groups.setdefault(".".join(node.module.split(".")[:depth]), []).append(node)
    rows = []
    for name, group in groups.items():
        delegated = sum(n.delegate is not None for n in group)
        left = sorted({n.operator for n in group if n.delegate is None})
        macs = sum(n.macs for n in group)
        rows.append((name or "(the model)", len(group), delegated, _short(macs), ", ".join(left)))
    console.print()
    columns = ["module", ">nodes", ">delegated", ">MACs", "not delegated"]
    console.print(table(columns, rows))


def _nodes(console: Console, nodes: list[NodeRecord]) -> None:
    rows = []
    for node in nodes[:_MOST_NODES]:
        where = node.backend if node.delegate is None else f"{node.backend} {node.delegate}"
        why = Text("\n").join(_reason(r, node.operator) for r in node.refusals)
        shapes = ", ".join(f"{t.dtype} {'x'.join(map(str, t.shape))}" for t in node.outputs)
        location = "\n".join(filter(None, (node.module, short_location(node.source))))
        rows.append((node.name, node.operator, shapes, where, why, location))
    columns = ["node", "operator", "computes", "runs on", "why not elsewhere", "where"]
    console.print(table(columns, rows))
    if len(nodes) > _MOST_NODES:
        console.print(f"and {len(nodes) - _MOST_NODES} more: --json", style="dim")


def _short(number: float) -> str:
    for unit in ("", " k", " M", " G"):
        if number < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"
