"""The stand-ins for NXP's converter (see stand_in/), each in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`stand_in("sdk", "flavors", failing="crash")` makes them importable, until the test ends."""

    def install(*folders: str, failing: str = "") -> None:
        monkeypatch.syspath_prepend(str(STAND_IN))
        for folder in folders:
            monkeypatch.syspath_prepend(str(STAND_IN / folder))
        monkeypatch.setenv("STAND_IN", failing)

    yield install
    # ExecuTorch's backend imports the converter in this process, and it would be found again.
    for name in [n for n in sys.modules if n.startswith(("eiq_neutron_sdk", "neutron_converter"))]:
        del sys.modules[name]
