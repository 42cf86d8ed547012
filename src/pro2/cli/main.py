"""The `pro2` command: its commands, and mistakes as one-line messages."""

from __future__ import annotations

import os
import sys

import typer

import pro2
from pro2.cli.embed import embed
from pro2.cli.errors import Commands, Interrupted, one_line, visible
from pro2.cli.evaluate import diagnose, evaluate, predict
from pro2.cli.fit import adapt, fit, suggest
from pro2.cli.inspect import export, inspect
from pro2.cli.label import label
from pro2.cli.report import demo, report
from pro2.cli.sweep import datasets_app, plans_app, sweep

LABORATORY = "Laboratory, for papers"
app = typer.Typer(
    name="pro2",
    cls=Commands,
    help="Adapt a pre-trained model to a new domain with a few labels.",
    no_args_is_help=True,
    rich_markup_mode=None,  # panels cut long options in two on a terminal of 80 columns
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"pro2 {pro2.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Adapt a pre-trained model to a new domain with a few labels."""


for command in (demo, embed, fit, adapt, suggest, label, predict, evaluate, diagnose, report, inspect, export):
    app.command()(command)
app.command(rich_help_panel=LABORATORY)(sweep)
app.add_typer(plans_app, name="plans", rich_help_panel=LABORATORY)
app.add_typer(datasets_app, name="datasets", rich_help_panel=LABORATORY)


def main() -> None:
    """Run the command; an error becomes one line on stderr, with a traceback only where PRO2_DEBUG is set."""
    try:
        app()
    except (Interrupted, KeyboardInterrupt) as stop:
        _print_error("", visible(str(stop)) or "interrupted before the work began", "yellow")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("PRO2_DEBUG"):
            raise
        _print_error("error: ", one_line(error))
        sys.exit(1)


def _print_error(prefix: str, text: str, style: str = "") -> None:
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble((prefix, "bold red"), (text, style))
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)
