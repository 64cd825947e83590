"""The command `edgewise`; each subcommand is a module's own `main`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

COMMANDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("ethosu", "disassemble"): (
        "edgewise.backends.ethosu.disassemble",
        "FILE: the command streams of a file's Ethos-U delegates",
    ),
    ("llm", "export"): ("edgewise.llm.cli", "a language model as a file"),
    ("llm", "run"): ("edgewise.llm.cli", "generates text"),
}
"""By the words of the command: the module, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: the subcommand's, or 2 where there is none of that name."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        import edgewise

        print(f"edgewise {edgewise.__version__}")
        return 0
    found = COMMANDS.get(tuple(given[:2]))
    if found is None:
        wanted = {(), ("-h",), ("--help",)}
        asked = tuple(given) in wanted
        print(_usage("" if asked else " ".join(given[:2])), file=None if asked else sys.stderr)
        return 0 if asked else 2
    run: Callable[[Sequence[str]], int] = import_module(found[0]).main
    # The language model's commands read their own name; the others only what follows.
    rest = given[1:] if given[0] == "llm" else given[2:]
    try:
        return run(rest)
    except (OSError, ValueError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1


def _usage(unknown: str) -> str:
    lines = [f"[edgewise] a command must be one of these; got {unknown!r}"] if unknown else []
    lines.append("usage: edgewise COMMAND ..., or --version")
    lines += [f"  {' '.join(words):22}{text}" for words, (_, text) in COMMANDS.items()]
    return "\n".join(lines)
