"""The page of commands is their own --help, so it cannot disagree with the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD = """# Commands

Every command explains itself with `--help`. This page is that text, taken from the program when the site is built.
`--json` prints one JSON object instead of text. A mistake ends in one line on standard error and a non-zero exit code;
`PRO2_DEBUG=1` shows the whole traceback. `pro2 --install-completion` teaches your shell the names of commands, plans,
backbones and data sets.
"""
# What a person wants to do, in the order in which it comes up.
TASKS = {
    "See it work": ["demo"],
    "Make a table of embeddings": ["embed"],
    "Learn from a source, adapt to a target": ["fit", "adapt"],
    "Choose and give labels": ["suggest", "label"],
    "See how good it is": ["evaluate", "diagnose", "report"],
    "Use it": ["predict", "export"],
    "Look into a file": ["inspect"],
    "Run experiments": ["sweep", "plans", "datasets"],
}
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands with their words, depth first, the group before its parts."""
    yield path, command
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from commands(inner, (*path, name))


def help_text(path: tuple[str, ...]) -> str:
    """What `--help` prints, 88 columns wide, without colours."""
    import typer.testing

    from pro2.cli.main import app

    plain = {"COLUMNS": "88", "TERMINAL_WIDTH": "88", "NO_COLOR": "1", "TERM": "dumb"}
    result = typer.testing.CliRunner().invoke(app, [*path[1:], "--help"], env=plain, prog_name="pro2")
    if result.exit_code:
        raise RuntimeError(f"`{' '.join(path)} --help` failed: {result.output}")
    lines = _STYLE.sub("", result.output).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def write_page(app: Any) -> None:
    import typer.main

    from pro2.cli.main import app as program

    root = typer.main.get_command(program)
    known = [name for names in TASKS.values() for name in names]
    if sorted(known) != sorted(getattr(root, "commands", {})):
        raise RuntimeError(f"every command belongs to one task of TASKS; the program has {sorted(root.commands)}")
    parts = [HEAD]
    for task, names in TASKS.items():
        parts.append(f"## {task}\n")
        for name in names:
            for path, _ in commands(root.commands[name], ("pro2", name)):
                parts.append(f"### `{' '.join(path)}`\n\n```text\n{help_text(path)}\n```\n")
    page = Path(app.srcdir) / "commands.md"
    text = "\n".join(parts)
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True}
