"""Numbers of the report equal what pandas and hand calculation give on the same rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from pro2.lab.experiments.view import read_view
from pro2.lab.report.loading import load_results
from pro2.lab.report.selection import explain, rules_of, select
from pro2.lab.report.tables import (
    bias_variance_table,
    difference_table,
    dimension_table,
    mean_table,
    nullspace_table,
    overall_table,
)

pandas = pytest.importorskip("pandas")


class _All(dict[str, str]):
    """One rule for every method."""

    def __init__(self, rule: str) -> None:
        super().__init__()
        self.rule = rule

    def __missing__(self, method: str) -> str:
        return self.rule


def _rows(folder: Path) -> list[dict[str, Any]]:
    return read_view(folder).to_pylist()


@pytest.mark.parametrize("rule", ["validation", "oracle", "support"])
def test_one_row_for_each_cell_and_seed(finished: Path, rule: str) -> None:
    chosen = pandas.DataFrame(select(_rows(finished), _All(rule)))
    counts = chosen.groupby(["data", "target", "shots", "method"]).seed.agg(["size", "nunique"])
    assert (counts["size"] == 4).all()
    assert (counts["nunique"] == 4).all()


def test_rules_choose_what_they_say(finished: Path) -> None:
    frame = pandas.DataFrame(_rows(finished)).query("measure == 'accuracy' and method == 'pro2'")
    cell = ["data", "target", "shots"]
    by_seed = frame.groupby([*cell, "seed"])
    chosen = {rule: pandas.DataFrame(select(_rows(finished), _All(rule))).query("method == 'pro2'") for rule in
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
        assert [(r["n_features"], r["l2"]) for r in select(rows, _All(rule))] == [(1, 0.1)]


def test_a_rule_without_its_column_is_told() -> None:
    base = {"measure": "accuracy", "data": "d", "target": "t", "shots": 2, "method": "m", "seed": 0, "params": None}
    rows = [{**base, "n_features": d, "l2": 0.1, "accuracy": 0.5, "val_accuracy": None} for d in (1, 2)]
    with pytest.raises(ValueError, match=r"needs the column val_accuracy.*validation = 25"):
        select(rows, _All("validation"))


def test_each_method_has_its_rule(finished: Path) -> None:
    results = load_results(finished)
    assert set(rules_of(results.plan, results.rows).values()) == {"support"}
    assert set(rules_of(results.plan, results.rows, "oracle").values()) == {"oracle"}
    one = [r for r in results.rows if r["method"] != "linear-probe" or r["l2"] == 0.1]
    assert rules_of(results.plan, one)["linear-probe"] == "untuned"
    with pytest.raises(ValueError, match="expected 'validation' or 'oracle' or 'support'"):
        rules_of(results.plan, results.rows, "luck")
    chosen = select(results.rows, {"pro2": "support", "random": "validation", "linear-probe": "oracle"})
    by_hand = [*select([r for r in results.rows if r["method"] == "pro2"], _All("support")),
               *select([r for r in results.rows if r["method"] == "random"], _All("validation"))]  # fmt: skip
    assert [r for r in chosen if r["method"] == "pro2"] + [r for r in chosen if r["method"] == "random"] == by_hand


def test_the_choice_is_told_in_one_line() -> None:
    titles = {"a": "A", "b": "B", "c": "C"}
    line, meaning = explain({"a": "support", "b": "support"}, titles)
    assert line == "Settings chosen by the few labels alone."
    assert "honest few-shot" in meaning
    line, _ = explain({"a": "support", "b": "oracle", "c": "untuned"}, titles)
    assert line == (
        "Settings chosen by the few labels alone (A), and by test accuracy (oracle) (B). One setting only, nothing to "
        "choose: C."
    )
    assert explain({"a": "untuned"}, titles)[0] == "Settings chosen not at all."


def test_standard_error_and_deviation_are_two_things(finished: Path) -> None:
    table = mean_table(_rows(finished), _All("oracle"))
    frame = (
        pandas.DataFrame(select(_rows(finished), _All("oracle")))
        .groupby(["data", "target", "shots", "method"])
        .accuracy
    )
    for row in table:
        cell = (row["data"], row["target"], row["shots"], row["method"])
        assert row["mean"] == pytest.approx(frame.mean()[cell])
        assert row["standard_deviation"] == pytest.approx(frame.std()[cell])
        assert row["standard_error"] == pytest.approx(frame.sem()[cell])
        assert row["standard_error"] == pytest.approx(row["standard_deviation"] / math.sqrt(row["n_seeds"]))


def test_paired_differences_equal_scipy(finished: Path) -> None:
    chosen = pandas.DataFrame(select(_rows(finished), _All("support"))).set_index(["data", "target", "shots", "method"])
    table = difference_table(_rows(finished), _All("support"), "linear-probe")
    assert {row["method"] for row in table} == {"pro2", "random"}
    for row in table:
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
    table = overall_table([*both, mean("c", 2, "x", 0.1), mean("c", 2, "y", 0.1), mean("e", 8, "x", 0.1)])
    assert {(r["shots"], r["method"]): r["mean"] for r in table} == pytest.approx(
        {(2, "x"): 0.7, (2, "y"): 0.7, (8, "x"): 0.7, (8, "y"): 0.7}
    )
    assert {r["targets"] for r in table} == {"a, b"}
    assert table[0]["standard_error"] == pytest.approx(0.3 / math.sqrt(2))


def test_the_worst_group_is_averaged_where_there_are_groups(finished: Path) -> None:
    table = mean_table(_rows(finished), _All("oracle"))
    assert all(row["worst_group"] is None for row in table)
    measured = [row for row in _rows(finished) if row["measure"] == "accuracy"]
    rows = [{**row, "worst_group": row["accuracy"] / 2} for row in measured]
    for row in mean_table(rows, _All("oracle")):
        assert row["worst_group"] == pytest.approx(row["mean"] / 2)
        assert row["worst_group_error"] == pytest.approx(row["standard_error"] / 2)


def test_bias_and_variance_add_up_to_the_error(finished: Path) -> None:
    rows = _rows(finished)
    table = bias_variance_table(dimension_table(rows, _All("oracle"), ["pro2"]), nullspace_table(rows))
    assert table
    for row in table:
        assert row["bias"] + row["variance"] == pytest.approx(row["error"])
        assert 0 <= row["nullspace_norm"] <= 1 + 1e-9
    assert all(row["variance"] == 0 for row in table if row["shots"] == 8)
