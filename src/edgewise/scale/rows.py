"""Rows in files: JSON lines or Parquet, and the page."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from edgewise.scale.combine import Row
from edgewise.scale.plan import Plan
from edgewise.scale.store import Store


class Tables:
    """Writes whole files, each replacing the one before."""

    def __init__(self, plan: Plan, store: Store, *, parquet: bool = False) -> None:
        self._plan, self._store, self._parquet = plan, store, parquet
        if parquet and find_spec("pyarrow") is None:
            raise ModuleNotFoundError(
                "[sweep] Parquet needs pyarrow; got none; try pip install pyarrow", name="pyarrow"
            )

    def write(self, rows: Sequence[Row], total: int) -> None:
        """total: combinations of the plan; the page says how many are missing."""
        from edgewise.scale.page import render

        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        self._store.write("rows.jsonl", lines.encode())
        if self._parquet:
            self._store.write("rows.parquet", as_parquet(rows))
        self._store.write("index.html", render(self._plan.name, rows, total).encode())


def as_parquet(rows: Sequence[Row]) -> bytes:
    """One column for each of the rows', as they appear; nested values as JSON text."""
    import pyarrow
    import pyarrow.parquet

    names = dict.fromkeys(name for row in rows for name in row)
    table = pyarrow.table({name: [_cell(row.get(name)) for row in rows] for name in names})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, dict)) else value
