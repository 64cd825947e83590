"""Partitioners and backends that were written for ExecuTorch and come from its own package, such as
those for Core ML and Vulkan, over our edge programs.

ExecuTorch need not be installed: nothing of it is imported unless the user has imported it.
"""

from edgewise.partition.executorch.partitioner import adapted

__all__ = ["adapted"]
