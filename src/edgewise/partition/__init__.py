"""Which node goes to which backend, with reasons.

`Partitioner` subclasses tag nodes; `grouping` finds the fewest partitions without a
cycle; `delegate` cuts partitions out and has their backends compile them; `report`
keeps what was decided and why.
"""

from edgewise.partition.delegate import lower_program
from edgewise.partition.grouping import group
from edgewise.partition.lowered_module import LoweredBackendModule, call_delegate
from edgewise.partition.node_partitioner import NodePartitioner
from edgewise.partition.report import DelegationReport
from edgewise.partition.report_data import NodeReport
from edgewise.partition.spec import (
    TAG,
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionRefused,
    PartitionResult,
    PreprocessResult,
    Refusal,
    refused_before,
)

__all__ = [
    "TAG",
    "BackendDetails",
    "CompileSpec",
    "DelegationReport",
    "DelegationSpec",
    "LoweredBackendModule",
    "NodePartitioner",
    "NodeReport",
    "PartitionRefused",
    "PartitionResult",
    "Partitioner",
    "PreprocessResult",
    "Refusal",
    "call_delegate",
    "group",
    "lower_program",
    "refused_before",
]
