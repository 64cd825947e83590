"""`to_edge(ep).to_backend(p)` delegates what `to_edge_transform_and_lower(ep, partitioner=[p])`
does: over every case of the XNNPACK table, and for models of the other backends."""

from __future__ import annotations

from typing import Any

import pytest
import quantized_cases
import torch
import xnnpack_cases
from quantized_cases import DynamicLinear
from test_xnnpack_dynamic import DELEGATED
from torch.fx import GraphModule

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.edge.bodies import graphs_within
from edgewise.partition.delegate import LoweredBackendModule
from support import Fn, export
