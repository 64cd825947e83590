"""The stand-ins for NXP's converter (see stand_in/), each in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`stand_in("sdk", "flavors", failing="crash")` makes them importable."""

    def install(*folders: str, failing: str = "") -> None:
        monkeypatch.syspath_prepend(str(STAND_IN))
        for folder in folders:
            monkeypatch.syspath_prepend(str(STAND_IN / folder))
        monkeypatch.setenv("STAND_IN", failing)

    return install
