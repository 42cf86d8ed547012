"""Commands in this process: their text, their JSON, or the error they end with."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from pro2.cli.main import app, main


def _split(words: tuple[object, ...]) -> list[str]:
    """One line as in a shell, or its words."""
    return shlex.split(str(words[0])) if len(words) == 1 else list(map(str, words))


def run(*words: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, _split(words))
    assert done.exit_code == 0, (words, done.output, done.exception)
    return str(done.stdout)


def run_json(*words: object) -> dict[str, Any]:
    """The answer of a command with --json."""
    return dict(json.loads(run(*_split(words), "--json")))


def ended(*words: object) -> tuple[int, str, str]:
    """Exit status, output and errors of the whole program."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["pro2", *_split(words)])
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


def refused(*words: object) -> str:
    """The one line of a command that must fail."""
    code, out, err = ended(*words)
    assert (code, out) == (1, ""), err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert err.count("\n") == 1
    return err
