"""The native module has a budget: most of what an installation adds to numpy is in it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from edgewise.runtime import _native

# Installed, numpy takes 72.3 MiB, our Python files with their bytecode 4.5, and this the rest.
# Packed weights on disk are 33 kB of it: SHA-256 and the folder's files. Products with 4-bit
# weights are 23 kB for AVX512-VNNI and 31 kB for AVX2, which halves a language model's time there;
# attention to keys and values in float16 is 11 kB. Convolutions of any window and GEMMs of 8-bit
# integers with AVX2, which halve XNNPACK's time, are 42 kB; depthwise ones of 8-bit integers,
# likewise, 18 kB; both with AVX512-VNNI, 30 kB. Linear attention with the gated delta rule is 12
# kB. Winograd's large tiles, by which ResNet-18 takes a fifth less time, are 27 kB; columns that do
# not fill a vector of a GEMM, stored in part, its loop over tiles, and both vectors of a depthwise
# panel at once, 24 kB: a tenth of MobileNet's time. Mutable buffers by name are 5 kB, attention to
# int8 rows likewise. Elementwise operators that walk neither over small operands nor over short
# runs, and the same for sums and other kernels of rows, up to 200 times as fast, are 24 kB. exp,
# sin and cos in vectors, a third to a ninth of XNNPACK's time, are 12 kB. Weights of 4, 8 and 16
# bits that stay so in memory, for a quarter of it and of a row's time, and rows of 8-bit integers
# with AVX2 are 41 kB. The same rows and 8-bit convolutions by the dot products of AVX-VNNI, three
# times XNNPACK's products in a cycle of a language model's weights, are 40 kB. Runs of indices,
# moved at once for up to 28 times less time, are 2 kB. Attention under a mask, in 0.6 to 0.8 of the
# time, is 4 kB; norms of rows as one operator, a third of the time, are 12 kB. Parts of tensors
# that are written in place, for half of the time of linear attention, and delegates in bfloat16
# are 6 kB.
MODULE_BUDGET = 4_268_000


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the budget is that of the wheel for x86-64",
)
def test_the_module_stays_within_its_budget() -> None:
    size = Path(_native.__file__).stat().st_size
    assert size <= MODULE_BUDGET, (
        f"the native module has {size} bytes of {MODULE_BUDGET}; see which object files grew: "
        "size build/dev/native/kernels/CMakeFiles/edgewise_kernels.dir/*.o"
    )
