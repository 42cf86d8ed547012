"""A plan file is checked before anything runs, and says exactly what is wrong."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pro2.lab.experiments import Suite, find_plan, list_presets, parse_plan, preset_text
from pro2.lab.experiments.methods import check_methods
from pro2.lab.experiments.plan import change_plan, plans_of
from pro2.lab.experiments.problems import load_problems
from pro2.lab.experiments.run import expand
from pro2.lab.report.claims import CLAIMS

PRESETS = ("ablation", "backbones", "baselines", "basis", "celeba-variants", "claims", "dimension", "main",
           "multiclass", "optimiser", "orthogonality", "picture", "probes", "scaling", "shog", "theorem", "timing",
           "yours")  # fmt: skip


def test_a_plan_survives_the_round_trip_to_plain_values(plan_values: Any) -> None:
    plan = parse_plan(plan_values)
    assert plan.seeds == (0, 1, 2)
    assert parse_plan(json.loads(json.dumps(plan.to_dict()))) == plan


def test_every_preset_of_the_paper_is_there_and_valid() -> None:
    assert set(list_presets()) >= set(PRESETS)
    for name in list_presets():
        plan = find_plan(name)
        if isinstance(plan, Suite):
            assert set(plan.plans) >= {claim.plan for claim in CLAIMS if claim.plan}
            assert set(plans_of(plan)) == set(plan.plans)
        else:
            check_methods(plan.methods)
            assert len(plan.seeds) >= 10 or plan.measures == ("picture",)
            averaged = any(m.method == "pro2" and m.untuned for m in plan.methods)
            assert not averaged or any(m.title.startswith("The paper's Pro2") for m in plan.methods)
            assert parse_plan(tomllib.loads(preset_text(name))) == plan
        assert plan.name == name
        assert plan.title
        assert plan.description


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seedz": 3}, "unknown key 'seedz'; did you mean 'seeds'"),
        ({"shots": [0]}, r"Expected `int` >= 1 - at `\$.shots\[0\]`"),
        ({"shots": [2, 2]}, "each value once"),
        ({"l2": [0.0]}, r"> 0.0 - at `\$.l2\[0\]`"),
        ({"l2": [float("nan")]}, r"> 0.0 - at `\$.l2\[0\]`"),
        ({"l2": [float("inf")]}, r"<= 1.79.* - at `\$.l2\[0\]`"),
        ({"n_features": ["most"]}, "expected 'all'"),
        ({"n_features": [True]}, "got `bool`"),
        ({"seeds": 0}, r"length >= 1 - at `\$.seeds`"),
        ({"seeds": [1, 1]}, "each value once"),
        ({"seeds": 10**9}, "length <= 10000"),
        ({"seeds": list(range(10_001))}, "length <= 10000"),
        ({"selection": "validaton"}, "selection is 'validaton'; expected .* did you mean 'validation'"),
        ({"measures": ["speed"]}, "measures is 'speed'; expected 'accuracy' or 'nullspace'"),
        ({"validation": 0}, "needs held-out rows"),
        ({"data": [{"name": "x", "generator": "shog", "validation": -1}]}, r">= 0 - at `\$.data\[0\].validation`"),
        ({"data": [{"name": "x", "generator": "shog", "validation": 0}]}, "needs held-out rows"),
        ({"baseline": "nobody"}, "one of the methods"),
        ({"methods": []}, r"length >= 1 - at `\$.methods`"),
        ({"methods": [{"method": "pro2"}, {"method": "pro2"}]}, "named pro2 twice"),
        ({"methods": [{"methd": "pro2"}]}, r"did you mean 'method'\? - at `\$.methods\[0\]`"),
        ({"methods": [{"name": "x"}]}, "missing required field `method`"),
        ({"methods": [{"method": "pro2", "grid": {"ridge": 1}}]}, r"Expected `array`.* - at `\$.methods\[0\].grid"),
        ({"data": [{"name": "x", "table": "t"}]}, "exactly one of `domain` and `targets`, or `group` alone"),
        ({"data": [{"name": "x", "table": "t", "domain": "d"}]}, "has no `source`"),
        ({"data": [{"name": "x", "table": "t", "group": "g", "source": "a"}]}, "no `pool`"),
        ({"data": [{"name": "x"}]}, "exactly one of `table`"),
        ({"data": [{"name": "x", "table": "t", "grup": "g"}]}, "did you mean 'group'"),
        ({"data": [{"name": "a b", "generator": "shog"}]}, "a short name"),
        ({"name": "x" * 10_000}, "a short name"),
    ],
)
def test_mistakes_are_named(plan_values: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        parse_plan({**copy.deepcopy(plan_values), **change})
    assert len(str(raised.value)) < 400


def test_unknown_methods_and_parameters_are_found_before_running(plan_values: Any) -> None:
    for method, message in [
        ({"method": "pro3"}, "did you mean 'pro2'"),
        ({"method": "pro2", "params": {"rigde": 1}}, "did you mean 'ridge'"),
        ({"method": "ProjectAndProbe"}, "it is called 'pro2', with untuned = true"),
        ({"method": "pro2", "untuned": True, "params": {"nope": 1}}, "unknown parameter 'nope'"),
        ({"method": "pro2", "params": {"probe": "oracle"}}, "probe is 'oracle'; expected one of newton, adamw, knn"),
        ({"method": "pca", "grid": {"probe": ["knn", "svm"]}}, "probe is 'svm'"),
    ]:
        plan = parse_plan({**plan_values, "methods": [method], "baseline": None})
        with pytest.raises(ValueError, match=message):
            check_methods(plan.methods)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.toml", b"name = ", "not valid TOML"),
        ("deep.toml", b"a = " + b"[" * 20_000 + b"]" * 20_000, "not valid TOML"),
        ("binary.toml", b"\xff\xfe\x00", "not valid TOML"),
        ("keys.toml", b"a.b.c = 1", "unknown key 'a'"),
        ("plan.yaml", b"name: x", "is not a .toml file"),
    ],
)
def test_files_that_are_not_plans(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        find_plan(tmp_path / name)


def test_plans_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a file nor a preset; did you mean 'main'"):
        find_plan("mian")
    with pytest.raises(ValueError, match="neither a file nor a preset"):
        find_plan(tmp_path / "gone.toml")


def test_a_changed_plan_is_checked_again(plan_values: Any) -> None:
    plan = parse_plan(plan_values)
    assert change_plan(plan, seeds=[7], selection=None).seeds == (7,)
    assert change_plan(plan, seeds=2).seeds == (0, 1)
    with pytest.raises(ValueError, match="selection"):
        change_plan(plan, selection="best")


def test_the_plan_on_the_documentation_page_is_valid() -> None:
    import re

    page = Path(__file__).parents[3] / "docs" / "howto" / "experiments.md"
    text = re.search(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert text is not None
    plan = parse_plan(tomllib.loads(text[1]))
    check_methods(plan.methods)
    assert plan.selection == "support"


def test_a_plan_of_too_many_runs_is_refused(plan_values: Any, table_folder: Path) -> None:
    grid = {"ridge": [float(i) for i in range(1000)]}
    methods = [{"method": "pro2", "name": f"m{i}", "grid": grid} for i in range(20)]
    plan = parse_plan({**plan_values, "methods": methods, "baseline": None, "seeds": 100})
    with pytest.raises(ValueError, match="runs, at most 2000000 are done"):
        expand(plan, load_problems(plan.data, table_folder)[0])


@pytest.mark.parametrize("params", [{"n_features": 10**9}, {"n_source": 10**12}, {"n_target": 1.5}, {"n_sorce": 1}])
def test_generated_data_has_limits(params: dict[str, Any], tmp_path: Path) -> None:
    data = [{"name": "g", "generator": "shog", "params": params}]
    plan = parse_plan({"name": "x", "methods": ["pro2"], "data": data})
    with pytest.raises(ValueError, match=r"expected a whole number from 1 to|did you mean 'n_source'"):
        load_problems(plan.data, tmp_path)


def test_standard_data_may_be_named_and_changed() -> None:
    plan = parse_plan({"name": "x", "methods": ["pro2"], "data": ["collages", {"use": "celeba", "validation": 7}]})
    assert [(d.name, d.validation) for d in plan.data] == [("collages", None), ("celeba", 7)]
    built = parse_plan({"name": "x", "methods": ["pro2"], "data": ["celeba-1"]}).data[0]
    assert (built.name, built.table, built.label) == ("celeba-1", "celeba10k.npz", "Mouth_Slightly_Open")
    with pytest.raises(ValueError, match="did you mean 'celeba'"):
        parse_plan({"name": "x", "methods": ["pro2"], "data": ["celebra"]})


def test_a_suite_lists_plans(tmp_path: Path) -> None:
    suite = parse_plan({"name": "s", "title": "S", "plans": ["main", "shog"]})
    assert isinstance(suite, Suite)
    assert list(plans_of(suite)) == ["main", "shog"]
    for plans, message in (
        (["main", "main"], "two plans called 'main'"),
        (["claims"], "is a suite itself"),
        (["mian"], "did you mean"),
    ):
        with pytest.raises(ValueError, match=message):
            plans_of(parse_plan({"name": "s", "plans": plans}))
    for values in ({"name": "s", "plans": []}, {"name": "s", "plans": [3]}, {"name": "../s", "plans": ["main"]}):
        with pytest.raises(ValueError, match="Expected"):
            parse_plan(values)
