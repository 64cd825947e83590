"""The instructions that benchmarks/arm.py counts, of a loop that is known."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.cross

COUNTS = Path(__file__).parents[2] / "benchmarks" / "arm_counts"
CASES = {
    "float multiply-adds": """
        fmla v0.4s, v1.4s, v2.s[1]
        fmla v0.4s, v1.4s, v2.4s
        fmls v0.2d, v1.2d, v2.2d
        fmls v0.8h, v1.8h, v2.8h
        fmla v0.8h, v1.8h, v2.h[3]
        fmadd s0, s1, s2, s3
        fnmsub d0, d1, d2, d3""",
    "dot products": """
        sdot v0.4s, v1.16b, v2.16b
        udot v0.2s, v1.8b, v2.4b[1]
        usdot v0.4s, v1.16b, v2.16b
        sudot v0.4s, v1.16b, v2.4b[1]
        bfdot v0.4s, v1.8h, v2.8h
        bfdot v0.4s, v1.8h, v2.2h[1]""",
    "matrix products": """
        smmla v0.4s, v1.16b, v2.16b
        ummla v0.4s, v1.16b, v2.16b
        usmmla v0.4s, v1.16b, v2.16b
        bfmmla v0.4s, v1.8h, v2.8h""",
    "integer multiply-adds": """
        smlal v0.4s, v1.4h, v2.4h
        smlal2 v0.4s, v1.8h, v2.h[1]
        umlsl v0.4s, v1.4h, v2.4h
        mla v0.4s, v1.4s, v2.4s
        mls v0.8h, v1.8h, v2.h[1]""",
    "loads": """
        ldr q0, [sp]
        ldp q0, q1, [sp]
        ldp x2, x3, [sp]
        ld1 {v0.4s, v1.4s, v2.4s, v3.4s}, [sp]
        ld1r {v0.4s}, [sp]
        ldrsw x2, [sp]
        ldrb w2, [sp]
        ldur d0, [sp, #-8]
        ldr q5, data""",
    "stores": """
        str q0, [sp, #-16]
        stp x2, x3, [sp, #-16]
        st1 {v0.4s}, [sp]""",
    "": """
        prfm pldl1keep, [sp]
        add v0.4s, v1.4s, v2.4s
        fmul v0.4s, v1.4s, v2.4s
        madd x2, x3, x4, x5
        nop""",
}
RUNS = 1000
PROGRAM = """
.arch armv8.6-a+fp16+bf16+i8mm
.global _start
_start:
  sub sp, sp, #128
  mov x0, #{runs}
loop:
  {code}
  subs x0, x0, #1
  b.ne loop
  mov x8, #93
  svc 0
.balign 16
data: .quad 1, 2
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counter, built as arm.py builds it."""
    folder = tmp_path_factory.mktemp("counts")
    for name in ("qemu-aarch64", "aarch64-linux-gnu-gcc", "apt-get"):
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}: tools/install_cross.sh aarch64")
    subprocess.run([COUNTS / "build.sh", folder, "-Werror"], check=True)
    return folder / "count.so"


@pytest.mark.parametrize("kind", CASES)
def test_a_known_loop_is_counted_on_aarch64(kind: str, plugin: Path, tmp_path: Path) -> None:
    code = CASES[kind].strip().splitlines()
    source, program, counts = (tmp_path / name for name in ("loop.s", "loop", "counts.json"))
    source.write_text(PROGRAM.format(runs=RUNS, code="\n".join(code)))
    compiler = ["aarch64-linux-gnu-gcc", "-nostdlib", "-static", source, "-o", program]
    subprocess.run(compiler, check=True)
    command = ["qemu-aarch64", "-cpu", "max", "-plugin", plugin, program]
    subprocess.run(command, env={"COUNT_FILE": str(counts)}, check=True)
    found = json.loads(counts.read_text())
    total = {name: count for name, count in found["total"].items() if count}
    assert total.pop("instructions") == RUNS * (len(code) + 2) + 4
    assert total == ({kind: RUNS * len(code)} if kind else {})
    (loop,) = (block for block in found["blocks"] if block["runs"] == RUNS - 1)
    assert len(loop["code"]) == len(code) + 2
