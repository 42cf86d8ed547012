"""Numbers of the report equal what pandas and hand calculation give on the same rows."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas
import pytest
from scipy.stats import ttest_rel

from pro2.lab.report.tables import (
    Results,
    bias_variance_table,
    difference_table,
    dimension_table,
    explain,
    mean_table,
    nullspace_table,
    overall_table,
    rules_of,
    select,
    write_csv,
)


def _all(rule: str) -> defaultdict[str, str]:
    """One rule for every method."""
    return defaultdict(lambda: rule)


def _rows(folder: Path) -> pandas.DataFrame:
    return Results.load(folder).rows


@pytest.mark.parametrize("rule", ["validation", "oracle", "support"])
def test_one_row_for_each_cell_and_seed(finished: Path, rule: str) -> None:
    chosen = select(_rows(finished), _all(rule))
    counts = chosen.groupby(["data", "target", "shots", "method"]).seed.agg(["size", "nunique"])
    assert (counts["size"] == 4).all()
    assert (counts["nunique"] == 4).all()


def test_rules_choose_what_they_say(finished: Path) -> None:
    frame = _rows(finished).query("measure == 'accuracy' and method == 'pro2'")
    cell = ["data", "target", "shots"]
    by_seed = frame.groupby([*cell, "seed"])
    chosen = {rule: select(_rows(finished), _all(rule)).query("method == 'pro2'") for rule in
              ("validation", "support", "oracle")}  # fmt: skip
    assert (
        chosen["validation"].set_index([*cell, "seed"]).val_accuracy.sort_index() == by_seed.val_accuracy.max()
    ).all()
    assert (chosen["support"].set_index([*cell, "seed"]).support_loss.sort_index() == by_seed.support_loss.min()).all()
    best = frame.groupby([*cell, "n_features", "l2"]).accuracy.mean().groupby(cell).max()
    got = chosen["oracle"].groupby(cell).accuracy.mean()
    assert got.to_numpy() == pytest.approx(best.to_numpy())


def test_ties_go_to_the_simpler_setting() -> None:
    base = {"measure": "accuracy", "data": "d", "target": "t", "shots": 2, "method": "m", "seed": 0, "params": None}
    rows = [{**base, "n_features": d, "l2": l2, "accuracy": 0.5, "val_accuracy": 1.0}
            for d, l2 in ((4, 0.1), (1, 0.01), (1, 0.1))]  # fmt: skip
    for rule in ("validation", "oracle"):
        chosen = select(pandas.DataFrame(rows), _all(rule))
        assert chosen[["n_features", "l2"]].to_numpy().tolist() == [[1, 0.1]]


def test_a_rule_without_its_column_is_told() -> None:
    base = {"measure": "accuracy", "data": "d", "target": "t", "shots": 2, "method": "m", "seed": 0, "params": None}
    rows = [{**base, "n_features": d, "l2": 0.1, "accuracy": 0.5, "val_accuracy": None} for d in (1, 2)]
    with pytest.raises(ValueError, match=r"needs the column val_accuracy.*validation = 25"):
        select(pandas.DataFrame(rows), _all("validation"))


def test_each_method_has_its_rule(finished: Path) -> None:
    results = Results.load(finished)
    assert set(rules_of(results.plan, results.rows).values()) == {"support"}
    assert set(rules_of(results.plan, results.rows, "oracle").values()) == {"oracle"}
    rows = results.rows
    one = rows[(rows["method"] != "linear-probe") | (rows["l2"] == 0.1)]
    assert rules_of(results.plan, one)["linear-probe"] == "untuned"
    with pytest.raises(ValueError, match="expected 'validation' or 'oracle' or 'support'"):
        rules_of(results.plan, rows, "luck")
    chosen = select(rows, {"pro2": "support", "random": "validation", "linear-probe": "oracle"})
    for method, rule in (("pro2", "support"), ("random", "validation")):
        pandas.testing.assert_frame_equal(
            chosen[chosen["method"] == method], select(rows[rows["method"] == method], _all(rule))
        )


def test_the_choice_is_told_in_one_line() -> None:
    titles = {"a": "A", "b": "B", "c": "C"}
    line, meaning = explain({"a": "support", "b": "support"}, titles)
    assert line == "Settings chosen by the few labels alone."
    assert "No other target label was used" in meaning
    line, _ = explain({"a": "support", "b": "oracle", "c": "untuned"}, titles)
    assert line == (
        "Settings chosen by the few labels alone (A), and by test accuracy (oracle) (B). One setting only, nothing to "
        "choose: C."
    )
    assert explain({"a": "untuned"}, titles)[0] == "Settings chosen not at all."


def test_standard_error_and_deviation_are_two_things(finished: Path) -> None:
    table = mean_table(_rows(finished), _all("oracle"))
    frame = select(_rows(finished), _all("oracle")).groupby(["data", "target", "shots", "method"]).accuracy
    for row in table.to_dict("records"):
        cell = (row["data"], row["target"], row["shots"], row["method"])
        assert row["mean"] == pytest.approx(frame.mean()[cell])
        assert row["standard_deviation"] == pytest.approx(frame.std()[cell])
        assert row["standard_error"] == pytest.approx(frame.sem()[cell])
        assert row["standard_error"] == pytest.approx(row["standard_deviation"] / math.sqrt(row["n_seeds"]))


def test_paired_differences_equal_scipy(finished: Path) -> None:
    chosen = select(_rows(finished), _all("support")).set_index(["data", "target", "shots", "method"])
    table = difference_table(_rows(finished), _all("support"), "linear-probe")
    assert set(table["method"]) == {"pro2", "random"}
    for row in table.to_dict("records"):
        own, base = (chosen.loc[(row["data"], row["target"], row["shots"], m)].sort_values("seed").accuracy.to_numpy()
                     for m in (row["method"], "linear-probe"))  # fmt: skip
        assert row["difference"] == pytest.approx((own - base).mean())
        if (own - base).std() > 0:
            interval = ttest_rel(own, base).confidence_interval(0.95)
            assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_overall_averages_the_same_targets_at_every_number_of_labels() -> None:
    def mean(target: str, shots: int, method: str, value: float) -> dict[str, Any]:
        return {"data": "d", "target": target, "shots": shots, "method": method, "mean": value, "standard_error": 0.3}

    both = [mean(t, s, m, v) for t, v in (("a", 0.5), ("b", 0.9)) for s in (2, 8) for m in ("x", "y")]
    others = [mean("c", 2, "x", 0.1), mean("c", 2, "y", 0.1), mean("e", 8, "x", 0.1)]
    table = overall_table(pandas.DataFrame([*both, *others])).to_dict("records")
    assert {(r["shots"], r["method"]): r["mean"] for r in table} == pytest.approx(
        {(2, "x"): 0.7, (2, "y"): 0.7, (8, "x"): 0.7, (8, "y"): 0.7}
    )
    assert {r["targets"] for r in table} == {"a, b"}
    assert table[0]["standard_error"] == pytest.approx(0.3 / math.sqrt(2))


def test_the_worst_group_is_averaged_where_there_are_groups(finished: Path) -> None:
    table = mean_table(_rows(finished), _all("oracle"))
    assert table["worst_group"].isna().all()
    rows = _rows(finished).query("measure == 'accuracy'")
    rows = rows.assign(worst_group=rows["accuracy"] / 2)
    for row in mean_table(rows, _all("oracle")).to_dict("records"):
        assert row["worst_group"] == pytest.approx(row["mean"] / 2)
        assert row["worst_group_error"] == pytest.approx(row["standard_error"] / 2)


def test_bias_and_variance_add_up_to_the_error(finished: Path) -> None:
    rows = _rows(finished)
    table = bias_variance_table(dimension_table(rows, _all("oracle"), ["pro2"]), nullspace_table(rows))
    assert len(table)
    for row in table.to_dict("records"):
        assert row["bias"] + row["variance"] == pytest.approx(row["error"])
        assert 0 <= row["nullspace_norm"] <= 1 + 1e-9
    assert (table[table["shots"] == 8]["variance"] == 0).all()


def test_cells_do_not_run_in_a_spreadsheet(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", pandas.DataFrame({"a": ["=1+1", "@x", "-2", "+3", "plain", 4.5, None]}, dtype=object))
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        "a", "'=1+1", "'@x", "'-2", "'+3", "plain", "4.5", '""',
    ]  # fmt: skip
