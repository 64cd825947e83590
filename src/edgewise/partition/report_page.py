"""The delegation report as a page for a browser, complete and without other files."""

from __future__ import annotations

import html

from edgewise.partition.report import DelegationReport, NodeReport
from edgewise.partition.report_text import render

_STYLE = (
    "body{font:14px system-ui;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}"
    "tr.runtime{background:#fdf1e3}code{font-size:13px}"
)


def page(report: DelegationReport) -> str:
    """One row a node, the terminal's table above."""
    rows = []
    for node in report.nodes:
        reasons = "<br>".join(
            html.escape(f"{refusal.backend}: {refusal}") for refusal in node.refusals
        )
        place = f"{node.backend} {node.partition}".strip()
        cells = [
            f"<code>{html.escape(node.name)}</code>",
            html.escape(node.operator) + _origin(node),
            html.escape(", ".join(str(s) for s in node.shapes)),
            html.escape(place),
            reasons,
            html.escape(node.module),
            html.escape(node.source),
            f"{node.macs:,}",
            f"{node.bytes:,}",
        ]
        style = ' class="runtime"' if not node.partition else ""
        rows.append(f"<tr{style}>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    heads = (
        "node",
        "operator",
        "shapes",
        "runs on",
        "why not elsewhere",
        "module",
        "source",
        "MACs",
        "bytes",
    )
    head = "".join(f"<th>{h}</th>" for h in heads)
    return (
        f"<!doctype html><meta charset=utf-8>"
        f"<title>Delegation of {html.escape(report.method)}</title>"
        f"<style>{_STYLE}</style><h1>Delegation of {html.escape(report.method)}</h1>"
        f"<pre>{html.escape(render(report))}</pre><table><tr>{head}</tr>{''.join(rows)}</table>"
    )


def _origin(node: NodeReport) -> str:
    whole = node.decomposed_from
    if whole is None:
        return ""
    reasons = "".join(f"<br>{html.escape(f'{r.backend}: {r}')}" for r in whole.refusals)
    return f"<br><small>of {html.escape(whole.operator)} {html.escape(whole.name)}{reasons}</small>"
