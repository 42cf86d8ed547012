"""How a mistake, a damaged file or an interrupt reads at the prompt: one line, in the words of the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer.core

_EXPECTED = (ValueError, OSError, ImportError)  # what the library raises on purpose, with a sentence
_ARGUMENTS = (
    "force|on_error|device|runtime|dtype|max_pixels|follow_links|path_column|batch_size|embedding|images|text|"
    "new_classes|root"
)
_SWITCHES = ("new_classes",)  # arguments with a value whose flags have none
_AS_PYTHON = re.compile(rf"\b({_ARGUMENTS})=(?:'([^']*)'|([A-Z]+)\b|True\b|(?!\w))")
_AS_COLUMN = re.compile(r"^(y|y_target|y_val) (?=has|holds|mixes|contains)")  # of a table it is no argument
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


_KEPT = {"sweep": "finished runs are kept; run the same command again to go on"}  # by command; embed says it itself


class Interrupted(Exception):
    """Ctrl-C, with a sentence about what is kept."""


class Commands(typer.core.TyperGroup):
    """Typer ends a command that was interrupted without a word; here the message of the interrupt reaches `main`.

    Help lists the product's commands and the laboratory's apart, each with its whole first sentence.
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
    """The message of an error, with flags for arguments, and with the files that were given if it was not foreseen."""
    text = re.sub(r"\s*\n\s*", " ", str(error).strip()) or type(error).__name__
    if isinstance(error, MemoryError):
        text = "not enough memory"
    elif not isinstance(error, _EXPECTED):
        text = f"{type(error).__name__}: {text[:300]}"
    if not isinstance(error, _EXPECTED):
        text = f"{text} (while working on {_given_files()}; PRO2_DEBUG=1 shows where)"
    return visible(_AS_PYTHON.sub(_as_flag, _AS_COLUMN.sub("the label column ", text)))


def refuse(options: Mapping[str, Any], of: str) -> None:
    """One line for the first option that was given although it goes with something else."""
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
