"""The demo: laws of its data, and the command as a user runs it (with fewer seeds)."""

import csv
import re

import numpy as np
import pytest

from pro2.lab.datasets.digits import PAIRS, make_digit_collages
from pro2.lab.demo import mean_and_error
from tests.cli.commands import run, run_json


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


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    monkeypatch.setattr("pro2.lab.demo.SEEDS", 2)


def test_demo_prints_a_table_and_saves_page_and_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = run("demo", "--out", tmp_path / "d")
    assert all(part in text for part in ("Target accuracy", "source head", "the paper's Pro2"))
    assert "\\n" not in text
    command = text.splitlines()[-1]
    assert command.startswith("pro2 fit ")
    assert "learned from 2000 rows" in run(command.removeprefix("pro2 "))
    page = (tmp_path / "d" / "demo.html").read_text()
    assert page.count("<svg") == page.count(">accuracy (%)</text>") == 7
    assert re.search(r"% for averaged Pro2 and \d+\.\d% for the paper&#39;s Pro2", page)
    assert page.count("the paper&#39;s Pro2") > 5
    assert page.count('<ul class="legend">') == 2
    assert not re.search(r"\{\{|<Macro|Undefined", page)
    with (tmp_path / "d" / "collages.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 4 * 3 * 2
    assert all(0 <= float(r["accuracy"]) <= 1 for r in rows)


def test_errors_are_those_of_draws_and_not_of_targets():
    rows = [{"method": "m", "target": t, "n_shots": 2, "seed": s, "accuracy": a + 0.1 * s}
            for t, a in (("easy", 0.8), ("hard", 0.4)) for s in (0, 1)]  # fmt: skip
    mean, error = mean_and_error(rows, method="m")
    assert (round(mean, 6), round(error, 6)) == (65.0, 5.0)
    assert mean_and_error(rows, method="m", target="hard", seed=0) == (40.0, 0.0)


def test_the_demo_on_images(monkeypatch, tmp_path):
    rows = [
        {"target": t, "method": m, "n_shots": 2, "seed": s, "accuracy": 0.5}
        for t in ("spurious", "balanced") for m in ("source model", "project and probe") for s in (0, 1)
    ]  # fmt: skip
    monkeypatch.setattr("pro2.lab.images_demo.images_demo", lambda out, show: rows)
    assert run_json("demo", "--images", "--out", tmp_path)["accuracy"] == rows
    text = run("demo", "--images", "--out", tmp_path)
    assert "mean of the 2" in text
    assert "50.0" in text
