"""The guide's comparison on a user's table, as a user runs it: a label, a domain, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pro2.cli.main import app
from pro2.lab.datasets.digits import make_digit_collages


def test_five_ways_are_compared_by_the_few_labels_alone(tmp_path):
    make_digit_collages(300, 80).save(tmp_path / "mine.npz")
    where = ["--label", "y", "--source", "split == 'source'", "--domain", "split"]
    args = ["sweep", "yours", "--table", str(tmp_path / "mine.npz"), *where, "--seeds", "1", "--shots", "2"]
    result = CliRunner().invoke(app, [*args, "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["n_failed"] == 0
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["selection"] == "support"
    assert [m["name"] for m in plan["methods"]] == ["source-only", "ridge", "linear-probe", "pro2", "averaged"]
    from pro2.lab.experiments import ResultStore

    with ResultStore(tmp_path / "out") as store:
        assert len(store.finished()) > 4 * 5  # four targets, five methods, and their fits on source
    result = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "--json"])
    page = json.loads(result.stdout)["page"]
    assert "Averaged Pro2" in Path(page).read_text(encoding="utf-8")


def test_the_list_of_plans_as_json_has_it():
    told = json.loads(CliRunner().invoke(app, ["plans", "--json"]).stdout)
    assert told["yours"]["data"] == "yours.arrow"
    assert "averaged Pro2" in told["yours"]["description"]
