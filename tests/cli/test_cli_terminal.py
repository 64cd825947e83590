"""Names of files reach a terminal as text: control characters are shown, not sent."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from cli_support import Command
from rich.table import Table
from rich.text import Text

import edgewise
from edgewise.cli.output import make_console
from edgewise.cli.terminal import shown

SHOWN = {
    "colour": ("a\x1b[31mb", r"a\x1b[31mb"),
    "title": ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
    "one byte": ("\x9b2J", r"\x9b2J"),
    "back": ("ab\b\rc", r"ab\x08\rc"),
    "delete": ("a\x7f", r"a\x7f"),
    "other direction": ("a\u202eb", r"a\u202eb"),
    "letters and lines": ("ä→\n\tz", "ä→\n\tz"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_shown(case: str) -> None:
    text, expected = SHOWN[case]
    assert shown(text) == expected


@pytest.mark.parametrize("case", [name for name in SHOWN if name != "letters and lines"])
def test_the_console_sends_no_control_character_of_others(case: str) -> None:
    text, expected = SHOWN[case]
    console = make_console(stderr=False)
    table = Table("name")
    table.add_row(Text(text))
    with console.capture() as captured:
        console.print(text, markup=False, soft_wrap=True)
        console.print(table)
    assert captured.get().startswith(expected)  # a cell may be cut
    assert not set(captured.get()) & {"\x1b", "\x07", "\x08", "\x0d", "\x7f", "\x9b", "\u202e"}


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose method has a name that would set a terminal's title."""
    path = tmp_path_factory.mktemp("terminal") / "evil.pte"
    exported = torch.export.export(torch.nn.Linear(3, 3), (torch.ones(1, 3),))
    edge = edgewise.to_edge_transform_and_lower({"\x1b]0;x\x07": exported})
    edge.to_executorch().save(path, record=True)
    return path


COMMANDS = (["explain"], ["run", "--method", "other"], ["profile"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_commands_show_a_methods_name(arguments: list[str], evil: Path, command: Command) -> None:
    done = command(*arguments[:1], str(evil), *arguments[1:])
    printed = done.out + done.err
    assert not set(printed) & {"\x1b", "\x07"}
    assert r"\x1b]0;x" in printed


def test_the_runner_shows_a_methods_name(evil: Path) -> None:
    runner = Path(__file__).parents[2] / "build" / "dev" / "native" / "tools" / "edgewise_run"
    done = subprocess.run([runner, evil], capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert r"\x1b]0;x\x07" in printed
    assert "\x1b" not in printed
