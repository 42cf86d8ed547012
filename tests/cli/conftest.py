"""Shared by the command line's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pro2.cli.main import main


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail, in this process: the one line that it says."""

    def run(*args: object, cwd: Path) -> str:
        monkeypatch.chdir(cwd)
        monkeypatch.setenv("COLUMNS", "400")
        monkeypatch.setattr(sys, "argv", ["pro2", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        error = capsys.readouterr().err
        assert stop.value.code == 1
        assert "Traceback" not in error
        assert len(error.strip().splitlines()) == 1, error
        return error

    return run
