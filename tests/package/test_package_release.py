"""What releases are made with: tags, lists of parts, libraries of an older glibc, workflows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_release  # noqa: E402
import make_sbom  # noqa: E402
from glibc_stubs import numbers  # noqa: E402


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What check_release reads, of version 1.2.3."""
    (tmp_path / "src" / "edgewise").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "edgewise"\nversion = "1.2.3"\n')
    (tmp_path / "src/edgewise/_version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-11-24)\n\n- new\n")
    return tmp_path


@pytest.mark.parametrize(
    ("tag", "file", "text", "wrong"),
    [
        ("v1.2.3", None, "", []),
        ("1.2.3", None, "", ["[tag]"]),
        ("v1.2", None, "", ["[tag]"]),
        ("v1.2.4", None, "", ["[pyproject.toml]", "[src/edgewise/_version.py]", "[CHANGELOG.md]"]),
        ("v1.2.3", "CHANGELOG.md", "## 1.2.3 (unreleased)\n", ["[CHANGELOG.md]"]),
        ("v1.2.3", "CHANGELOG.md", "nothing\n", ["[CHANGELOG.md]"]),
        ("v1.2.3", "src/edgewise/_version.py", "\n", ["[src/edgewise/_version.py]"]),
    ],
)
def test_tags(tree: Path, tag: str, file: str | None, text: str, wrong: list[str]) -> None:
    if file is not None:
        (tree / file).write_text(text)
    found = check_release.problems(tag, tree)
    assert [problem.partition(" ")[0] for problem in found] == wrong


def test_this_tree_names_one_version() -> None:
    found = check_release.problems(f"v{make_sbom.own_version()}", ROOT)
    assert all(problem.startswith("[CHANGELOG.md]") for problem in found), found


def sbom(tmp_path: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    words = [part for text in parts for part in ("--part", text)]
    command = [sys.executable, ROOT / "tools/make_sbom.py", "--out", tmp_path / "a.json", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_list_of_parts(tmp_path: Path) -> None:
    made = sbom(tmp_path, "XNNPACK=2024=ab12", "libstdc++=12.2.0")
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "a.json").read_text()
    document = json.loads(text)
    found = {c["name"]: (c["version"], c.get("hashes")) for c in document["components"]}
    assert found["XNNPACK"] == ("2024", [{"alg": "SHA-256", "content": "ab12"}])
    assert found["libstdc++"] == ("12.2.0", None)
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["dagre"][0])
    refs = {c["bom-ref"] for c in document["components"]}
    assert set(document["dependencies"][0]["dependsOn"]) == refs
    # The same parts make the same bytes, in whatever order they are given.
    sbom(tmp_path, "libstdc++=12.2.0", "XNNPACK=2024=ab12")
    assert (tmp_path / "a.json").read_text() == text


@pytest.mark.parametrize("part", ["unheard-of=1.0", "XNNPACK", "XNNPACK="])
def test_parts_that_nobody_has_looked_up(tmp_path: Path, part: str) -> None:
    made = sbom(tmp_path, part)
    assert made.returncode == 2
    assert "a part must be NAME=VERSION[=SHA256]" in made.stderr


NEEDS_OLD = """
#include <math.h>
#include <pthread.h>
#include <dlfcn.h>
double f(double x) { return exp(x) + log(x) + pow(x, x); }
int g(pthread_t* t, void* (*run)(void*)) { return pthread_create(t, 0, run, dlsym(0, "f")); }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_link_libraries_of_an_older_glibc(tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    make = [sys.executable, ROOT / "tools/glibc_stubs.py", "--cc", "gcc", "--glibc", "2.28", stubs]
    subprocess.run(make, check=True)
    source, library = tmp_path / "f.c", tmp_path / "f.so"
    link = ["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-Wl,--no-undefined"]

    source.write_text(NEEDS_OLD)
    subprocess.run([*link, f"-L{stubs}", "-lm"], check=True)
    listed = subprocess.run(["readelf", "-V", library], capture_output=True, text=True, check=True)
    versions = {numbers(v) for v in re.findall(r"Name: GLIBC_([\d.]+)", listed.stdout)}
    assert versions
    assert max(versions) <= (2, 28)
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    assert {"libpthread.so.0", "libdl.so.2"} <= {*re.findall(r"\[(lib.+)\]", needed.stdout)}
    subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r})"], check=True
    )

    # What came later is told when linking, not when a user starts it.
    source.write_text("#include <stdlib.h>\nunsigned f(void) { return arc4random(); }\n")
    failed = subprocess.run([*link, f"-L{stubs}"], capture_output=True, text=True)
    assert failed.returncode != 0
    assert "arc4random" in failed.stderr


def test_workflows_call_what_there_is() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [f.stem for f in files] == ["ci", "docs", "release", "wheels"]
    calls = 0
    for file in files:
        jobs = yaml.safe_load(file.read_text())["jobs"].values()
        for line in (step.get("run", "") for job in jobs for step in job.get("steps", [])):
            for target in re.findall(r"^make (\S+)", line):
                asked = subprocess.run(
                    ["make", "-n", target], cwd=ROOT, capture_output=True, text=True
                )
                assert asked.returncode == 0, (file.name, target, asked.stderr)
                calls += 1
            for script in re.findall(r"(?:^| )((?:tools|tests|\.ci)/\S+)", line):
                assert (ROOT / script).exists(), (file.name, script)
                calls += 1
    assert calls >= 6
