"""Small models as `.pte` bytes. `make_pte(module, example_inputs, partitioner=...)` is the
project's own way to bytes (tests/conftest.py); `partitioner=None` leaves every operator to
the runtime's kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from runtime_models import Add, PlusOne, Twice, lower

from edgewise.runtime import Method, Runtime

MakePte = Callable[..., bytes]


@pytest.fixture(scope="session")
def add_pte(make_pte: MakePte) -> bytes:
    """float32[2, 3] + float32[2, 3]."""
    return make_pte(Add(), (torch.ones(2, 3), torch.ones(2, 3)), partitioner=None)


@pytest.fixture(scope="session")
def plus_one_pte(make_pte: MakePte) -> bytes:
    """float32[2, 3] + 1."""
    return make_pte(PlusOne(), (torch.ones(2, 3),), partitioner=None)


@pytest.fixture(scope="session")
def two_methods_pte() -> bytes:
    """ "encode" adds 1 to float32[2, 3], "decode" doubles it."""
    x = (torch.ones(2, 3),)
    return lower(
        {"encode": torch.export.export(PlusOne(), x), "decode": torch.export.export(Twice(), x)}
    )


@pytest.fixture(scope="session")
def delegated_pte(make_pte: MakePte) -> bytes:
    """float32[2, 3] + float32[2, 3], all of it in one XNNPACK delegate."""
    from edgewise.backends.xnnpack import XnnpackPartitioner

    return make_pte(Add(), (torch.ones(2, 3), torch.ones(2, 3)), partitioner=[XnnpackPartitioner()])


@pytest.fixture
def add(add_pte: bytes) -> Method:
    return Runtime.get().load_program(add_pte).load_method("forward")


@pytest.fixture
def plus_one(plus_one_pte: bytes) -> Method:
    return Runtime.get().load_program(plus_one_pte).load_method("forward")


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)
