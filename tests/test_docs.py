"""The documentation tells the truth: docstring examples, code on the pages and the recipes of CONTRIBUTING run."""

from __future__ import annotations

import doctest
import importlib
import pydoc
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

from pro2.cli.main import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pro2"
PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if "```python" in p.read_text(encoding="utf-8"))


def modules_with_examples() -> list[str]:
    """Only modules that have an example are imported: the others may need a runtime that is not installed."""
    files = (p for p in sorted(SOURCE.rglob("*.py")) if ">>> " in p.read_text(encoding="utf-8"))
    return [".".join(("pro2", *p.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__") for p in files]


@pytest.fixture
def restored_registries() -> Iterator[None]:
    """Examples may register a data set or a backbone; other tests must not see it."""
    from pro2.embed import registry as backbones
    from pro2.lab import datasets

    before = dict(backbones._REGISTERED), dict(datasets._MAKERS)
    yield
    for kept, old in zip((backbones._REGISTERED, datasets._MAKERS), before):
        kept.clear()
        kept.update(old)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples_run(name: str, restored_registries: None) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, extraglobs={"np": np}, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0


def all_commands(command: Any = None) -> Iterator[Any]:
    command = command or typer.main.get_command(app)
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from all_commands(inner)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT / "docs")))
def test_code_on_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All blocks of a page in one namespace, in order, as a reader would paste them."""
    namespace: dict[str, Any] = {}
    for number, code in enumerate(blocks(page, "python"), 1):
        exec(compile(code, f"{page.name}, block {number}", "exec"), namespace)
    assert "pro2" in namespace


def shell_commands() -> list[str]:
    """Every line that begins with `pro2` in a bash block of a page or of the README, or in the help of a command."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
    code = "\n".join(block for page in pages for block in blocks(page, "bash")).replace("\\\n", " ").splitlines()
    code += [line.strip() for each in all_commands() for line in (each.help or "").splitlines()]
    return sorted({line for line in code if line.startswith("pro2 ")})


@pytest.mark.parametrize("line", shell_commands())
def test_commands_on_pages_exist(line: str) -> None:
    """Parsed as the program would, without running: an unknown command or option is an error."""
    command, (_, *words) = typer.main.get_command(app), shlex.split(line.split(" #")[0].split(" > ")[0])
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    used = {word.split("=")[0] for word in words if word.startswith("-")}
    assert used <= known | {"--help"}, f"{command.name} has no {sorted(used - known)}"
    assert not hasattr(command, "commands") or used or not words, f"pro2 has no command {words[:1]}"


def test_the_help_of_a_command_speaks_of_options_that_it_has() -> None:
    for command in all_commands():
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        words = " ".join(getattr(option, "help", None) or "" for option in command.params)
        named = re.findall(r"--[a-z][a-z-]+", re.sub(r"`[^`]*`", "", words))  # another command's are quoted
        assert set(named) <= known, f"{command.name} has no {sorted(set(named) - known)}"


def test_names_on_the_page_of_the_api_exist() -> None:
    text = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    module, absent = "", []
    for kind, name in re.findall(r"^(\.\. currentmodule::|  ) ([A-Za-z_][\w.]*)$", text, re.MULTILINE):
        module = name if kind.strip() else module
        if not kind.strip() and pydoc.locate(f"{module}.{name}") is None:
            absent.append(f"{module}.{name}")
    assert absent == []
    assert pydoc.locate("pro2.estimators.no_such_name") is None


def test_the_page_of_the_file_format_names_all_that_a_file_may_hold() -> None:
    from pro2.estimators.files import KINDS

    page = (ROOT / "docs" / "file-format.md").read_text(encoding="utf-8")
    assert [name for name in KINDS if f"`{name}`" not in page] == []


def test_labels_that_suggest_chose_are_said_to_be_chosen() -> None:
    """Else `adapt` would take them for a sample, and claim an accuracy that they cannot show."""
    adapts = [line for line in shell_commands() if line.split()[1] == "adapt" and "--labels next.csv" in line]
    assert len(adapts) >= 5
    assert all("--label-sampling suggested" in line for line in adapts)


class TestContributing:
    """Each recipe works as printed, with the names that its file has at hand."""

    data_set, backbone, baseline = blocks(ROOT / "CONTRIBUTING.md", "py")

    def test_add_a_data_set(self, tmp_path: Path, restored_registries: None) -> None:
        from pro2.lab.datasets import base, open_dataset, register_dataset

        names = {**vars(base), "__name__": "mine"}
        exec(self.data_set, names)
        register_dataset("mine", names["Mine"])
        (tmp_path / "metadata.csv").write_text("file,y,scanner\n1.png,sick,a\n2.png,well,b\n3.png,sick,b\n")
        images = open_dataset("mine", tmp_path)
        assert images.ids.tolist() == ["1.png", "2.png", "3.png"]
        assert images.columns["scanner"].tolist() == ["a", "b", "b"]

    def test_add_a_backbone(self, restored_registries: None) -> None:
        image = pytest.importorskip("PIL.Image")
        from pro2.embed import create_backbone, list_backbones

        exec(self.backbone, {})
        assert "mean-colour" in list_backbones()
        backbone = create_backbone("mean-colour")
        batch = np.stack([backbone.prepare(image.new("RGB", (40, 50), (255, 0, 51)))])
        np.testing.assert_allclose(backbone.embed(batch), [[1.0, 0.0, 0.2]], atol=1e-6)

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_add_a_baseline(self, n_classes: int) -> None:
        from pro2.estimators import linear

        names: dict[str, Any] = {**vars(linear), "np": np, "__name__": "mine"}
        exec(self.baseline, names)
        y = np.arange(30) % n_classes
        model = names["MajorityClass"]().fit(np.ones((30, 4)), y)
        adapted = model.adapt(np.ones((5, 4)), [1, 1, 1, 0, 0])
        assert set(adapted.predict(np.zeros((7, 4)))) == {1}
