"""Lowers and runs the nets of tests/interop/releases with the packages that are installed: every
one, or with an argument N each N-th. Ends with 1 if one crashes or computes something else, or is
refused without being known to be."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "interop" / "releases"), str(ROOT / "tools")]

# torch.export of 2.12 gives an LSTM's last states a dimension more.
NEEDS_2_13 = {"lstm"} if torch.__version__ < "2.13" else set()
NEEDS_EXECUTORCH = {"llama_cache"}
"""ExecuTorch's own operators are in its package."""


def main() -> int:
    warnings.simplefilter("ignore")
    import ours
    from nets import variants

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left_out = NEEDS_EXECUTORCH | NEEDS_2_13
        chosen = [v for v in variants().values() if v.name not in left_out]
        chosen = chosen[:: int(sys.argv[1]) if len(sys.argv) > 1 else 1]
        rows = ours.write_all(chosen, folder)
        rows += ours.run_all(folder)
    bad = [row for row in rows if row["result"] != "ok"]
    print(f"nets: {len(rows) - len(bad)} of {len(chosen)} lowered, run, and right")
    for row in bad:
        print(f"  {row['name']} ({row['how']}): {row['result']}: {row['detail'][:300]}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
