"""The numbers behind the claims: each function reads the results of one plan and gives parts that hold or do not."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pro2.lab.experiments.problems import shog_of
from pro2.lab.report import tables
from pro2.lab.report.loading import Results
from pro2.lab.report.selection import Row, grouped, select, where
from pro2.lab.report.tables import Table, combined, values_of
from pro2.lab.theory.bounds import shift_bound

ERRORS = 2.0  # standard errors that a difference needs to count
FEW = (2, 8)  # labels per class
MILD, SEVERE = "spurious", "minority"


class Part(NamedTuple):
    """One number of a claim: what it is, the number with its error, whether it holds (None: shown, not judged)."""

    what: str
    number: str
    holds: bool | None


def points(value: float, error: float) -> str:
    """A difference of accuracies."""
    return f"{100 * value:+.1f} ± {100 * error:.1f} points"


def differences(results: Results, method: str, baseline: str, most: float = math.inf) -> Table:
    """Paired differences of one method to another, cell by cell, both with at most so many features."""
    rows = [r for r in results.rows if r["method"] in (method, baseline) and (r["n_features"] or 0) <= most]
    return tables.difference_table(rows, results.rules, baseline)


def means_of(results: Results) -> Table:
    """Mean accuracy of every cell."""
    return tables.mean_table(results.rows, results.rules)


def _is_above(value: float, error: float) -> bool:
    return value - ERRORS * error > 0


def _lead(found: dict[str, Row], method: str, others: Sequence[str]) -> tuple[float, float]:
    """How far a method is ahead of the best of others in one cell, and the error of that."""
    mine, best = found[method], max((found[name] for name in others if name in found), key=lambda row: row["mean"])
    return mine["mean"] - best["mean"], math.hypot(mine["standard_error"] or 0.0, best["standard_error"] or 0.0)


def gain_over_linear_probe(results: Results) -> Iterator[Part]:
    names = {"": "standardised", "-global": "raw up to one factor", "-unit": "rows of length one"}
    for ending, scaling in names.items():
        rows = differences(results, f"pro2{ending}", f"linear-probe{ending}")
        for shots in sorted(values_of(rows, "shots")):
            value, error = combined(where(rows, shots=shots), "difference")
            holds = _is_above(value, error) and value >= 0.05 if shots in FEW else None
            yield Part(f"{scaling}, {shots} labels", points(value, error), holds)


def best_or_tied(results: Results) -> Iterator[Part]:
    means = tables.overall_table(means_of(results))
    for method in ("pro2", "pro2-adamw"):
        for data in values_of(means, "data"):
            cells = grouped(where(means, data=data), "shots").values()
            found = [{row["method"]: row for row in cell} for cell in cells]
            gaps = [_lead(cell, method, ("random", "linear-probe", "teney")) for cell in found]
            tied = [value + ERRORS * error >= 0 for value, error in gaps]
            number = f"{sum(tied)} of {len(tied)} numbers of labels; at worst {points(*min(gaps))}"
            yield Part(f"{results.titles[method]} on {data}", number, all(tied))


def ahead_of_teney(results: Results) -> Iterator[Part]:
    most = max(row["n_features"] for row in results.rows if row["method"] == "teney")
    rows = differences(results, "pro2", "teney", most)
    severe = (("waterbirds", SEVERE), ("celeba", SEVERE), ("collages", "fashion"), ("collages", "cifar"))
    for data, target in severe:
        yield from _most_labels(where(rows, data=data, target=target))


def _most_labels(rows: Table) -> Iterator[Part]:
    """Each target with the most labels it has; a difference counts where it is more than its error allows."""
    for (data, target), mine in grouped(rows, "data", "target").items():
        row = max(mine, key=lambda r: r["shots"])
        value, error = row["difference"], row["standard_error"] or 0.0
        yield Part(f"{data}, {target}, {row['shots']} labels", points(value, error), _is_above(value, error))


def many_classes(results: Results) -> Iterator[Part]:
    means = means_of(results)
    for data, target in grouped(means, "data", "target"):
        for shots in sorted(values_of(means, "shots")):
            found = {r["method"]: r for r in where(means, data=data, target=target, shots=shots)}
            value, error = _lead(found, "pro2", ("random", "linear-probe"))
            yield Part(f"{data}, {shots} per class", points(value, error), value + ERRORS * error >= 0)


def dimension_and_severity(results: Results) -> Iterator[Part]:
    table = tables.dimension_table(results.rows, results.rules, ["pro2"])
    pairs = [("waterbirds", MILD, SEVERE), ("celeba", MILD, SEVERE), ("collages", "mnist", "fashion"),
             ("collages", "mnist", "cifar"), ("camelyon17", "id-test", "ood-test")]  # fmt: skip
    for data, mild, severe in pairs:
        rows = [where(table, data=data, target=target) for target in (mild, severe)]
        common = set.intersection(*(set(values_of(each, "shots")) for each in rows))
        if common:
            at = max(common)
            best = [_best_dimension(where(each, shots=at)) for each in rows]
            number = f"d = {best[0]} for {mild}, {best[1]} for {severe} ({at} labels)"
            yield Part(data, number, best[0] < best[1])


def _best_dimension(rows: Table) -> int:
    return int(max(rows, key=lambda row: (row["mean"], -row["n_features"]))["n_features"])


def captured_early(results: Results) -> Iterator[Part]:
    table = tables.nullspace_table(results.rows)
    for target in ("shortcut", "robust"):
        found = {r["method"]: r for r in where(table, target=target, n_features=64)}
        mine, other = found["pro2"]["nullspace_norm"], found["random"]["nullspace_norm"]
        spread = found["random"]["standard_error"] or 0.0
        number = f"{mine:.2f} outside the first 64 (random: {other:.2f} ± {spread:.3f})"
        yield Part(f"{target} direction", number, mine**2 <= 0.5)


def ahead_of_random(results: Results) -> Iterator[Part]:
    rows = where(results.rows, n_features=64)
    yield from _most_labels(tables.difference_table(rows, results.rules, "random"))


def random_projection_rate(results: Results) -> Iterator[Part]:
    width = max(row["n_features"] for row in results.rows)
    table = where(tables.nullspace_table(results.rows), method="random")
    for (target,), mine in grouped(table, "target").items():
        off = [abs(row["nullspace_norm"] - math.sqrt(1 - row["n_features"] / width)) for row in mine]
        yield Part(f"{target} direction", f"at most {max(off):.3f} off, over {len(off)} values of d", max(off) <= 0.02)


def orthogonality_helps(results: Results) -> Iterator[Part]:
    for method in ("pro2-adamw", "pro2"):
        rows = differences(results, method, "pro2-nc")
        for (data,), mine in grouped(rows, "data").items():
            value, error = combined(mine, "difference")
            holds = _is_above(value, error) if method == "pro2-adamw" else None
            yield Part(f"{data}, {results.titles[method]}", points(value, error), holds)


def celeba_variants(results: Results) -> Iterator[Part]:
    for (data,), rows in grouped(means_of(results), "data").items():
        cells = grouped(rows, "target", "shots").values()
        mine = [{row["method"]: row["mean"] for row in cell} for cell in cells]
        best = sum(found["pro2"] >= max(found.values()) for found in mine)
        teney = sum(found["teney"] >= found["pro2"] for found in mine)
        number = f"best in {best} of {len(mine)} cells; Teney et al. at least equal in {teney}"
        yield Part(data, number, best > len(mine) / 2)


def better_backbones(results: Results) -> Iterator[Part]:
    """Data entries of the plan are in the order of their published ImageNet accuracy."""
    names = [spec.name for spec in results.plan.data]
    # each backbone takes the place of a method on one data set
    rows = [{**r, "data": "", "method": r["data"]} for r in where(results.rows, method="pro2")]
    rules = dict.fromkeys(names, results.rules["pro2"])
    for worse, better in pairwise(names):
        found = where(tables.difference_table(rows, rules, worse), method=better)
        value, error = combined(found, "difference")
        yield Part(f"{better} above {worse}", points(value, error), _is_above(value, error))


def learning_rates(results: Results) -> Iterator[Part]:
    rows = where(results.rows, method="paper")
    found: dict[float, dict[Any, float]] = defaultdict(dict)
    for row in select(rows, results.rules, keep=("params",)):
        cell = (row["data"], row["target"], row["shots"], row["seed"])
        found[float(json.loads(row["params"])["lr"])][cell] = row["accuracy"]
    means = {rate: float(np.mean(list(cells.values()))) for rate, cells in sorted(found.items())}
    yield from (Part(f"learning rate {rate:g}", f"{100 * mean:.1f} %", None) for rate, mean in means.items())
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    each = tables.moments([found[high][cell] - found[low][cell] for cell in found[low]])
    value, error = means[high] - means[low], each["standard_error"] or 0.0
    yield Part(f"learning rate {high:g} above {low:g}", points(value, error), value <= 0.02)


def run_time(results: Results) -> Iterator[Part]:
    runs, seconds = results.summary["runs"], results.summary["batch_seconds"]
    hours = seconds / 3600 * 30_000 / max(runs, 1)
    number = f"{runs} runs in {seconds / 3600:.2f} processor hours: 30,000 in {hours:.2f}"
    yield Part("Pro2 and the linear probe under three scalings", number, hours <= 96)


def first_is_discriminant(results: Results) -> Iterator[Part]:
    row = where(tables.nullspace_table(results.rows), method="pro2", target="id", n_features=1)[0]
    yield Part("best head of the source", f"{row['nullspace_norm']:.3f} outside", row["nullspace_norm"] <= 0.1)


def bias_is_linear(results: Results) -> Iterator[Part]:
    dimensions = tables.dimension_table(results.rows, results.rules, ["pro2"])
    table = tables.bias_variance_table(dimensions, tables.nullspace_table(results.rows))
    for (target,), mine in grouped(table, "target").items():
        found = {r["n_features"]: (r["nullspace_norm"], r["bias"]) for r in mine}
        x, y = np.array(list(found.values())).T
        if np.ptp(x) < 0.2:  # the target whose head is found at once has nothing to say
            continue
        line, curve = (_explained(x, y, degree) for degree in (1, 2))
        bend = "convex" if np.polyfit(x, y, 2)[0] > 0 else "concave"
        yield Part(f"target {target}", f"line {line:.2f}, parabola {curve:.2f} ({bend}) of the variance", line >= 0.95)


def _explained(x: np.ndarray, y: np.ndarray, degree: int) -> float:
    left = y - np.polyval(np.polyfit(x, y, degree), x)
    return float(1 - np.var(left) / np.var(y))


def bound_picks_dimension(results: Results) -> Iterator[Part]:
    shog, width = shog_of(results.plan.data[0]), max(row["n_features"] or 0 for row in results.rows)
    table = tables.dimension_table(results.rows, results.rules, ["pro2"])
    sizes = sorted(values_of(table, "n_features"))
    for target in values_of(table, "target"):
        near, picked, best = [], [], []
        for shots in sorted(values_of(table, "shots")):
            bound = shift_bound(np.array(sizes), 2 * shots, width, shog.kl(target))
            picked.append(sizes[int(np.argmin(bound))])
            best.append(_best_dimension(where(table, target=target, shots=shots)))
            near.append(0.5 <= picked[-1] / best[-1] <= 2)
        number = f"picks d = {_range(picked)}, best d = {_range(best)}; near in {sum(near)} of {len(near)}"
        yield Part(f"target {target} (KL {shog.kl(target):.1f})", number, sum(near) >= len(near) / 2)


def _range(values: list[int]) -> str:
    return f"{min(values)}" if min(values) == max(values) else f"{min(values)} to {max(values)}"


def theorem_holds(results: Results) -> Iterator[Part]:
    table = tables.bound_table(results.rows)
    below = sum(row["excess_risk"] <= row["bound"] for row in table)
    yield Part("measured risk below the bound", f"in {below} of {len(table)} cells", below == len(table))
    informative = where(table, vacuous=False)
    least = min((row["shots"] for row in informative), default=None)
    least_text = "at no number of labels" if least is None else f"from {least} labels per class on"
    number = f"in {len(informative)} of {len(table)} cells ({least_text})"
    yield Part("bound below the risk of not looking", number, len(informative) == len(table))


def shown(value: Any) -> str:
    """Yes, no, or nothing where a number is only shown."""
    return {True: "yes", False: "no", None: ""}[value]
