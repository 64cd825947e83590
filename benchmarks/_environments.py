"""Environments of frameworks whose packages do not belong into the project's own.

Each is made once, in ~/.cache/edgewise/benchmarks/frameworks, and falls back to the packages of
this environment (torch, transformers) for what it does not have itself.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PACKAGES: dict[str, tuple[str, ...]] = {
    "openvino": ("openvino==2026.4.1", "nncf==3.4.0"),
    # From its sources: the instructions of this CPU are chosen when it is built.
    # transformers is the release that it asks for.
    "optimum-executorch": (
        "optimum-executorch==1.1.0",
        "transformers==5.0.0rc1",
        "tabulate>=0.9",
        "pandas>=2",
    ),
    "mlx": ("mlx[cpu]==0.32.4", "mlx-lm==0.32.2"),
    "llama.cpp": ("llama-cpp-python==0.3.36", "--no-binary=llama-cpp-python"),
}
"""What pip installs; the framework's own package first."""
_BUILD = {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release"}


def python_of(framework: str, cache: Path) -> str:
    """The interpreter that runs a framework: this one, or that of the framework's environment."""
    if framework not in PACKAGES:
        return sys.executable
    folder = cache / "frameworks" / framework
    python = str(folder / "bin" / "python")
    wanted = "\n".join(PACKAGES[framework])
    done = folder / "packages.txt"
    if done.exists() and done.read_text() == wanted:
        return python
    print(
        f"environment for {framework}: {', '.join(PACKAGES[framework])} ...",
        file=sys.stderr,
        flush=True,
    )
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Added last, with what editable installations put there. pip takes what is there as installed.
    here = sysconfig.get_paths()["purelib"]
    (packages / "zz_fallback.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    pip = [python, "-m", "pip", "install", "-q", *PACKAGES[framework]]
    subprocess.run(pip, check=True, env={**os.environ, **_BUILD})
    done.write_text(wanted)
    return python


def version_of(framework: str) -> str:
    """Of the framework's package."""
    return PACKAGES[framework][0].partition("==")[2]
