"""What backends of one's own are written with: partitioners, results, named data, identifiers for
profiling."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch.fx import Node

from edgewise.edge.program import tensor_bytes
from edgewise.partition import spec
from edgewise.partition.executorch.backend import named_data_of
from edgewise.partition.spec import DEBUG_HANDLE


class Partitioner(spec.Partitioner):
    """Whose partitions own the constants that it gives their tag (`tag_constant_data`), and take
    the others as inputs."""

    takes_untagged_constants: ClassVar[bool] = False
    _spec: Mapping[Any, Any] = MappingProxyType({})

    def __init__(self, spec: Mapping[Any, Any] | None = None) -> None:
        """spec: settings, for the subclass's own use."""
        self._spec = MappingProxyType(dict(spec or {}))

    @property
    def spec(self) -> Mapping[Any, Any]:
        """The settings; read only."""
        return self._spec

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # Those of edgewise's own backends are partitioners, too.
        return issubclass(other, spec.Partitioner) if cls is Partitioner else NotImplemented


@dataclass(frozen=True)
class DataEntry:
    """A blob's number in `NamedDataStoreOutput.buffers`; files align all to their segments."""

    buffer_index: int
    alignment: int = 1
    tensor_layout: Any = None


@dataclass
class NamedDataStoreOutput:
    """Blobs, which of them lie in the program under which key, and which in data files."""

    buffers: list[bytes]
    pte_data: dict[str, DataEntry]
    external_data: dict[str, dict[str, DataEntry]]


class NamedDataStore:
    """Collects blobs that a payload refers to by key, in the program or in data files by name."""

    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.pte_data: dict[str, DataEntry] = {}
        self.external_data: dict[str, dict[str, DataEntry]] = {}
        self._by_content: dict[bytes, int] = {}
        self._by_key: dict[str, int] = {}

    def add_named_data(
        self,
        key: str,
        data: bytes | torch.Tensor,
        alignment: int | None = 1,
        external_tag: str | None = None,
        tensor_layout: Any = None,
    ) -> None:
        """Equal blobs are kept once. external_tag: the data file; None: the program.

        ValueError if the key has other content, or the alignment is not above 0.
        """
        if alignment is not None and alignment <= 0:
            raise ValueError(f"[add_named_data] alignment must be above 0; got {alignment}")
        blob = bytes(tensor_bytes(data) if isinstance(data, torch.Tensor) else data)
        index = self._by_content.get(blob, len(self.buffers))
        if self._by_key.get(key, index) != index:
            raise ValueError(
                f"[add_named_data] a key must have one content; got {len(blob)} other bytes for "
                f"{key}"
            )
        if index == len(self.buffers):
            self.buffers.append(blob)
        self._by_content[blob] = self._by_key[key] = index
        held = self.pte_data
        if external_tag is not None:
            held = self.external_data.setdefault(external_tag, {})
        held.setdefault(key, DataEntry(index, alignment or 1, tensor_layout))

    def merge_named_data_store(self, other: NamedDataStoreOutput) -> None:
        """Adds what another store has."""
        for tag, entries in [(None, other.pte_data), *other.external_data.items()]:
            for key, entry in entries.items():
                blob = other.buffers[entry.buffer_index]
                self.add_named_data(key, blob, entry.alignment, tag, entry.tensor_layout)

    def get_named_data_store_output(self) -> NamedDataStoreOutput:
        """For `PreprocessResult.data_store_output`."""
        return NamedDataStoreOutput(self.buffers, self.pte_data, self.external_data)


class PreprocessResult(spec.PreprocessResult):
    """With ExecuTorch's arguments."""

    def __init__(
        self,
        processed_bytes: bytes = b"",
        debug_handle_map: Mapping[Any, Any] | None = None,
        data_store_output: NamedDataStoreOutput | None = None,
        _delegate_info_meta: Any = None,
    ) -> None:
        named, files = named_data_of(data_store_output or NamedDataStoreOutput([], {}, {}))
        super().__init__(processed_bytes, named, dict(debug_handle_map or {}), data_files=files)
        object.__setattr__(self, "data_store_output", data_store_output)
        object.__setattr__(self, "_delegate_info_meta", _delegate_info_meta)


@dataclass
class DelegateMappingBuilder:
    """Identifiers of a delegate's events, for the debug handles of the nodes that they are from.

    generated_identifiers: numbers from 0 on; else each entry brings its own.
    """

    generated_identifiers: bool = False
    _handles: dict[int | str, tuple[int, ...]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    def get_delegate_mapping(self) -> dict[int | str, tuple[int, ...]]:
        """For `PreprocessResult.debug_handle_map`; handles in order."""
        return dict(self._handles)

    def insert_delegate_mapping_entry(
        self,
        nodes: Node | Sequence[Node] | None = None,
        handles: int | Sequence[int | None] | None = None,
        identifier: int | str | None = None,
    ) -> int | str:
        """Adds an entry of nodes, or of handles, and returns its identifier. ValueError if both or
        none are given, if no handle is known, or if the identifier is taken or not to be given."""
        where = "[insert_delegate_mapping_entry]"
        if (nodes is None) == (handles is None):
            raise ValueError(f"{where} either nodes or handles must be given")
        if self.generated_identifiers == (identifier is not None):
            how = "be left out if they are generated" if identifier is not None else "be given"
            raise ValueError(f"{where} identifiers must {how}; got {identifier!r}")
        if identifier in self._handles:
            raise ValueError(f"{where} an identifier must be used once; got {identifier!r} again")
        if nodes is not None:
            several = [nodes] if isinstance(nodes, Node) else nodes
            handles = [node.meta.get(DEBUG_HANDLE) for node in several]
        given: Sequence[Any] = handles if isinstance(handles, (list, tuple)) else [handles]
        known = sorted({handle for handle in given if handle is not None})
        if not known:
            raise ValueError(f"{where} a debug handle must be known; got none")
        made: int | str = next(self._numbers) if identifier is None else identifier
        self._handles[made] = tuple(known)
        return made
