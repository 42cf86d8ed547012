"""Choosing one setting per method and cell from finished runs: the rules, and what each of them looks at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pro2.lab.experiments.plan import Plan, Selection

Row = Mapping[str, Any]
CELL = ("data", "target", "shots", "method")  # what runs are compared within
_SETTING = ("n_features", "l2", "params")
Rules = Mapping[str, str]  # how the setting of each method is chosen

EXPLAINED = {
    "validation": (
        "by held-out target labels",
        "For every target, number of shots and seed, the setting with the best accuracy on held-out target rows was "
        "taken; accuracy is reported on other rows. This is the paper's protocol: it uses more target labels than the "
        "shots say.",
    ),
    "oracle": (
        "by test accuracy (oracle)",
        "For every target and number of shots, the setting with the best mean test accuracy over seeds was taken. This "
        "is an upper limit, not something a user could reach: the choice has seen the test labels.",
    ),
    "support": (
        "by the few labels alone",
        "For every target, number of shots and seed, the setting with the smallest leave-one-out loss on the few "
        "labelled target rows was taken. No other target label was looked at: honest few-shot adaptation.",
    ),
    "untuned": (
        "not at all",
        "Every method has one setting, so there was nothing to choose and no target label beyond the shots was used.",
    ),
}  # fmt: skip

_NAMED = 4  # methods that one line can name
_COLUMN = {"validation": "val_accuracy", "support": "support_loss"}


def rules_of(plan: Plan, rows: Iterable[Row], asked: str | None = None) -> dict[str, str]:
    """The rule of each method: the one asked for, or the plan's; "untuned" where there is one setting only."""
    if asked is not None and asked not in get_args(Selection):
        raise ValueError(f"selection {asked!r} is not known; expected {' or '.join(map(repr, get_args(Selection)))}")
    found = grouped(where(rows, measure="accuracy"), "method", "data")
    tuned = {method for (method, _), runs in found.items() if len(grouped(runs, *_SETTING)) > 1}
    return {m.name: (asked or plan.rule(m.name)) if m.name in tuned else "untuned" for m in plan.methods}


def explain(rules: Rules, titles: Mapping[str, str]) -> tuple[str, str]:
    """How settings were chosen, in one line, and what that means; without rules there was nothing to choose for."""
    if not rules:
        return "Nothing was chosen: no accuracy was measured.", ""
    by_rule: dict[str, list[str]] = defaultdict(list)
    for method, rule in rules.items():
        by_rule[rule].append(titles.get(method, method))
    alone = by_rule.pop("untuned", [])
    if not by_rule:
        return f"Settings chosen {EXPLAINED['untuned'][0]}.", EXPLAINED["untuned"][1]
    several = len(by_rule) > 1
    parts = [EXPLAINED[rule][0] + (f" ({', '.join(names)})" if several else "") for rule, names in by_rule.items()]
    line = f"Settings chosen {', and '.join(parts)}."
    if alone:
        who = ", ".join(alone) if len(alone) <= _NAMED else f"{len(alone)} other methods"
        line += f" One setting only, nothing to choose: {who}."
    return line, " ".join(EXPLAINED[rule][1] for rule in by_rule)


def select(rows: Iterable[Row], rules: Rules, keep: tuple[str, ...] = ()) -> list[Row]:
    """One row for each data, target, shots, method and seed.

    Parameters
    ----------
    rows : rows of ``results.parquet``
        Only those that measure accuracy are looked at.
    rules : mapping of method to "validation", "oracle", "support" or "untuned"
    keep : column names
        Choose within each value of these, e.g. ``("n_features",)`` for the best penalty of every dimension.
    """
    cells = grouped(where(rows, measure="accuracy"), *CELL, *keep)
    return [row for cell in cells.values() for row in _choose(cell, rules[cell[0]["method"]])]


def where(rows: Iterable[Row], **values: Any) -> list[Any]:
    """Rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Any]]:
    """Rows by their values of some columns, in the order in which those first occur."""
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def _choose(cell: list[Row], rule: str) -> list[Row]:
    by_setting = grouped(cell, *_SETTING)
    if len(by_setting) == 1:
        return cell
    if rule == "oracle":
        return max(by_setting.values(), key=lambda r: (sum(x["accuracy"] for x in r) / len(r), *_simplicity(r[0])))
    _check_scores(cell, rule)
    column, sign = _COLUMN[rule], 1 if rule == "validation" else -1
    return [max(runs, key=lambda r: (sign * r[column], *_simplicity(r))) for runs in grouped(cell, "seed").values()]


def _simplicity(row: Row) -> tuple[float, float]:
    """Ties go to fewer features, then to the larger penalty."""
    return -(row["n_features"] or 0), row["l2"] or 0.0


def _check_scores(cell: list[Row], rule: str) -> None:
    if any(row[_COLUMN[rule]] is None for row in cell):
        need = "validation = 25 (rows per label)" if rule == "validation" else 'selection = "support"'
        raise ValueError(
            f"selection {rule!r} needs the column {_COLUMN[rule]}, which method {cell[0]['method']} has no values of; "
            f"set {need} in the plan and run `pro2 sweep` again, or choose selection 'oracle'"
        )
