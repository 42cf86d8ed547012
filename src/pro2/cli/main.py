"""The `pro2` command: one place where commands are registered and mistakes become one-line messages."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

import pro2
from pro2.cli import bench, datasets, journey, sweep
from pro2.cli.demo import demo
from pro2.cli.embed import embed

app = typer.Typer(
    name="pro2",
    help="Adapt a pre-trained model to a new domain with a handful of labels.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pro2 {pro2.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Adapt a pre-trained model to a new domain with a handful of labels."""


app.command()(demo)
app.command()(embed)
journey.register(app)
app.add_typer(datasets.app, name="datasets")
sweep.register(app)
bench.register(app)


def main() -> None:
    """Run the command; a user's mistake ends in one line on stderr, not in a traceback (PRO2_DEBUG=1 shows it)."""
    try:
        app()
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; what was finished is kept", style="yellow")
        sys.exit(130)
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("PRO2_DEBUG"):
            raise
        Console(stderr=True).print(f"[bold red]error:[/] {_plain(error)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _plain(error: BaseException) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
