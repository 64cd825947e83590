"""The native methods that classes of a jar declare, as the names of functions that JNI looks for.

Class files as chapter 4 of Java's virtual machine specification has them; names as chapter 2 of
JNI's. Overloaded native methods have longer names there, and are refused.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

NATIVE = 0x0100
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
"""Bytes of a constant behind its tag, but those of text (tag 1)."""


def mangled(name: str) -> str:
    """A class's or method's name in a function's: "." has become "/" already."""
    known = {"/": "_", "_": "_1", ";": "_2", "[": "_3"}
    return "".join(
        known.get(c, c if c.isascii() and c.isalnum() else f"_0{ord(c):04x}") for c in name
    )


def native_methods(data: bytes) -> tuple[str, list[str]]:
    """The class's name with slashes, and its native methods."""
    magic, _, _, count = struct.unpack_from(">IHHH", data)
    if magic != 0xCAFEBABE:
        raise ValueError("[java_classes] a class file begins with CAFEBABE; got another file")
    texts: dict[int, str] = {}
    names: dict[int, int] = {}  # of classes, and what else has a number here
    at, i = 10, 1
    while i < count:
        tag = data[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, at + 1)
            texts[i] = data[at + 3 : at + 3 + size].decode("utf-8", "replace")
            at += 3 + size
        else:
            names[i] = int(struct.unpack_from(">H", data, at + 1)[0])
            at += 1 + SIZES[tag]
        i += 2 if tag in (5, 6) else 1
    _, this, _, interfaces = struct.unpack_from(">HHHH", data, at)
    at += 8 + 2 * interfaces
    found: list[str] = []
    for kind in ("fields", "methods"):
        (members,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(members):
            flags, name, _, attributes = struct.unpack_from(">HHHH", data, at)
            at += 8
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]
            if kind == "methods" and flags & NATIVE:
                found.append(texts[name])
    return texts[names[this]], found


def jni_functions(jar: Path) -> set[str]:
    """Of all classes of a jar."""
    functions: set[str] = set()
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if not entry.endswith(".class"):
                continue
            name, methods = native_methods(archive.read(entry))
            if len(set(methods)) != len(methods):
                raise ValueError(f"[java_classes] native methods of {name} must differ in name")
            functions |= {f"Java_{mangled(name)}_{mangled(method)}" for method in methods}
    return functions
