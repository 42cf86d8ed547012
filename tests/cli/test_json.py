"""`--json` is on every command, and holds at least what the text says."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from pro2.cli.main import app


def test_a_plan_as_json_is_its_file_and_its_values():
    text, told = (CliRunner().invoke(app, ["plans", "show", "yours", *flag]).stdout for flag in ([], ["--json"]))
    found = json.loads(told)
    assert found["file"] == text
    assert {"averaged", "linear-probe"} <= {method["name"] for method in found["plan"]["methods"]}


def test_a_suite_as_json():
    found = json.loads(CliRunner().invoke(app, ["plans", "show", "claims", "--json"]).stdout)
    assert "main" in found["plan"]["plans"]


def test_the_images_demo_as_json(monkeypatch, tmp_path):
    rows = [
        {"target": t, "method": m, "n_shots": 2, "seed": s, "accuracy": 0.5}
        for t in ("spurious", "balanced") for m in ("source model", "project and probe") for s in (0, 1)
    ]  # fmt: skip
    monkeypatch.setattr("pro2.lab.images_demo.images_demo", lambda out, console: rows)
    done = CliRunner().invoke(app, ["demo", "--images", "--out", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["accuracy"] == rows
    text = CliRunner().invoke(app, ["demo", "--images", "--out", str(tmp_path)]).stdout
    assert "mean of the 2" in text
    assert "50.0" in text
