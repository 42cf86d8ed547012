"""Numbers of the report equal what pandas and hand calculation give on the same rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from pro2.lab.experiments.view import read_view
from pro2.lab.report.selection import is_tuned, select
from pro2.lab.report.tables import (
    bias_variance_table,
    difference_table,
    dimension_table,
    mean_table,
    nullspace_table,
    overall_table,
)

pandas = pytest.importorskip("pandas")


def _rows(folder: Path) -> list[dict[str, Any]]:
    return read_view(folder).to_pylist()


@pytest.mark.parametrize("rule", ["validation", "oracle", "support"])
def test_one_row_for_each_cell_and_seed(finished: Path, rule: str) -> None:
    chosen = pandas.DataFrame(select(_rows(finished), rule))
    counts = chosen.groupby(["data", "target", "shots", "method"]).seed.agg(["size", "nunique"])
    assert (counts["size"] == 4).all()
    assert (counts["nunique"] == 4).all()


def test_rules_choose_what_they_say(finished: Path) -> None:
    frame = pandas.DataFrame(_rows(finished)).query("measure == 'accuracy' and method == 'pro2'")
    cell = ["data", "target", "shots"]
    by_seed = frame.groupby([*cell, "seed"])
    chosen = {rule: pandas.DataFrame(select(_rows(finished), rule)).query("method == 'pro2'") for rule in
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
        assert [(r["n_features"], r["l2"]) for r in select(rows, rule)] == [(1, 0.1)]


def test_a_rule_without_its_column_is_told() -> None:
    base = {"measure": "accuracy", "data": "d", "target": "t", "shots": 2, "method": "m", "seed": 0, "params": None}
    rows = [{**base, "n_features": d, "l2": 0.1, "accuracy": 0.5, "val_accuracy": None} for d in (1, 2)]
    with pytest.raises(ValueError, match=r"needs the column val_accuracy.*validation = 25"):
        select(rows, "validation")
    with pytest.raises(ValueError, match="expected 'validation' or 'oracle' or 'support'"):
        select(rows, "luck")


def test_nothing_was_chosen_where_there_was_one_setting(finished: Path) -> None:
    rows = _rows(finished)
    assert is_tuned(rows)
    one = [r for r in rows if r["method"] == "linear-probe" and r["l2"] == 0.1]
    assert not is_tuned(one)
    assert len(select(one, "untuned")) == len(one)


def test_standard_error_and_deviation_are_two_things(finished: Path) -> None:
    table = mean_table(_rows(finished), "oracle")
    frame = pandas.DataFrame(select(_rows(finished), "oracle")).groupby(["data", "target", "shots", "method"]).accuracy
    for row in table:
        cell = (row["data"], row["target"], row["shots"], row["method"])
        assert row["mean"] == pytest.approx(frame.mean()[cell])
        assert row["standard_deviation"] == pytest.approx(frame.std()[cell])
        assert row["standard_error"] == pytest.approx(frame.sem()[cell])
        assert row["standard_error"] == pytest.approx(row["standard_deviation"] / math.sqrt(row["n_seeds"]))


def test_paired_differences_equal_scipy(finished: Path) -> None:
    chosen = pandas.DataFrame(select(_rows(finished), "support")).set_index(["data", "target", "shots", "method"])
    table = difference_table(_rows(finished), "support", "linear-probe")
    assert {row["method"] for row in table} == {"pro2", "random"}
    for row in table:
        own, base = (chosen.loc[(row["data"], row["target"], row["shots"], m)].sort_values("seed").accuracy.to_numpy()
                     for m in (row["method"], "linear-probe"))  # fmt: skip
        assert row["difference"] == pytest.approx((own - base).mean())
        if (own - base).std() > 0:
            interval = ttest_rel(own, base).confidence_interval(0.95)
            assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_overall_averages_only_targets_that_all_methods_have() -> None:
    def mean(target: str, method: str, value: float) -> dict[str, Any]:
        return {"data": "d", "target": target, "shots": 2, "method": method, "mean": value, "standard_error": 0.3}

    table = overall_table(
        [mean("a", "x", 0.5), mean("a", "y", 0.7), mean("b", "x", 0.9), mean("b", "y", 0.9), mean("c", "x", 0.1)]
    )
    assert {r["method"]: r["mean"] for r in table} == pytest.approx({"x": 0.7, "y": 0.8})
    assert table[0]["standard_error"] == pytest.approx(0.3 / math.sqrt(2))


def test_bias_and_variance_add_up_to_the_error(finished: Path) -> None:
    rows = _rows(finished)
    table = bias_variance_table(dimension_table(rows, "oracle", "pro2"), nullspace_table(rows))
    assert table
    for row in table:
        assert row["bias"] + row["variance"] == pytest.approx(row["error"])
        assert 0 <= row["nullspace_norm"] <= 1 + 1e-9
    assert all(row["variance"] == 0 for row in table if row["shots"] == 8)
