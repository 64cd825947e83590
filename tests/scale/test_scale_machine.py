"""Folders of locks that another user could have made are not taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewise.scale.machine import turn


def link(place: Path) -> None:
    target = place.parent / "elsewhere"
    target.mkdir()
    place.symlink_to(target)


def open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


@pytest.mark.parametrize("make", [link, open_to_all])
def test_a_folder_of_others_is_refused(make: object, tmp_path: Path) -> None:
    place = tmp_path / f"edgewise-turns-{os.getuid()}"
    make(place)  # type: ignore[operator]
    with (
        pytest.raises(PermissionError, match="must be this user's own"),
        turn(alone=True, folder=str(tmp_path)),
    ):
        pass
    assert not (tmp_path / "elsewhere" / "gate").exists()


def test_an_own_folder_is_taken_again(tmp_path: Path) -> None:
    for alone in (True, False):
        with turn(alone, str(tmp_path)):
            pass
    (place,) = tmp_path.iterdir()
    assert place.stat().st_mode & 0o777 == 0o700
