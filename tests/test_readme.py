"""The README's numbers are those of the measured page, and its lines of Python run."""

import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]


def test_the_results_table_is_the_measured_one(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import readme_table

    text = (ROOT / "README.md").read_text()
    assert "Pro2, no tuning" in text
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
