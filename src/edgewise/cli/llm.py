"""`edgewise llm`: the command line of `edgewise.llm`, whose options are its own."""

from __future__ import annotations

import typer

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    pass


@app.command(context_settings=_PASS_ON, help="A language model as a file.")
def export(context: typer.Context) -> None:
    """As `python -m edgewise.llm export`."""
    _pass_on(context)


@app.command(context_settings=_PASS_ON, help="Generates text.")
def run(context: typer.Context) -> None:
    """As `python -m edgewise.llm run`."""
    _pass_on(context)


def _pass_on(context: typer.Context) -> None:
    from edgewise.llm.cli import main

    raise typer.Exit(main([str(context.info_name), *context.args]))
