"""A sweep does exactly the missing runs, and its rows are what single fits give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pro2.estimators import Projection
from pro2.lab.experiments import methods
from pro2.lab.experiments import run as module
from pro2.lab.experiments.problems import load_problems
from pro2.lab.experiments.run import code_hash, estimate_sweep, expand, hashed_files, run_sweep
from pro2.lab.experiments.store import ResultStore, read_view
from pro2.tables.draws import draw

from .conftest import Sweep, write_birds

GAUSSIANS = [{"name": "shog", "generator": "shog"}]


def test_rows_equal_single_fits(table_folder: Path, make_plan: Any, sweep: Sweep) -> None:
    rows = sweep()
    # 3 targets x 2 shots x 3 seeds x (3 x 2 settings of two ranked methods + 2 of the linear probe)
    assert len(rows) == 3 * 2 * 3 * (6 + 6 + 2)
    problem = load_problems(make_plan().data, table_folder)[0]["birds"]
    projection = Projection(12).fit(problem.X[problem.source], problem.y[problem.source])
    for row in [r for r in rows if r["method"] == "pro2"][::7]:
        drawn = draw(problem.y, problem.targets[row["target"]], row["shots"], row["seed"], n_val=5)
        Z = projection.transform(problem.X)[:, : row["n_features"]]
        probe = LogisticRegression(C=1 / (row["l2"] * len(drawn.few)), tol=1e-10, max_iter=10_000)
        probe.fit(Z[drawn.few], problem.y[drawn.few])
        score = probe.score(Z[drawn.rest], problem.y[drawn.rest])
        assert row["accuracy"] == pytest.approx(score, abs=1.5 / len(drawn.rest))
        assert row["val_accuracy"] == pytest.approx(probe.score(Z[drawn.val], problem.y[drawn.val]), abs=0.11)
        assert row["n_test"] == len(drawn.rest)


def test_a_second_start_does_nothing_and_a_longer_plan_only_the_rest(table_folder: Path, make_plan: Any) -> None:
    out = table_folder / "out"
    first = run_sweep(make_plan(), out, data=table_folder)
    before = (out / "results.parquet").read_bytes()
    again = run_sweep(make_plan(), out, data=table_folder)
    assert (again.n_before, again.n_done) == (first.n_done, 0)
    assert (out / "results.parquet").read_bytes() == before
    longer = run_sweep(make_plan(seeds=4), out, data=table_folder)
    assert (longer.n_before, longer.n_done) == (first.n_done, 3 * 2 * 1 * 14)
    assert len(read_view(out)) == 3 * 2 * 4 * 14


def test_names_and_order_are_not_in_the_key_but_content_is(
    table_folder: Path, plan_values: Any, make_plan: Any
) -> None:
    def keys(**changes: Any) -> set[str]:
        plan = make_plan(**changes)
        return {cell.key for cell in expand(plan, load_problems(plan.data, table_folder)[0])[0]}

    base, data = keys(), plan_values["data"][0]
    renamed = [{**data, "name": "vogels"}]
    assert keys(name="other", selection="oracle", methods=plan_values["methods"][::-1], data=renamed) == base
    fixed = [{**data, "targets": {"later": "split == 2"}}]
    grouped = keys(data=fixed)
    write_birds(table_folder / "birds.npz", place=np.arange(600) % 2)
    assert not keys(data=fixed) & grouped  # the accuracy of the worst group is measured, too
    write_birds(table_folder / "birds.npz", seed=1)
    assert not keys() & base
    write_birds(table_folder / "birds.npz")
    assert keys() == base
    ridge = [{"method": "pro2", "params": {"ridge": 2.0}}]
    for change in ({"validation": 6}, {"seeds": [9]}, {"shots": [3]}, {"l2": [1.0]}, {"methods": ridge}):
        assert not keys(**change) & base


def test_cells_without_enough_rows_are_skipped_with_the_reason(table_folder: Path, make_plan: Any) -> None:
    plan = make_plan(shots=[2, 100], n_features=[1, 99])
    state = run_sweep(plan, table_folder / "out", data=table_folder)
    reasons = {(s.target, s.shots, s.method): s.reason for s in state.skips}
    assert "100 shots + 5 validation + 20 test rows = 125 are needed" in reasons["minority", 100, None]
    assert "[99] are above the 12" in reasons["*", None, "pro2"]
    rows = read_view(table_folder / "out").to_pylist()
    assert {row["shots"] for row in rows if row["target"] == "minority"} == {2}


def test_failures_stay_beside_the_results_and_are_retried_on_request(table_folder: Path, make_plan: Any) -> None:
    # A ridge that the estimator refuses: the fit on source fails, and with it every cell that needs it.
    plan = make_plan(methods=["pro2", {"method": "pro2", "name": "bad", "params": {"ridge": -1.0}}])
    out, n = table_folder / "out", 3 * 2 * 3 * 6
    state = run_sweep(plan, out, data=table_folder)
    assert (state.n_done, state.n_failed) == (n, n)
    failure = json.loads((out / "failures.json").read_text())[0]
    assert "ridge" in failure["error"]
    assert "Traceback" in failure["traceback"]
    assert (failure["method"], failure["n_runs"]) == ("bad", 6)
    assert run_sweep(plan, out, data=table_folder).n_failed == 0
    assert run_sweep(plan, out, data=table_folder, retry=True).n_failed == n


def test_the_paper_s_optimiser_comes_near_the_exact_probe_and_is_repeatable(sweep: Sweep) -> None:
    adamw = {"method": "pro2", "name": "adamw", "params": {"probe": "adamw", "steps": 300}, "grid": {"lr": [0.1, 0.01]}}
    changes = {"methods": ["pro2", adamw], "shots": [20], "n_features": [3]}
    rows = sweep("first", **changes)
    assert rows == sweep("second", **changes)
    exact = {(r["target"], r["seed"], r["l2"]): r["accuracy"] for r in rows if r["method"] == "pro2"}
    fast = [r for r in rows if r["method"] == "adamw" and r["params"] == '{"lr": 0.1}']
    assert len(fast) == len(exact)
    assert np.mean([abs(exact[r["target"], r["seed"], r["l2"]] - r["accuracy"]) for r in fast]) < 0.05


def test_a_grid_over_the_basis_itself(sweep: Sweep) -> None:
    gridded = {"method": "pro2", "name": "g", "grid": {"ridge": [0.1, 10.0]}}
    rows = sweep(methods=[gridded, *({"method": "pro2", "name": f"r{r}", "params": {"ridge": r}} for r in (0.1, 10.0))])
    cell = ("target", "shots", "seed", "n_features", "l2")
    for ridge in (0.1, 10.0):
        one = {tuple(r[c] for c in cell): r["accuracy"] for r in rows if r["method"] == f"r{ridge}"}
        two = {tuple(r[c] for c in cell): r["accuracy"] for r in rows if r["params"] == f'{{"ridge": {ridge}}}'}
        assert one == two


def test_multiclass_runs(table_folder: Path, sweep: Sweep) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    X = rng.normal(size=(400, 8)).astype(np.float32)
    X[np.arange(400), y] += 5
    labels = np.array(["ant", "bee", "cat", "dog"])[y]
    np.savez(table_folder / "zoo.npz", embeddings=X, y=labels, split=(np.arange(400) >= 200).astype(int))
    data = [{"name": "zoo", "table": "zoo.npz", "source": "split == 0", "targets": {"later": "split == 1"}}]
    rows = sweep(data=data, n_features=[1, 3, "all"], shots=[5], selection="support")
    assert max(r["accuracy"] for r in rows if r["method"] == "pro2") > 0.95
    assert all(r["support_loss"] > 0 for r in rows)
    assert {r["n_features"] for r in rows if r["method"] == "pro2"} == {1, 3, 8}


@pytest.mark.parametrize(
    ("changes", "spec", "message"),
    [
        ({}, {"group": "plaze"}, "no column 'plaze'"),
        ({}, {"label": "labl"}, "no column 'labl'"),
        ({}, {"source": "split == 9"}, "no row satisfies"),
        ({}, {"pool": "split == 0"}, "shares rows with source"),
        ({}, {"table": "gone.npz"}, "does not exist; say in which folder"),
        ({"embeddings": np.full((600, 12), np.nan, np.float32)}, {}, "not finite"),
        ({"id": np.array(["same"] * 600)}, {}, "same"),
        ({"y": np.zeros(600, int)}, {}, "label"),
    ],
)
def test_bad_tables_are_refused_before_anything_runs(
    table_folder: Path, plan_values: Any, sweep: Sweep, changes: dict[str, Any], spec: dict[str, Any], message: str
) -> None:
    write_birds(table_folder / "birds.npz", **changes)
    with pytest.raises(ValueError, match=message) as raised:
        sweep(data=[{**plan_values["data"][0], **spec}])
    assert "birds" in str(raised.value)
    assert not (table_folder / "out").exists()


def test_an_estimate_writes_nothing(table_folder: Path, make_plan: Any) -> None:
    estimate = estimate_sweep(make_plan(), table_folder / "out", table_folder)
    assert estimate.n_runs == estimate.n_missing == 3 * 2 * 3 * 14
    assert estimate.n_cells == 3 * 2 * 3 * 3
    assert not (table_folder / "out").exists()


def test_shifted_gaussians_show_the_paper_s_nullspace_curves(sweep: Sweep) -> None:
    bare = {"method": "pro2", "params": {"ridge": 0.0, "scale": "global"}}
    rows = sweep(data=GAUSSIANS, shots=[32], n_features=[1, 5, 20], measures=["accuracy", "nullspace"], methods=[bare])
    norms = {(r["target"], r["n_features"]): r["nullspace_norm"] for r in rows if r["measure"] == "nullspace"}
    assert norms["id", 1] < norms["near", 1] < norms["far", 1]
    assert norms["far", 1] > 0.8
    assert all(norms[t, 20] < 1e-6 for t in ("id", "near", "far"))


@pytest.mark.parametrize(("measure", "name"), [("nullspace", "nullspace_norm"), ("bound", "bound_bias")])
def test_each_seed_is_measured_on_the_features_of_its_start(measure: str, name: str, sweep: Sweep) -> None:
    """With fewer starts than seeds such a plan once ended in an error, or gave a seed another's features."""
    teney = {"method": "teney", "starts": 2}
    rows = sweep(data=GAUSSIANS, shots=[8], seeds=4, n_features=[1, 3], measures=[measure], methods=[teney])
    found = {(r["seed"], r["n_features"]): r[name] for r in rows if r["target"] == "far"}
    assert len(found) == 8
    for d in (1, 3):
        assert found[0, d] == found[2, d] != found[1, d] == found[3, d]


def test_rows_do_not_depend_on_the_number_of_workers(sweep: Sweep) -> None:
    methods = ["pro2", "random", {"method": "teney", "starts": 2}]
    assert sweep("one", 1, methods=methods) == sweep("four", 4, methods=methods)


def test_each_fit_on_source_is_made_once(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    fit = methods.fit_source
    monkeypatch.setattr(methods, "fit_source", lambda problem, key: made.append(key) or fit(problem, key))
    sweep(n_workers=4)
    assert len(made) == len(set(made)) == 1 + 1 + 3  # pro2, the linear probe, and a random basis per seed


def test_the_summary_has_the_processor_time_of_each_method(table_folder: Path, sweep: Sweep) -> None:
    summary = table_folder / "out" / "summary.json"
    sweep()
    first = json.loads(summary.read_text())["methods"]
    assert {name: each["runs"] for name, each in first.items()} == {"pro2": 108, "random": 108, "linear-probe": 36}
    assert all(found["seconds"] > found["fit_seconds"] >= 0 for found in first.values())
    assert first["pro2"]["fit_seconds"] > 0
    sweep()  # does nothing, and forgets nothing
    assert json.loads(summary.read_text())["methods"] == first


def test_a_damaged_result_is_measured_again(table_folder: Path, make_plan: Any, sweep: Sweep) -> None:
    before = sweep()
    with ResultStore(table_folder / "out") as store:
        key = next(key for key, columns in store.results() if columns)
        store._execute("UPDATE cells SET columns = replace(columns, '.', '.1') WHERE key = ?", key)
    again = run_sweep(make_plan(), table_folder / "out", data=table_folder)
    assert again.n_damaged == 1
    assert again.n_done in (2, 6)  # one cell
    assert read_view(table_folder / "out").to_pylist() == before


def test_the_hash_of_the_code_covers_what_a_run_executes(tmp_path: Path) -> None:
    """Found by running, not by reading: what Python has loaded of the numerical packages after a sweep."""
    names = set(hashed_files())
    assert {"lab/experiments/methods.py", "estimators/project_and_probe.py", "tables/draws.py",
            "lab/datasets/shog.py"} <= names  # fmt: skip
    kept_apart = ("cli/", "lab/report/", "embed/", "estimators/files.py", "lab/experiments/store.py")
    assert not {name for name in names if name.startswith(kept_apart)}
    code = (
        "import sys; from pro2.lab.experiments import parse_plan; from pro2.lab.experiments.run import run_sweep;"
        "run_sweep(parse_plan({'name': 'x', 'shots': [4], 'seeds': 1, 'n_features': [2], 'selection': 'support',"
        "'methods': ['pro2', 'teney', {'method': 'pro2', 'name': 'd', 'untuned': True}],"
        "'data': [{'name': 'g', 'generator': 'shog', 'params': {'n_source': 200, 'n_target': 100}}]}), sys.argv[1]);"
        "print('\\n'.join(n for n in sys.modules if n.startswith(('pro2.linalg.', 'pro2.lab.baselines.'))))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("pro2.").replace(".", "/") + ".py" for name in done.stdout.split()}
    assert "linalg/adamw.py" in loaded
    assert loaded <= names


def test_changed_code_has_another_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = hashed_files()
    copy = tmp_path / "adamw.py"
    copy.write_bytes(files["linalg/adamw.py"].read_bytes())
    monkeypatch.setattr(module, "hashed_files", lambda: {**files, "linalg/adamw.py": copy})
    same = code_hash.__wrapped__()
    copy.write_text(copy.read_text() + "\nTOL = 1e-3\n")
    other = code_hash.__wrapped__()
    monkeypatch.undo()
    assert same == code_hash.__wrapped__() != other
