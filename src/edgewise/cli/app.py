"""The commands of `edgewise`. Each is a module, imported when it is used.

A module has a function `command` whose arguments are Typer's (options that several commands
have in common are in `edgewise.cli.options`), or, for a group of commands, a Typer `app`. It
imports nothing heavy at its top: torch, numpy and the runtime only inside functions.
"""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgewise.cli.errors import FAILED, OK, USAGE, failure_of
from edgewise.cli.output import complain

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Entry:
    """A command: its module, its line in `edgewise --help`, and under which heading."""

    module: str
    summary: str
    heading: str


_MAKE, _RUN, _LOOK, _REST = "Make", "Run", "Look inside", "More"

COMMANDS: dict[str, Entry] = {
    "compile": Entry("edgewise.cli.compile", "A model becomes a .pte file.", _MAKE),
    "sweep": Entry("edgewise.cli.sweep", "Compile in many ways, compare them.", _MAKE),
    "run": Entry("edgewise.cli.run", "Run a file on inputs.", _RUN),
    "bench": Entry("edgewise.cli.bench", "How long a file takes, and how much memory.", _RUN),
    "profile": Entry("edgewise.cli.profile", "Where the time goes.", _RUN),
    "inspect": Entry("edgewise.cli.inspect", "What is in a .pte file.", _LOOK),
    "explain": Entry("edgewise.cli.explain", "What runs where, and why not elsewhere.", _LOOK),
    "compare": Entry("edgewise.cli.compare", "Accuracy, layer by layer.", _LOOK),
    "diff": Entry("edgewise.cli.diff", "What differs between two files.", _LOOK),
    "report": Entry("edgewise.cli.report", "All of it as a page.", _LOOK),
    "ops": Entry("edgewise.cli.ops", "The operators that a backend takes.", _REST),
    "doctor": Entry("edgewise.cli.doctor", "What is installed, what is missing.", _REST),
    "link": Entry("edgewise.cli.link", "A program for a microcontroller's build.", _REST),
    "ethosu": Entry("edgewise.cli.ethosu", "Tools for Arm's Ethos-U.", _REST),
    "llm": Entry("edgewise.cli.llm", "Language models: export and run.", _REST),
}
"""In the order of `edgewise --help`. A command whose module is not there is not offered."""


class _Commands(TyperGroup):
    """A group whose commands are made when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, entry in COMMANDS.items() if _is_there(entry.module)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in self.list_commands(ctx) else None


def _is_there(module: str) -> bool:
    return find_spec(module) is not None


def _flowing(text: str) -> str:
    """A docstring whose paragraphs are lines: terminals are of many widths."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


@cache
def _command(name: str) -> Any:
    entry = COMMANDS[name]
    module = import_module(entry.module)
    if hasattr(module, "app"):
        group: Any = typer.main.get_command(module.app)
        group.name, group.help, group.rich_help_panel = name, entry.summary, entry.heading
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(
        name,
        help=_flowing(inspect.getdoc(module.command) or entry.summary),
        short_help=entry.summary,
        rich_help_panel=entry.heading,
        context_settings=_SETTINGS | getattr(module, "CONTEXT_SETTINGS", {}),
    )(module.command)
    return typer.main.get_command(single)


app = typer.Typer(
    name="edgewise",
    cls=_Commands,
    context_settings=_SETTINGS,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="PyTorch models onto devices: make .pte files, run them, look inside them.",
    epilog="Every command takes --help and --json. Exit codes: docs/cli.md.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from edgewise.cli.version import version_text

        print(f"edgewise {version_text()}")
        raise typer.Exit(OK)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it, and exit.")
    ] = False,
    show_traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the code an error was raised.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Runs one command; the exit code. No exception leaves this."""
    given = list(arguments) or ["--help"]
    if sys.stderr is None:  # closed; nobody reads it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    try:
        if sys.stdout is None:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            raise OSError(errno.EBADF, "must be open, for results", "standard output")
        code = _run(given)
        sys.stdout.flush()
        return code
    except OSError as error:
        # Of standard output itself. Python's own flush at exit must not fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        # `edgewise ... | head`: nobody reads the rest.
        if not isinstance(error, BrokenPipeError):
            complain(failure_of(error).message, json=False, code=FAILED)
        return FAILED


def _run(given: Sequence[str]) -> int:
    try:
        code = typer.main.get_command(app).main(given, "edgewise", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        return _tell(error, given)


def _tell(error: BaseException, given: Sequence[str]) -> int:
    failure = failure_of(error)
    if failure.is_defect or "--traceback" in given:
        traceback.print_exception(error)
    message = failure.message
    context = getattr(error, "ctx", None)
    if failure.code == USAGE and context is not None:
        if not message:  # the name of a group and nothing behind it: Typer showed its help
            return USAGE
        message += f" Try: {context.command_path} --help"
    complain(message, json="--json" in given, code=failure.code)
    return failure.code
