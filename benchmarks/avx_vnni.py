"""What the hottest loops of 8-bit products would take on a CPU with AVX-VNNI and no AVX-512, as
Intel's laptops from Alder Lake on have it; none was at hand.

Of each kernel the innermost loop with most products, as it was compiled (build/dev, and the XNNPACK
that it is linked with), by llvm-mca (Debian's llvm-19) for --core, with every load a hit in the
first cache. **These are estimates, not times**: results are not in them, nor what comes from
memory. Multiply-adds for a cycle, and ours to XNNPACK's.
"""

import argparse
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from _common import ROOT, cache_folder, report
from _mca import cycles_of, mca

OURS = "native/backends/xnnpack/CMakeFiles/edgewise_xnnpack_backend.dir/executor"
XNNPACK = "libmicrokernels-prod.a"


class Loop(NamedTuple):
    """A kernel: where it is, its name, and its products' instruction with what one computes."""

    file: str
    name: str
    product: str = "vpdpbusd"
    multiply_adds: int = 32


_BLOCKS, _CHANNELS = (f"xnn_qd8_f32_{kind}_gemm_minmax_ukernel_" for kind in ("qb4w", "qc8w"))
_CONVOLUTION = "xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_"
LOOPS = {  # ours, and XNNPACK's
    "several rows, 4 bits in blocks": (
        Loop("row_gemm_avx2", r"multiply_blocks<.*InDots, 6ul, 1ul, true"),
        Loop(XNNPACK, f"{_BLOCKS}3x8c8__avx2", "vpmaddwd", 16),
    ),
    "one row, 4 bits in blocks": (
        Loop("row_gemm_avx2", r"multiply_blocks<.*InDots, 1ul, 4ul, true"),
        Loop(XNNPACK, f"{_BLOCKS}1x8c8__avx2", "vpmaddwd", 16),
    ),
    "several rows, 8 bits": (
        Loop("row_gemm_avx2", r"multiply_tile<.*ByteProducts, 6ul"),
        Loop(XNNPACK, f"{_CHANNELS}5x8c8__avxvnni_prfm"),
    ),
    "convolution, 8 bits": (
        Loop("int8_kernels_avx2", r"multiply_rows<.*ByteProducts, 6ul"),
        Loop(XNNPACK, f"{_CONVOLUTION}5x8c8__avxvnni_prfm"),
    ),
}


def library(name: str) -> Path:
    if name != XNNPACK:
        return ROOT / "build/dev" / OURS / f"{name}.cpp.o"
    cache = cache_folder()
    found = sorted(cache.glob(f"xnnpack-*-x86_64-*/lib/{name}"))
    if not found:
        sys.exit(f"[avx_vnni] {cache} must have XNNPACK for x86-64; try make setup")
    return found[-1]


@lru_cache
def functions(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Of a library, by name: instructions with their addresses."""
    command = ["objdump", "-d", "--no-show-raw-insn", "-C", str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for part in re.split(r"\n(?=[0-9a-f]+ <)", listing):
        title = re.match(r"[0-9a-f]+ <(.*)>:\n", part)
        if title:
            lines = re.findall(r"^ *([0-9a-f]+):\t(.*)$", part, re.MULTILINE)
            found[title[1]] = [(int(address, 16), text) for address, text in lines]
    return found


def hottest(instructions: list[tuple[int, str]], product: str) -> list[str] | None:
    """The loop of which most instructions are products, from its first to its jump."""
    at = {address: i for i, (address, _) in enumerate(instructions)}
    best, found = 0.0, None
    for end, (address, text) in enumerate(instructions):
        jump = re.match(r"j\w+ +([0-9a-f]+)", text)
        first = at.get(int(jump[1], 16)) if jump else None
        if first is None or instructions[first][0] > address:
            continue
        loop = [text for _, text in instructions[first : end + 1]]
        share = sum(product in text for text in loop) / len(loop)
        if share > best:
            best, found = share, loop
    return found


def speed(loop: Loop, program: str, core: str) -> float:
    """Multiply-adds for a cycle."""
    for name, instructions in functions(library(loop.file)).items():
        lines = hottest(instructions, loop.product) if re.search(loop.name, name) else None
        if lines:
            break
    else:
        sys.exit(f"[avx_vnni] {library(loop.file)} must have {loop.name} with a loop of products")
    count = sum(loop.product in line for line in lines) * loop.multiply_adds
    plain = [re.sub(r"[#<].*", "", line) for line in lines]
    plain = [re.sub(r"^(j\w+) .*", r"\1 loop", line) for line in plain]
    text = "\n".join(["loop:", *plain, ""])
    return count / cycles_of(program, text, core, ["--mtriple=x86_64"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--core", default="alderlake", help="as llvm-mca names it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    program = mca()
    if program is None:
        sys.exit("[avx_vnni] needs llvm-mca; try apt-get install llvm-19")
    rows = []
    for title, loops in LOOPS.items():
        ours, theirs = (speed(loop, program, options.core) for loop in loops)
        rows.append({"loop": title, "ours": ours, "XNNPACK": theirs, "ratio": ours / theirs})
    notes = ["multiply-adds for a cycle, by llvm-mca: nothing was measured"]
    report(f"loops of 8-bit products on {options.core}", rows, notes, options.json)


if __name__ == "__main__":
    main()
