"""Results and files by their content, in a folder or at any URL that fsspec knows."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgewise.files import write_whole
from edgewise.scale.task import Limits, Outcome, Task, digest

_RESULTS = "results"


class Store:
    """A folder: `results/KEY.json`, and files under the names that stages give them.

    location: a path, or a URL of fsspec ("s3://bucket/sweep", "memory://x"). A file is written
    under another name and then renamed, so that whatever is stopped leaves whole files. Several
    processes and machines may write at once: equal names have equal contents. The contents are
    trusted: models in them are unpickled.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        self.location = os.fspath(location)
        self._fs, self.root = url_to_fs(self.location)
        self.is_local = isinstance(self._fs, LocalFileSystem)
        if self.is_local:
            self.location = self.root

    def outcome(self, key: str) -> Outcome | None:
        """What is known of a task; None if nothing is, or its record is damaged."""
        try:
            found = json.loads(self.read(f"{_RESULTS}/{key}.json"))
            return Outcome(**{**found, "limits": Limits(**found["limits"])})
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
            return None

    def standing(self, task: Task) -> Outcome | None:
        """The outcome of a task, if the same would come of it under its limits."""
        found = self.outcome(task.key)
        return found if found is not None and found.stands(task.limits) else None

    def keep(self, outcome: Outcome) -> None:
        """Writes the record. ValueError if the value is not plain data."""
        text = json.dumps(asdict(outcome), indent=1, allow_nan=False)
        self.write(f"{_RESULTS}/{outcome.key}.json", text.encode())

    def keys(self) -> set[str]:
        """Of all records, in one request."""
        try:
            names = self._fs.ls(f"{self.root}/{_RESULTS}", detail=False)
        except FileNotFoundError:
            return set()
        files = (name.rpartition("/")[2] for name in names)
        return {name.removesuffix(".json") for name in files if name.endswith(".json")}

    def add(self, folder: str, data: bytes, suffix: str) -> str:
        """Writes a file named by its content unless it is there; its name in the store."""
        name = f"{folder}/{digest(data)}{suffix}"
        if not self.exists(name):
            self.write(name, data)
        return name

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(f"{self.root}/{name}"))

    def read(self, name: str) -> bytes:
        """FileNotFoundError if it is not there."""
        data: Any = self._fs.cat_file(f"{self.root}/{name}")
        return bytes(data)

    def write(self, name: str, data: bytes) -> None:
        """The whole file at once, or nothing."""
        path = f"{self.root}/{name}"
        if not self.is_local:
            # Object stores show an object when it is complete.
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole({path: [data]})
