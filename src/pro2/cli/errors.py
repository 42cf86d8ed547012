"""Errors and interrupts as one line in the terms of the command line, and the layout of help."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer.core

_EXPECTED = (ValueError, OSError, ImportError)  # raised on purpose, with a message for users
_ARGUMENTS = (
    "force|on_error|device|runtime|dtype|max_pixels|follow_links|path_column|batch_size|embedding|images|text|"
    "new_classes|root"
)
_SWITCHES = ("new_classes",)  # arguments with a value whose flags have none
_AS_PYTHON = re.compile(rf"\b({_ARGUMENTS})=(?:'([^']*)'|([A-Z]+)\b|True\b|(?!\w))")
_AS_OPTION = re.compile(r"^(l2|n_features) (?=must be)")
_AS_COLUMN = re.compile(
    r"^(y|y_target|y_val) (?=has|holds|mixes|contains)"
)  # the column of a table rather than an argument
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


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


def one_line(error: BaseException) -> str:
    """The message of an error with flags in place of arguments; an unexpected error also names the files given."""
    text = re.sub(r"\s*\n\s*", " ", str(error).strip()) or type(error).__name__
    if isinstance(error, MemoryError):
        text = "not enough memory"
    elif not isinstance(error, _EXPECTED):
        text = f"{type(error).__name__}: {text[:300]}"
    if not isinstance(error, _EXPECTED):
        text = f"{text} (while working on {_given_files()}; PRO2_DEBUG=1 shows where)"
    text = _AS_OPTION.sub(lambda found: f"--{found[1].replace('_', '-')} ", _AS_COLUMN.sub("the label column ", text))
    return visible(_AS_PYTHON.sub(_as_flag, text))


def refuse(options: Mapping[str, Any], of: str) -> None:
    """Raise for the first option that was given although it goes with something else."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ValueError(f"{given[0]} goes with {of}")


def visible(text: str) -> str:
    """Control characters of labels, ids and file names as escapes: they must not reach the terminal."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def _given_files() -> str:
    files = [each for each in sys.argv[1:] if not each.startswith("-") and Path(each).exists()]
    return ", ".join(files) or "no file"


def _as_flag(found: re.Match[str]) -> str:
    value = None if found[1] in _SWITCHES else found[2] or found[3]
    return f"--{found[1].replace('_', '-')}" + (f" {value}" if value else "")
