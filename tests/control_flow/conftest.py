"""Control flow is captured by torch.compile's front end, which remembers what it has seen."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _forget() -> None:
    """Else a shape unlike an earlier test's becomes dynamic, and the ninth is refused."""
    torch._dynamo.reset()
