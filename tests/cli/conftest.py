"""A small model in a file of its own, compiled once, and the command in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import MODEL, Command, Shown

from edgewise.cli import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `edgewise` with the words given, in this process."""

    def run(*words: object) -> Shown:
        capsys.readouterr()
        code = main([str(word) for word in words])
        got = capsys.readouterr()
        return Shown(code, got.out, got.err)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model.py`; `float.pte` and `int8.pte` of its `make`, with records; `conv.pte`."""
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("cli")
    (place / "model.py").write_text(MODEL)
    model = f"{place}/model.py"
    import numpy as np

    np.save(place / "data.npy", np.random.default_rng(0).normal(size=(4, 3, 16, 16)))
    out = ["-o", f"{place}/float.pte", "-o", f"{place}/int8.pte"]
    ways = ["--quantize", "none", "--quantize", "int8", "-c", f"{place}/data.npy"]
    assert main(["compile", f"{model}:make", "-q", *ways, *out]) == 0
    assert main(["compile", f"{model}:conv", "-q", "--no-record", "-o", f"{place}/conv.pte"]) == 0
    return place
