"""Which import paths are served, what is said of the others, and by which order of imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgewise.compat.table import ROWS, SERVED

INSTALL = "import edgewise.compat.executorch\n"

# Statement | what the ImportError says.
REFUSED = {
    "from executorch.exir import to_edg": "got executorch.exir.to_edg; try to_edge",
    "import executorch.backends.qualcomm": "try one of these partitioners",
    "import executorch.backends.mlx": "try one of these partitioners",
    "from executorch.backends.apple.coreml.partition import CoreMLPartitioner": (
        "with edgewise.to_edge_transform_and_lower, without edgewise.compat"
    ),
    "from executorch.export import get_android_recipe": "try edgewise.compile",
    "from executorch.export.target_recipes import get_ios_recipe": "XNNPackRecipeType.FP32",
    "from executorch.exir.passes.external_constants_pass import f": "external_constants=True",
    "from executorch.backends.arm.ethosu import VelaExternalBlockPlacements": "stay in the .pte",
    "from executorch.devtools import tap": "try edgewise.inspect, or the command",
    "from executorch.devtools.inspector import calculate_snr": "edgewise.inspect.compare",
    "from executorch.devtools.etrecord import ETRecord": "delegation_report()",
    "from executorch.exir.program import EthosUQuantizer": "try from executorch.backends.arm",
    "from executorch.exir.passes import SpecPropPass": "edgewise runs such passes itself",
    "from executorch.extension.llm.runner import make_raw_audio_input": "try make_audio_input",
    "import executorch.nothing": "try edgewise's own names",
}

# Statements | what they print. None of them imports torch.
ACCEPTED = {
    "import executorch.runtime as r; print(r.Runtime.get().load_program.__module__)": (
        "edgewise.compat.runtime"
    ),
    "import executorch.extension.pybindings._C as c; print(c.TensorInfo.__name__)": "TensorInfo",
    "import executorch.kernels.quantized as q; print(q.__name__)": "executorch.kernels.quantized",
    "from executorch.runtime import *; print(Verification.Minimal.name)": "Minimal",
    "from executorch import runtime; print('Runtime' in dir(runtime))": "True",
    "from executorch.backends.xnnpack.partition.config import LinearConfig as c; print(c)": (
        "linear"
    ),
    "import executorch; print(hasattr(executorch, 'nothing'))": "False",
    "import edgewise.compat as c; c.install(); c.install(); print('twice')": "twice",
}


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_what_is_not_served_says_what_to_use() -> None:
    code = [INSTALL, "import sys"]
    for statement in REFUSED:
        code += ["try:", f"    {statement}", "except ImportError as failure: print(failure)"]
        code += ["else: print('served')"]
    done = _python("\n".join([*code, "assert 'torch' not in sys.modules"]))
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(REFUSED)
    for line, (statement, expected) in zip(said, REFUSED.items(), strict=True):
        assert line.startswith("[edgewise.compat] serves what docs/compat.md lists"), statement
        assert expected in line, statement


def test_what_is_served_without_torch() -> None:
    done = _python("\n".join([INSTALL, *ACCEPTED, "import sys; assert 'torch' not in sys.modules"]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(ACCEPTED.values())


def test_uninstalled_names_are_gone() -> None:
    code = "import edgewise.compat as c, sys; c.install(); import executorch.runtime; c.uninstall()"
    done = _python(f"{code}\nprint([n for n in sys.modules if n.startswith('executorch')])")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_real_one_imported_first(tmp_path: Path) -> None:
    (tmp_path / "executorch").mkdir()
    (tmp_path / "executorch" / "__init__.py").write_text("")
    done = _python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import executorch\n{INSTALL}"
    )
    assert "must be imported before ExecuTorch; got it imported from" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "usage: python -m edgewise.compat"),
        ([], 2, "usage: python -m edgewise.compat"),
        (["no_such.py"], 2, "a script must be a file; got no_such.py"),
        (["script.py", "one", "--two"], 3, "['script.py', 'one', '--two'] edgewise.compat.runtime"),
        (["-m", "script", "one"], 3, "'one'] edgewise.compat.runtime"),
    ],
    ids=["help", "nothing", "no file", "script", "module"],
)
def test_the_command(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    (tmp_path / "beside.py").write_text("from executorch.runtime import Runtime\n")
    (tmp_path / "script.py").write_text(
        "import sys; from beside import Runtime\n"
        "print(sys.argv, Runtime.__module__)\n"
        "if __name__ == '__main__': sys.exit(3)\n"
    )
    command = [sys.executable, "-m", "edgewise.compat", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr


# Native modules, and a name that its package does not bind yet.
UNSEEN = {
    "executorch.backends.xnnpack.partition.config.EluConfig",
    "executorch.extension.pybindings._C",
    "executorch.extension.pybindings._portable_lib",
}


@pytest.mark.peer
def test_the_real_one_has_these_names() -> None:
    spec = find_spec("executorch")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    wrong = []
    for path in sorted({row.path for row in ROWS}):
        place = root.joinpath(*path.split(".")[1:])
        file = place.with_suffix(".py")
        if not file.exists():
            file = place / "__init__.py"
        if not file.exists():
            wrong.append(path)
            continue
        bound = _bound(file)
        wrong += [f"{path}.{name}" for name in SERVED[path] if name not in bound]
    assert set(wrong) == UNSEEN


def _bound(file: Path) -> set[str]:
    """Names that a module's top level binds."""
    names: set[str] = set()
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.names[0].name == "*":
            names |= _bound(file.with_name(f"{node.module}.py"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names
