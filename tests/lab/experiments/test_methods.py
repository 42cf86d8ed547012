"""What methods share and what sets them apart inside a sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.estimators import PriorFamily, Projection
from pro2.lab.baselines import create_baseline
from pro2.lab.experiments import find_plan
from pro2.lab.experiments.methods import ESTIMATORS, INGREDIENTS, Ablated, FitKey, estimator_of, fit_source, fits_of
from pro2.lab.experiments.plan import Plan
from pro2.lab.experiments.problems import Problem, load_problems
from pro2.lab.experiments.run import expand, run_sweep
from pro2.lab.report.write import write_report
from pro2.tables.draws import draw

from .conftest import Sweep

ADAMW = {"method": "pro2", "params": {"solver": "adamw"}}


def _fits(plan: Plan, folder: Path) -> tuple[Problem, dict[str, list[FitKey]]]:
    """The problem, and the fits that the cells of each method need, each once."""
    problems, _ = load_problems(plan.data, folder)
    keys: dict[str, dict[FitKey, None]] = {}
    for cell in expand(plan, problems)[0]:
        keys.setdefault(cell.method.name, {}).update({key: None for key, *_ in fits_of(cell)})
    return problems["birds"], {name: list(found) for name, found in keys.items()}


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if estimator_of(n)[1] and n != "pro2"])
def test_features_of_a_sweep_are_those_of_the_estimator(name: str, table_folder: Path, make_plan: Any) -> None:
    """One registry: the sweep and the estimator's own `fit` make the same features."""
    problem, keys = _fits(make_plan(methods=[name], n_features=[4]), table_folder)
    features = fit_source(problem, keys[name][0])
    X = problem.X[problem.source]
    params = {} if name == "linear-probe" else {"n_components": 4, "random_state": keys[name][0].start}
    model = create_baseline(name, **params).fit(X, problem.y[problem.source])
    expected = (X - model.mean_) / model.scale_
    expected = expected if name == "linear-probe" else expected @ model.components_.T
    np.testing.assert_allclose(features.transform(X, 4), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("params", [{"solver": "krylov"}, {"solver": "logistic", "ridge": 0.1},
                                    {"solver": "adamw"}, {"solver": "adamw", "scale": "unit"}], ids=str)  # fmt: skip
def test_the_paper_s_features_are_those_of_the_projection(params: Any, table_folder: Path, make_plan: Any) -> None:
    problem, keys = _fits(make_plan(methods=[{"method": "pro2", "params": params}], n_features=[4]), table_folder)
    features = fit_source(problem, keys["pro2"][0])
    X, y = problem.X[problem.source], problem.y[problem.source]
    expected = Projection(4, keep_norms=True, random_state=0, **params).fit_transform(X, y)
    np.testing.assert_allclose(features.transform(X, 4), expected, rtol=1e-3, atol=1e-3)
    if params["solver"] == "adamw":
        slower = fit_source(problem, keys["pro2"][0]._replace(params=(*keys["pro2"][0].params, ("project_lr", 0.001))))
        assert not np.allclose(slower.components, features.components, rtol=0.1)


@pytest.mark.parametrize("method", ["random", "pro2-nc", "mixpro"])
def test_chance_in_a_method_repeats_itself(method: str, sweep: Sweep) -> None:
    changes = {"methods": [{"method": method, "untuned": True}], "shots": [4], "seeds": [0, 1]}
    assert sweep("a", **changes) == sweep("b", **changes)


@pytest.mark.parametrize("method", [{"method": "teney"}, {"method": "pro2-nc"}, ADAMW], ids=lambda m: m["method"])
def test_features_can_be_trained_on_a_device(method: dict[str, Any], table_folder: Path, make_plan: Any) -> None:
    """PyTorch gets the same features as NumPy, and hands NumPy arrays back."""
    pytest.importorskip("torch")
    problem, keys = _fits(make_plan(methods=[method], n_features=[4]), table_folder)
    (key,) = keys[method["method"]]
    here, there = (fit_source(replace(problem, device=where, _made={}), key) for where in (None, "cpu"))
    X = problem.X[problem.source]
    assert isinstance(there.components, np.ndarray)
    np.testing.assert_allclose(there.transform(X, 4), here.transform(X, 4), rtol=1e-3, atol=1e-3)


def test_a_sweep_trains_on_the_device_it_is_given(table_folder: Path, make_plan: Any) -> None:
    torch = pytest.importorskip("torch")
    plan, out = make_plan(methods=["teney"], n_features=[2], shots=[4], seeds=[0]), table_folder / "out"
    run_sweep(plan, out, data=table_folder, device="cpu")
    write_report(out, markdown=table_folder / "pages")
    assert "gradient steps on cpu;" in next((table_folder / "pages").glob("*.md")).read_text()
    with pytest.raises(ValueError, match="device='tpu' is not known"):
        run_sweep(plan, out, data=table_folder, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="PyTorch sees no GPU"):
            run_sweep(plan, out, data=table_folder, device="cuda")


@pytest.mark.parametrize("method", ["pro2", "random", "pca", "linear-probe"])
def test_untuned_is_the_estimator_itself(method: str, table_folder: Path, make_plan: Any, sweep: Sweep) -> None:
    params = {"random_state": 0} if method == "random" else {"scale": "unit"}
    rows = sweep(methods=[{"method": method, "untuned": True, "params": params}], shots=[6], seeds=[0])
    problem = load_problems(make_plan().data, table_folder)[0]["birds"]
    model = ESTIMATORS[method](**params).fit(problem.X[problem.source], problem.y[problem.source])
    for row in rows:
        drawn = draw(problem.y, problem.targets[row["target"]], 6, 0, n_val=5)
        adapted = model.adapt(problem.X[drawn.few], problem.y[drawn.few])
        score = adapted.score(problem.X[drawn.rest], problem.y[drawn.rest])
        assert row["accuracy"] == pytest.approx(score, abs=1.5 / len(drawn.rest))
        assert row["n_features"] is row["l2"] is None


def test_seeds_share_as_many_starts_as_asked_for(table_folder: Path, make_plan: Any, sweep: Sweep) -> None:
    trained = {"method": "teney", "starts": 2, "n_features": [3], "l2": [0.1]}
    changes = {"methods": [trained], "seeds": [0, 1, 2, 3], "shots": [4]}
    assert [key.start for key in _fits(make_plan(**changes), table_folder)[1]["teney"]] == [0, 1]
    rows, one = sweep("two", **changes), sweep("one", **{**changes, "methods": [{**trained, "starts": 1}]})
    same = {parity: [a["accuracy"] == b["accuracy"] for a, b in zip(rows, one) if a["seed"] % 2 == parity]
            for parity in (0, 1)}  # fmt: skip
    assert all(same[0])
    assert not all(same[1])


def test_what_depends_on_its_size_is_trained_for_each(table_folder: Path, make_plan: Any) -> None:
    plan = make_plan(methods=["teney", "pro2-nc", {**ADAMW, "name": "a"}, "pro2"])
    sizes = {name: [key.size for key in keys] for name, keys in _fits(plan, table_folder)[1].items()}
    assert sizes == {"teney": [1, 3, 12], "pro2-nc": [12], "a": [12], "pro2": [12]}


def test_the_paper_s_basis_is_nested_up_to_its_optimiser_s_rounding(table_folder: Path, make_plan: Any) -> None:
    """QR goes in order, so what comes later changes nothing before it: one training serves every number of features."""
    problem, keys = _fits(make_plan(methods=[ADAMW]), table_folder)
    large, small = (fit_source(problem, keys["pro2"][0]._replace(size=size)).components for size in (12, 4))
    cosine = np.sum(large[:4] * small, axis=1) / np.linalg.norm(large[:4], axis=1) / np.linalg.norm(small, axis=1)
    assert np.all(cosine > 0.98)


@pytest.mark.parametrize("without", INGREDIENTS)
def test_an_ablated_family_lacks_one_ingredient_and_adapts(without: str, table_folder: Path, make_plan: Any) -> None:
    problem = load_problems(make_plan().data, table_folder)[0]["birds"]
    model = Ablated(without)
    changed = [name for name, value in vars(PriorFamily()).items() if getattr(model.priors, name) != value]
    assert changed == [INGREDIENTS[without][0]]
    few = draw(problem.y, problem.targets["spurious"], 4, 0).few
    adapted = model.fit(problem.X[problem.source], problem.y[problem.source]).adapt(problem.X[few], problem.y[few])
    assert adapted.score(problem.X[problem.targets["spurious"]], problem.y[problem.targets["spurious"]]) > 0.6


def test_the_plan_of_the_ablation_takes_out_every_ingredient() -> None:
    plan = find_plan("ablation")
    assert isinstance(plan, Plan)
    assert {m.params["without"] for m in plan.methods if m.method == "ablated"} == set(INGREDIENTS)


def test_two_rules_of_one_method_share_their_runs(table_folder: Path, sweep: Sweep, make_plan: Any) -> None:
    methods = ["pro2", {"method": "pro2", "name": "loo", "selection": "support"}]
    rows = sweep(methods=methods)
    assert len(rows) == 2 * run_sweep(make_plan(methods=methods), table_folder / "out", data=table_folder).n_before
    assert all(row["support_loss"] is not None for row in rows)
    one, other = ([r["accuracy"] for r in rows if r["method"] == name] for name in ("pro2", "loo"))
    assert one == other


@pytest.mark.parametrize("kind", ["knn", "gp", "boosting"])
def test_any_learner_on_the_features(kind: str, sweep: Sweep) -> None:
    methods = [{"method": name, "params": {"probe": kind}} for name in ("pro2", "random")]
    rows = sweep(methods=methods, shots=[30], seeds=[0], n_features=[2, 12])
    assert len(rows) == 2 * 3 * 2
    assert all(row["l2"] is None and 0 <= row["worst_group"] <= row["accuracy"] <= 1 for row in rows)
    assert np.mean([r["accuracy"] for r in rows if (r["target"], r["method"]) == ("spurious", "pro2")]) > 0.8


def test_groups_are_measured_where_the_table_has_them(sweep: Sweep) -> None:
    assert all(0 <= row["worst_group"] <= row["accuracy"] for row in sweep("groups"))
    data = {"name": "birds", "table": "birds.npz", "source": "split == 0", "targets": {"later": "split == 2"}}
    assert all(row["worst_group"] is None for row in sweep("none", data=[data]))
    assert all(row["worst_group"] is not None for row in sweep("named", data=[{**data, "group": "place"}]))


def test_a_table_that_is_optional_may_be_absent(table_folder: Path, plan_values: Any, make_plan: Any) -> None:
    gone = {**plan_values["data"][0], "name": "gone", "table": "gone.npz", "optional": True}
    state = run_sweep(make_plan(data=[*plan_values["data"], gone]), table_folder / "out", data=table_folder)
    assert [(s.data, s.reason.startswith("its table gone.npz is not in")) for s in state.skips] == [("gone", True)]
    with pytest.raises(ValueError, match=r"gone.*say in which folder"):
        run_sweep(make_plan(data=[gone]), table_folder / "none", data=table_folder)


def test_a_short_class_gives_what_it_has(table_folder: Path, make_plan: Any, sweep: Sweep) -> None:
    """Sixty-two classes with one short class: no cell is lost."""
    rng = np.random.default_rng(0)
    y = np.r_[np.arange(1240) % 62, np.repeat(np.arange(61), 6), [61, 61]]
    X, split = rng.normal(size=(len(y), 10)) + 3 * rng.normal(size=(62, 10))[y], np.arange(len(y)) >= 1240
    np.savez(table_folder / "many.npz", embeddings=X.astype(np.float32), y=y, split=split.astype(int))
    data = [{"name": "many", "table": "many.npz", "source": "split == 0", "targets": {"later": "split == 1"}}]
    base = {"data": data, "methods": ["pro2"], "shots": [2, 5], "n_features": [8], "l2": [0.1], "validation": 0,
            "selection": "oracle", "min_test": 1}  # fmt: skip
    state = run_sweep(make_plan(**base), table_folder / "skip", data=table_folder)
    assert "label 61 has 2 rows" in state.skips[0].reason
    rows = sweep(**base, short="take")
    assert {row["shots"] for row in rows} == {2, 5}
    assert {row["n_test"] for row in rows if row["shots"] == 5} == {61 * 1 + 1}
