"""Backends are found by entry points: this project's, and those of other packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from edgewise import registry

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "backend"

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    tomllib = pytest.importorskip("tomli")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the example is installed: its sources and its metadata."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    entries = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(entries))
    path = [str(site), str(EXAMPLE), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_is_as_short_as_the_documentation_says() -> None:
    lines = [line for p in EXAMPLE.rglob("*.py") for line in p.read_text().splitlines()]
    assert len(lines) <= 60


def test_the_documentation_shows_the_example() -> None:
    page = (ROOT / "docs" / "backends.md").read_text()
    shown = {(ROOT / "docs" / name).resolve() for name in re.findall(r"include\} (\S+)", page)}
    assert shown == {EXAMPLE / "pyproject.toml", *(EXAMPLE / "edgewise_numpy").glob("*.py")}


def test_an_installed_backend_compiles_and_runs(installed: dict[str, str], tmp_path: Path) -> None:
    code = f"""
        import json, sys
        import torch
        import edgewise
        from edgewise.inspect.needs import needs_of

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.rand(4))

            def forward(self, x):
                return torch.sigmoid(torch.tanh(x * self.weight) + x) + 2 * x

        net, x = Net().eval(), torch.rand(2, 4)
        program = edgewise.compile(net, (x,), backend="numpy", verbose=False)
        program.save({str(tmp_path / "model.pte")!r}, record=True)
        report = program.delegation_report()
        y = edgewise.load({str(tmp_path / "model.pte")!r})(x)
        print(json.dumps({{
            "error": float((torch.from_numpy(y) - net(x).detach()).abs().max()),
            "backends": sorted({{node.backend for node in report.nodes}}),
            "refused": {{n.operator: n.reasons for n in report.refused}},
            "needs": [str(need) for need in needs_of(program.buffer)],
        }}))
    """
    found = json.loads(run(code, installed))
    assert found["error"] < 1e-6
    assert found["backends"] == ["NumpyBackend", "runtime"]
    rule = "one of aten.add.Tensor, aten.mul.Tensor, aten.tanh.default, of tensors"
    assert found["refused"]["aten.sigmoid.default"] == {
        "NumpyBackend": [f"{rule}; got aten.sigmoid.default"]
    }
    assert found["needs"] == ["delegate NumpyBackend (no release)"]


def test_commands_ask_it(installed: dict[str, str]) -> None:
    pytest.importorskip("typer")
    code = """
        from edgewise.cli import main
        from edgewise.cli.compiling import complete_backend

        assert main(["ops", "numpy", "--find", "tanh"]) == 0
        print(complete_backend())
    """
    found = run(code, installed)
    assert "aten.tanh.default" in found
    assert "numpy" in found.splitlines()[-1]


def test_sources_that_are_not_installed_have_their_own() -> None:
    found = {b.name: b.delegate_id for b in registry.backends()}
    assert found["xnnpack"] == "XnnpackBackend"
    assert found["ethos-u"] == "EthosUBackend"
    assert found["neutron"] == "NeutronBackend"
    assert found["coreml"] == "CoreMLBackend"
    assert next(iter(found)) == "xnnpack"


def _entry(value: str) -> EntryPoint:
    return EntryPoint("other", value, registry.GROUP)


OTHERS = {
    "not there": (_entry("no_such_module:BACKEND"), "ModuleNotFoundError"),
    "no backend": (_entry("json:dumps"), "AttributeError"),
    "a name that is taken": (_entry(f"{__name__}:Twin"), "the name of another: xnnpack"),
    "the name of no backend": (_entry(f"{__name__}:Nobody"), "the name of another: none"),
    "one of several": (_entry(f"{__name__}:SEVERAL"), "AttributeError"),
}


class Twin(registry.Backend):
    name, delegate_id = "xnnpack", "TwinBackend"

    def partitioner(self, target: str) -> None:  # type: ignore[override]
        return None


class Nobody(Twin):
    name, delegate_id = "none", "NobodyBackend"


class Third(Twin):
    name, delegate_id = "third", "ThirdBackend"


SEVERAL = (Third(), object())
PAIR = (Third(), Twin())


def test_an_entry_point_may_offer_several(monkeypatch: pytest.MonkeyPatch) -> None:
    own = registry._entries()
    monkeypatch.setattr(registry, "_entries", lambda: [*own, _entry(f"{__name__}:PAIR")])
    with pytest.warns(RuntimeWarning, match="the name of another: xnnpack"):
        found = registry.backends.__wrapped__()
    assert [one.name for one in found[len(registry.backends()) :]] == ["third"]


@pytest.mark.parametrize("name", ["coreml", "vulkan", "openvino"])
def test_backends_of_executorch_say_what_they_need(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    backend = registry.backend_for(name)
    assert backend is not None
    assert "no quantizer" in registry.scheme_problem(name, "int8")
    assert "prepare_pt2e" in registry.scheme_hint(name, "int8")
    monkeypatch.setattr("edgewise.backends.executorch.plugin.find_spec", lambda module: None)
    with pytest.raises(ImportError, match=r"is not installed; try pip install executorch"):
        backend.partitioner(name)


@pytest.mark.parametrize(("entry", "told"), OTHERS.values(), ids=OTHERS)
def test_what_cannot_be_used_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, entry: EntryPoint, told: str
) -> None:
    own = registry._entries()
    monkeypatch.setattr(registry, "_entries", lambda: [*own, entry])
    with pytest.warns(RuntimeWarning, match=told):
        found = registry.backends.__wrapped__()
    assert found == registry.backends()


TARGETS = {
    "as it is": ("xnnpack", "xnnpack"),
    "in any case": ("Ethos-U55-128", "ethos-u55-128"),
    "a chip that only a converter knows": ("neutron-unheard", "neutron-unheard"),
    "no backend": ("none", "none"),
}


@pytest.mark.parametrize(("given", "meant"), TARGETS.values(), ids=TARGETS)
def test_a_target_is_found(given: str, meant: str) -> None:
    assert registry.checked_target("here", given) == meant


REFUSED = {
    "nearly": ("xnpack", "try 'xnnpack'"),
    "a family": ("ethos", "try 'ethos-u55-32'"),
    "another's": ("qnn", "one of xnnpack, coreml, vulkan, openvino, none, or a target of Ethos-U"),
    "no chip": ("neutron-", "got 'neutron-'"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED)
def test_a_target_that_nobody_has(given: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        registry.checked_target("here", given)


def test_nothing_outside_of_backends_imports_one() -> None:
    """Except for the names that ExecuTorch's scripts use, and the Ethos-U's own command."""
    apart = ("backends", "compat", "cli/ethosu.py")
    found = [
        path.relative_to(ROOT / "src" / "edgewise").as_posix()
        for path in (ROOT / "src" / "edgewise").rglob("*.py")
        if re.search(r"^\s*(from|import) edgewise\.backends\.\w+", path.read_text(), re.MULTILINE)
    ]
    assert [one for one in found if not one.startswith(apart)] == []
