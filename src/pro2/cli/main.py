"""The `pro2` command: one place where commands are registered and mistakes become one-line messages."""

from __future__ import annotations

import os
import sys

import typer

import pro2
from pro2.cli import datasets, journey
from pro2.cli.bench import bench
from pro2.cli.demo import demo
from pro2.cli.embed import embed
from pro2.cli.errors import Commands, Interrupted, one_line, visible
from pro2.cli.sweep import plans_app, sweep

LABORATORY = "Laboratory, for papers"
app = typer.Typer(
    name="pro2",
    cls=Commands,
    help="Adapt a pre-trained model to a new domain with a handful of labels.",
    no_args_is_help=True,
    rich_markup_mode=None,  # panels cut long options in two on a terminal of 80 columns
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pro2 {pro2.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Adapt a pre-trained model to a new domain with a handful of labels."""


app.command()(demo)
app.command()(embed)
journey.register(app)
app.command(rich_help_panel=LABORATORY)(sweep)
app.add_typer(plans_app, name="plans", rich_help_panel=LABORATORY)
app.add_typer(datasets.app, name="datasets", rich_help_panel=LABORATORY)
# unknown options are the benchmark's own
own = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(context_settings=own, rich_help_panel=LABORATORY)(bench)


def main() -> None:
    """Run the command; whatever goes wrong ends in one line on stderr, not in a traceback (PRO2_DEBUG=1 shows it)."""
    try:
        app()
    except (Interrupted, KeyboardInterrupt) as stop:
        _say("", visible(str(stop)) or "interrupted before the work began", "yellow")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("PRO2_DEBUG"):
            raise
        _say("error: ", one_line(error))
        sys.exit(1)


def _say(kind: str, text: str, style: str = "") -> None:
    from rich.console import Console
    from rich.text import Text

    words = Text.assemble((kind, "bold red"), (text, style))
    Console(stderr=True).print(words, highlight=False, soft_wrap=True)
