"""The demo: laws of its data, and the command as a user runs it (with fewer seeds)."""

import csv
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from pro2.lab.datasets.digits import PAIRS, make_digit_collages


@pytest.fixture(scope="module")
def table():
    return make_digit_collages(400, 200)


def test_each_target_keeps_one_block_and_the_source_all(table):
    X, y, split = np.asarray(table.embeddings), table.column("y"), table.column("split")
    blocks = X.reshape(len(X), 2, 8, 2, 8).transpose(1, 3, 0, 2, 4).reshape(4, len(X), 64)
    from sklearn.datasets import load_digits

    digits = load_digits()
    known = {tuple(np.round(x * 16 / 16).astype(int)): t for x, t in zip(digits.data, digits.target)}
    for b, pair in enumerate(PAIRS):
        shown = np.array([known[tuple(np.round(v * 16).astype(int))] for v in blocks[b]])
        agrees = shown == np.array(pair)[y]
        name = "/".join(map(str, pair))
        assert agrees[split == "source"].all()
        assert agrees[split == name].all()
        others = [k for k in set(split) if k not in ("source", name)]
        assert all(0.35 < agrees[split == k].mean() < 0.65 for k in others)


def test_source_and_target_share_no_image(table):
    X, split = np.asarray(table.embeddings), table.column("split")
    blocks = lambda rows: {tuple(b) for b in rows.reshape(-1, 2, 8, 2, 8).transpose(1, 3, 0, 2, 4).reshape(-1, 64)}  # noqa: E731
    assert not blocks(X[split == "source"]) & blocks(X[split != "source"])


def test_demo_prints_a_table_and_saves_page_and_rows(tmp_path, monkeypatch):
    from pro2.cli.main import app

    monkeypatch.setattr("pro2.lab.demo.SEEDS", 2)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "d")])
    assert result.exit_code == 0, result.output
    assert "Target accuracy" in result.output
    assert "source head" in result.output
    assert "the paper's Pro2" in result.output
    assert "Next: pro2 fit" in result.output
    page = (tmp_path / "d" / "demo.html").read_text()
    assert page.count("<svg") == 7
    assert "With 2 labels per class averaged Pro2 is right on" in page
    assert page.count("the paper&#39;s Pro2") > 5
    assert page.count(">accuracy (%)</text>") == 7
    assert page.count('<ul class="legend">') == 2
    assert not re.search(r"\{\{|<Macro|Undefined", page)
    with (tmp_path / "d" / "collages.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 4 * 3 * 2
    assert all(0 <= float(r["accuracy"]) <= 1 for r in rows)


def test_demo_needs_no_matplotlib_and_speaks_json(tmp_path, monkeypatch):
    import json
    import sys

    from pro2.cli.main import app

    monkeypatch.setattr("pro2.lab.demo.SEEDS", 2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["page"] == str(tmp_path / "demo.html")
    assert len(told["accuracy"]) == 5 * 4 * 3 * 2


def test_the_base_installation_has_what_the_demo_imports():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules.update(pandas=None, matplotlib=None); import pro2.lab.demo, pro2.lab.report.demo_page"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
