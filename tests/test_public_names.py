"""Names that packages offer are the same whatever else was imported."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import edgewise


def test_no_module_has_the_name_of_what_its_package_offers() -> None:
    """Of packages that import names when they are used: importing a submodule binds its name in
    the package, over a function of that name."""
    taken = []
    packages = [m.name for m in pkgutil.walk_packages(edgewise.__path__, "edgewise.") if m.ispkg]
    for package in ["edgewise", *packages]:
        module = importlib.import_module(package)
        offered = set(getattr(module, "__all__", ()))
        inside = {found.name for found in pkgutil.iter_modules(module.__path__)}
        if hasattr(module, "__getattr__"):
            taken += [f"{package}.{name}" for name in sorted(offered & inside)]
    assert taken == []


def test_packages_need_no_import_of_their_own() -> None:
    """In a process of its own, where nothing else has imported them; none takes torch."""
    names = "inspect llm profiling quantize report runtime scale"
    code = (
        f"import edgewise, sys; [print(getattr(edgewise, n).__name__) for n in '{names}'.split()]"
    )
    check = "; assert 'torch' not in sys.modules and set(edgewise.__all__) <= set(dir(edgewise))"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True)
    assert done.stdout.split() == [f"edgewise.{name}" for name in names.split()], done.stderr
    assert done.returncode == 0, done.stderr
