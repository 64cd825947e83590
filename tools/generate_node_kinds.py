"""Writes what follows from `edgewise.backends.xnnpack.node_kinds` in other languages.

    python tools/generate_node_kinds.py          writes the files
    python tools/generate_node_kinds.py --check  exit code 1 if they are not up to date

The files are the node part of `schema/xnnpack_graph.fbs`, between two marks, and
`native/backends/xnnpack/node_kinds.inc`. They are kept in the repository, so that a build of the
runtime needs no Python.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from edgewise.backends.xnnpack.node_kinds import NODE_KINDS, Layout, NodeKind, Types

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "schema/xnnpack_graph.fbs"
NATIVE = ROOT / "native/backends/xnnpack/node_kinds.inc"

_FROM = "src/edgewise/backends/xnnpack/node_kinds.py"
_BEGIN = f"// begin: generated from {_FROM}"
_END = f"// end: generated from {_FROM}"


def schema_nodes() -> str:
    """The union of nodes and its tables, as FlatBuffers schema."""
    members = "".join(f"  {_member(kind)},\n" for kind in NODE_KINDS)
    layouts = dict.fromkeys(kind.layout for kind in NODE_KINDS)
    return "\n".join(
        [
            "// In the order of execution: every value is written by an earlier node than it is "
            "read by.",
            f"union XNodeUnion {{\n{members}}}",
            "",
            "// `flags` of all nodes: bits of XNN_FLAG_* that the operator knows.",
            "",
            "\n\n".join(map(_table, layouts)),
        ]
    )


def _member(kind: NodeKind) -> str:
    name = f"XNN{kind.name}"
    return name if name == kind.layout.name else f"{name}: {kind.layout.name}"


def _table(layout: Layout) -> str:
    comment = textwrap.indent(layout.comment, "// ") + "\n" if layout.comment else ""
    fields = "".join(f"  {name}:{kind};\n" for name, kind in layout.fields.items())
    return f"{comment}table {layout.name} {{\n{fields}}}"


def native_table() -> str:
    """One line a kind, for the C++ preprocessor."""
    lines = [
        f"// Generated from {_FROM} by tools/generate_node_kinds.py.",
        "// clang-format off",
        "// EDGEWISE_XNNPACK_NODE(name, table of the schema, operator of one operand, of two,",
        "//                       rule for types, types, operands, bounds, flags)",
    ]
    for kind in NODE_KINDS:
        unary = f"xnn_{kind.operator}" if kind.operator.startswith("unary") else "xnn_unary_invalid"
        binary = (
            f"xnn_{kind.operator}" if kind.operator.startswith("binary") else "xnn_binary_invalid"
        )
        types = " | ".join(_camel(t.name) for t in Types if t in kind.types)
        flags = " | ".join(f"XNN_FLAG_{flag}" for flag in kind.flags) or "0"
        lines.append(
            f"EDGEWISE_XNNPACK_NODE({kind.name}, {kind.layout.name}, {unary}, {binary}, "
            f"{_camel(kind.rule.name)}, {types}, {len(kind.input_fields)}, "
            f"{_camel(kind.bounds.name)}, {flags})"
        )
    return "\n".join([*lines, "// clang-format on", ""])


def _camel(name: str | None) -> str:
    assert name is not None
    return "k" + name.capitalize()


def files() -> dict[Path, str]:
    """Contents that the files should have."""
    schema = SCHEMA.read_text()
    before, after = schema.index(_BEGIN) + len(_BEGIN), schema.index(_END)
    return {
        SCHEMA: f"{schema[:before]}\n{schema_nodes()}\n{schema[after:]}",
        NATIVE: native_table(),
    }


def main(arguments: list[str]) -> int:
    old = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if arguments == ["--check"]:
        for path in old:
            name = path.relative_to(ROOT)
            print(
                f"[generate_node_kinds] {name} is not up to date; try running this without --check"
            )
        return 1 if old else 0
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
