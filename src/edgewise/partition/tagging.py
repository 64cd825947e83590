"""Partitions that a partitioner has chosen become tags."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from edgewise.partition.spec import TAG, DelegationSpec


class Tags(dict[str, DelegationSpec]):
    """The `partition_tags` of a `PartitionResult`, numbered: "xnnpack_0", "xnnpack_1", ..."""

    def __init__(self, name: str, spec: DelegationSpec) -> None:
        super().__init__()
        self._name, self._spec = name, spec

    def add(self, members: Sequence[Node]) -> str:
        """Tags the nodes of one partition; the tag."""
        tag = f"{self._name}_{len(self)}"
        self[tag] = self._spec
        for node in members:
            node.meta[TAG] = tag
        return tag
