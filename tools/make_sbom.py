"""The parts that a wheel carries inside, as a CycloneDX 1.6 document.

    python tools/make_sbom.py --out edgewise.cdx.json --part NAME=VERSION[=SHA256] ...

The build calls it with what it linked (cmake/edgewise_wheel.cmake). The same parts make the same
bytes: there is no date and no random number in it. A part that is not in PARTS is an error, so that
nothing is linked whose licence nobody has looked up.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Part:
    licence: str
    """SPDX identifier or expression."""

    home: str
    """Where its sources are."""

    what: str


PARTS = {
    "XNNPACK": Part("BSD-3-Clause", "https://github.com/google/XNNPACK", "kernels for CPUs"),
    "pthreadpool": Part("BSD-2-Clause", "https://github.com/google/pthreadpool", "threads"),
    "cpuinfo": Part("BSD-2-Clause", "https://github.com/pytorch/cpuinfo", "what a CPU offers"),
    "FXdiv": Part("MIT", "https://github.com/Maratyszcza/FXdiv", "division by constants"),
    "Highway": Part("BSD-3-Clause", "https://github.com/google/highway", "vectors of each CPU"),
    "KleidiAI": Part(
        "Apache-2.0", "https://gitlab.arm.com/kleidi/kleidiai", "4-bit products on 64-bit Arm"
    ),
    "flatbuffers": Part("Apache-2.0", "https://github.com/google/flatbuffers", "reads files"),
    "nanobind": Part("BSD-3-Clause", "https://github.com/wjakob/nanobind", "binds C++ to Python"),
    "robin-map": Part("MIT", "https://github.com/Tessil/robin-map", "hash tables of nanobind"),
    "dagre": Part("MIT", "https://github.com/dagrejs/dagre", "layout of graphs in report pages"),
    "Emscripten": Part(
        "MIT AND Apache-2.0 WITH LLVM-exception",
        "https://github.com/emscripten-core/emscripten",
        "C and C++ libraries of the runtime for browsers",
    ),
    "libc++": Part("Apache-2.0 WITH LLVM-exception", "https://libcxx.llvm.org", "C++ library"),
    "libstdc++": Part(
        "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org", "C++ library"
    ),
}


def component(name: str, version: str, sha256: str) -> dict[str, Any]:
    part = PARTS[name]
    key = "expression" if " " in part.licence else "id"
    licence = (
        {"expression": part.licence} if key == "expression" else {"license": {key: part.licence}}
    )
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "description": part.what,
        "licenses": [licence],
        "externalReferences": [{"type": "vcs", "url": part.home}],
    }
    if sha256:
        made["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return made


def document(version: str, parts: list[tuple[str, str, str]]) -> dict[str, Any]:
    """parts: name, version, SHA-256 of the source archive or nothing."""
    own = f"pkg:pypi/edgewise@{version}"
    components = [component(*part) for part in sorted(parts)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "edgewise",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "BSD-3-Clause"}}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": own, "dependsOn": [c["bom-ref"] for c in components]},
            *({"ref": c["bom-ref"]} for c in components),
        ],
    }


def own_version() -> str:
    match = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def dagre_version() -> str:
    """It stands in the file that pages embed."""
    text = (ROOT / "src/edgewise/report/page/vendor/dagre.min.js").read_text()
    match = re.search(r'version="(\d+\.\d+\.\d+)"|"(\d+\.\d+\.\d+)"', text)
    return (match[1] or match[2]) if match else "unknown"


def parse(text: str) -> tuple[str, str, str]:
    name, _, rest = text.partition("=")
    version, _, sha256 = rest.partition("=")
    if name not in PARTS or not version:
        raise argparse.ArgumentTypeError(
            f"[make_sbom] a part must be NAME=VERSION[=SHA256] with a name of PARTS; got {text!r}; "
            "try adding it there with its licence"
        )
    return name, version, sha256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", type=parse, action="append", default=[])
    given = parser.parse_args()
    parts = [*given.part, ("dagre", dagre_version(), "")]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(document(own_version(), parts), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
