"""What Model Explorer loads: the adapter's description and its one method."""

from __future__ import annotations

from typing import Any, ClassVar

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs

from edgewise.model_explorer.graphs import graphs_of


class PteAdapter(Adapter):  # type: ignore[misc]
    """Files of edgewise and of ExecuTorch."""

    metadata: ClassVar[AdapterMetadata] = AdapterMetadata(
        id="edgewise",
        name="edgewise",
        description="Programs for edgewise and ExecuTorch, with delegates opened",
        fileExts=["pte"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """A graph for each method, as the model's modules where a record is beside the file, and
        one as the file holds it. OSError, ValueError if the file cannot be read."""
        return {"graphs": graphs_of(model_path)}
