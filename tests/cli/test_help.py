"""`--help`, `--json` and Tab completion of every command."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from pro2.cli.main import app
from pro2.cli.options import complete_backbones, complete_datasets, complete_plans
from tests.cli.commands import run

ROOT = typer.main.get_command(app)
PRODUCT = [name for name in ROOT.commands if not getattr(ROOT.commands[name], "rich_help_panel", None)]


def help_of(*words: str, columns: int = 200) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)})
    assert done.exit_code == 0
    return done.output


def all_commands() -> dict[str, Any]:
    """Every command, with those of groups."""
    found = {}
    for name, command in ROOT.commands.items():
        found[name] = command
        found |= {f"{name} {inner}": each for inner, each in getattr(command, "commands", {}).items()}
    return found


def flags_of(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_prints_json(name: str) -> None:
    assert "--json" in flags_of(all_commands()[name])


@pytest.mark.parametrize("name", sorted(ROOT.commands))
def test_a_narrow_terminal_cuts_no_word_and_shows_no_python(name: str) -> None:
    text = help_of(name, columns=60)
    assert "…" not in text
    assert "list[" not in text.split("Options:")[1]
    assert [flag for flag in flags_of(ROOT.commands[name]) if flag.startswith("--") and flag not in text] == []


def test_the_laboratory_is_listed_apart_with_whole_sentences() -> None:
    product, laboratory = help_of(columns=80).split("Laboratory")
    assert all(f"  {name} " in product for name in PRODUCT)
    assert "  sweep " in laboratory
    assert "..." not in laboratory
    assert "exit status 1 if it is not" in " ".join(product.split())


def test_completion_proposes_names_by_their_beginning() -> None:
    assert complete_backbones("mini") == ["minilm"]
    assert {"efficientnet-lite0", "clip-vit-l14", "resnet50-swav"} <= set(run("embed --list").split())
    assert {"waterbirds"} <= set(complete_datasets("w"))
    assert "main" in complete_plans("")
    assert complete_plans("no such plan") == []
    completed = {
        (name, parameter.name)
        for name, command in all_commands().items()
        for parameter in command.params
        if parameter._custom_shell_complete is not None
    }
    assert {("embed", "backbone"), ("embed", "dataset"), ("sweep", "plan"), ("datasets show", "name")} <= completed
