"""The store: whole files or none, in folders and wherever fsspec reaches."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from edgewise.scale.store import Store
from edgewise.scale.task import Limits, Outcome


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(tmp_path / "results")
    return Store(f"memory://{uuid.uuid4().hex}/results")


def test_outcomes_come_back(store: Store) -> None:
    kept = Outcome("k1", "ok", {"a": [1, 2.5, None]}, "", 1.5, 10, "host", Limits(3, 4))
    assert store.outcome("k1") is None
    assert store.keys() == set()
    store.keep(kept)
    assert store.outcome("k1") == kept
    assert store.keys() == {"k1"}
    with pytest.raises(ValueError, match="JSON"):
        store.keep(Outcome("k2", "ok", float("inf")))
    assert store.keys() == {"k1"}


def test_files_are_named_by_content(store: Store) -> None:
    name = store.add("programs", b"content", ".pte")
    assert name == store.add("programs", b"content", ".pte")
    assert name != store.add("programs", b"other", ".pte")
    assert store.read(name) == b"content"
    assert Store(store.location).read(name) == b"content"
    with pytest.raises(FileNotFoundError):
        store.read("programs/none")


def test_what_is_stopped_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.write("rows.jsonl", b"old")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgewise.scale.store.os.replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        store.write("rows.jsonl", b"new")
    assert store.read("rows.jsonl") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"key": "k"}', b"\xff\xfe"])
def test_damaged_records_are_not_known(tmp_path: Path, text: bytes) -> None:
    store = Store(tmp_path)
    store.write("results/k.json", text)
    assert store.outcome("k") is None
