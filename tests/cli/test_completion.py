"""Completion proposes what exists, by its beginning, and the commands use it."""

from __future__ import annotations

import typer.main

from pro2.cli.completion import complete_backbones, complete_datasets, complete_plans
from pro2.cli.main import app


def test_names_by_their_beginning():
    assert complete_backbones("mini") == ["minilm"]
    assert complete_backbones("sent") == ["sentence-transformers:"]
    assert {"waterbirds"} <= set(complete_datasets("w"))
    assert "main" in complete_plans("")
    assert complete_plans("no such plan") == []


def test_every_argument_that_names_one_is_completed():
    commands = typer.main.get_command(app).commands
    completed = {
        (name, parameter.name)
        for name, command in [*commands.items(), *commands["datasets"].commands.items()]
        for parameter in command.params
        if parameter._custom_shell_complete is not None
    }
    wanted = {("embed", "backbone"), ("embed", "dataset"), ("sweep", "plan"), ("show", "name"), ("check", "name")}
    assert wanted <= completed
