"""Commands in this process: their text, their JSON, or the error they end with."""

from __future__ import annotations

import json
import shlex
from typing import Any

from typer.testing import CliRunner

from pro2.cli.main import app


def _invoke(words: tuple[object, ...]) -> Any:
    """One line as in a shell, or its words."""
    return CliRunner().invoke(app, shlex.split(str(words[0])) if len(words) == 1 else list(map(str, words)))


def run(*words: object) -> str:
    """What a command prints."""
    done = _invoke(words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return str(done.stdout)


def run_json(*words: object) -> dict[str, Any]:
    """The answer of a command with --json."""
    line = words[0] if len(words) == 1 else shlex.join(map(str, words))
    return dict(json.loads(run(f"{line} --json")))


def refused(*words: object) -> str:
    """The one line of a command that must fail."""
    done = _invoke(words)
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, ValueError | OSError), done.exception
    assert "\n" not in str(done.exception)
    return str(done.exception)
