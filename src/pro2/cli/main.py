"""The `pro2` command: its commands, and errors as one line in the terms of the command line."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import typer.core
from typer import Option

import pro2
from pro2.cli.common import visible
from pro2.cli.embed import embed
from pro2.cli.evaluate import diagnose, evaluate
from pro2.cli.fit import adapt, fit, suggest
from pro2.cli.inspect import export, inspect
from pro2.cli.label import label
from pro2.cli.predict import predict
from pro2.cli.report import demo, report
from pro2.cli.sweep import datasets_app, plans_app, sweep

LABORATORY = "Laboratory, for papers"
_EXPECTED = (ValueError, OSError, ImportError)  # raised on purpose, with a message for users
_ARGUMENTS = "force|on_error|device|dtype|max_pixels|follow_links|path_column|batch_size|embedding|images|text|root"
# arguments of the library in its messages, with or without a value; new_classes="allow" is a flag without one
_AS_PYTHON = re.compile(rf"\b(?:new_classes='allow'|({_ARGUMENTS})=(?:'([^']*)'|([A-Z]+)\b|True\b|(?!\w)))")
_AS_OPTION = re.compile(r"^(l2|n_features) (?=must be)")
_AS_COLUMN = re.compile(r"^(y|y_target|y_val) (?=has|holds|mixes|contains)")  # the column of a table, no argument


class Interrupted(Exception):
    """Ctrl-C, with a message about what is kept."""


class Commands(typer.core.TyperGroup):
    """Lets the message of an interrupt reach `main`, which Typer would drop, and lists commands in two panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, those of each panel under its name, with the first sentence of each in full."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, command.get_short_help_str(1000)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Interrupted(str(stop) or "interrupted; no file was left half written") from stop


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
    version: bool = Option(
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
        _print_error("", visible(str(stop)) or "interrupted before the work began", "yellow", 130)
    except Exception as error:
        if os.environ.get("PRO2_DEBUG"):
            raise
        _print_error("error: ", one_line(error), "", 1)


def _print_error(prefix: str, text: str, style: str, status: int) -> None:
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble((prefix, "bold red"), (text, style))
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)
    sys.exit(status)


def one_line(error: BaseException) -> str:
    """The message of an error with flags in place of arguments; an unexpected error also names the files given."""
    text = re.sub(r"\s*\n\s*", " ", str(error).strip()) or type(error).__name__
    if not isinstance(error, _EXPECTED):
        text = "not enough memory" if isinstance(error, MemoryError) else f"{type(error).__name__}: {text[:300]}"
        files = [word for word in sys.argv[1:] if not word.startswith("-") and Path(word).exists()]
        text = f"{text} (while working on {', '.join(files) or 'no file'}; PRO2_DEBUG=1 shows where)"
    text = _AS_OPTION.sub(lambda match: f"--{match[1].replace('_', '-')} ", _AS_COLUMN.sub("the label column ", text))
    return visible(_AS_PYTHON.sub(_as_flag, text))


def _as_flag(match: re.Match[str]) -> str:
    value = match[2] or match[3]
    return f"--{(match[1] or 'new-classes').replace('_', '-')}" + (f" {value}" if value else "")
