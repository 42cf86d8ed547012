"""Arguments and options that several commands have, each with one name, flag and help text; Tab completion; help."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

ModelFile = Annotated[Path, typer.Argument(help="Model file, made by `pro2 fit`.")]
AdaptedFile = Annotated[Path, typer.Argument(help="Classifier made by `pro2 adapt`, or a model: its source head.")]
TableFile = Annotated[Path, typer.Argument(help="Embedding table: .arrow, .parquet, .csv, .npz or a saved data set.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="File to write.")]
Label = Annotated[str, typer.Option("--label", "-y", help="Column of the label; rows without one are left out.")]
SomeLabel = Annotated[
    str | None, typer.Option("--label", "-y", help="Column of the label in the table, or in --labels.")
]
Labels = Annotated[
    list[Path] | None,
    typer.Option(metavar="<path>", help="CSV with columns id and label, as `pro2 suggest --out` writes; repeatable."),
]
Where = Annotated[str | None, typer.Option("--where", "-w", help='Rows to use, e.g. "split == 0 and y != place".')]
Embedding = Annotated[str | None, typer.Option(help="Column of the embedding, or a pattern for columns, e.g. 'e*'.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the content of tables with their digests.")]
Spreadsheet = Annotated[bool, typer.Option(help="In .csv, put ' before text that begins with = + - or @.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace existing output; accept another backbone.")]
Replace = Annotated[bool, typer.Option("--force", "-f", help="Replace the file at --out if it exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def completes(module: str, function: str) -> Callable[[str], list[str]]:
    """Names that a function of a module lists, by their beginning; the module is imported when Tab is pressed."""

    def complete(incomplete: str) -> list[str]:
        names = getattr(importlib.import_module(module), function)()
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


complete_backbones = completes("pro2.embed.registry", "list_beginnings")
complete_datasets = completes("pro2.lab.datasets", "list_datasets")
complete_plans = completes("pro2.lab.experiments.plan", "list_presets")


_KEPT = {"sweep": "finished runs are kept; run the same command again to continue"}  # embed has a message of its own


class Interrupted(Exception):
    """Ctrl-C, with a message about what is kept."""


class Commands(typer.core.TyperGroup):
    """Lets the message of an interrupt reach `main`, which Typer would drop, and lists commands in two panels.

    Help shows the first sentence of each command in full.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, those of each panel under its name."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            panel = getattr(self.commands[name], "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, self.commands[name].get_short_help_str(1000)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            kept = _KEPT.get(str(ctx.invoked_subcommand), "no file was left half written")
            raise Interrupted(str(stop) or f"interrupted; {kept}") from stop
