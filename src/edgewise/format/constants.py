"""Constant tensors in the file: each content once, aligned, in one segment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Rope:
    """Blobs that lie one after the other, aligned; together they are one segment."""

    alignment: int = 16
    blobs: list[memoryview] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    size: int = 0

    def __len__(self) -> int:
        return self.size

    def add(self, blob: memoryview) -> int:
        offset = -(-self.size // self.alignment) * self.alignment
        self.blobs.append(blob)
        self.offsets.append(offset)
        self.size = offset + len(blob)
        return offset

    def parts(self) -> Iterator[bytes | memoryview]:
        at = 0
        for blob, offset in zip(self.blobs, self.offsets, strict=True):
            if offset > at:
                yield bytes(offset - at)
            yield blob
            at = offset + len(blob)


class ConstantTable:
    """Contents by index; index 0 stands for no constant."""

    def __init__(self, alignment: int, *, share: bool = True) -> None:
        self.rope = Rope(alignment)
        self.offsets: list[int] = [0]
        self._share = share
        self._known: dict[bytes, int] = {}

    def add(self, blob: memoryview) -> int:
        """The index of the content; the same content has one index if contents are shared."""
        key = hashlib.sha256(blob).digest() if self._share else b""
        if self._share and key in self._known:
            return self._known[key]
        # Never empty as a whole: a segment of no bytes is none for ExecuTorch.
        self.offsets.append(self.rope.add(blob if len(blob) else memoryview(bytes(1))))
        self._known[key] = len(self.offsets) - 1
        return len(self.offsets) - 1
