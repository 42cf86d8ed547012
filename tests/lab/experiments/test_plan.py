"""A plan file is checked before anything runs, and says exactly what is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from pro2.lab.experiments import Suite, find_plan, list_presets, load_plan, parse_plan, preset_text
from pro2.lab.experiments.methods import check_methods
from pro2.lab.experiments.parsing import override

PRESETS = ("ablation", "backbones", "baselines", "basis", "celeba-variants", "claims", "dimension", "main",
           "multiclass", "optimiser", "orthogonality", "picture", "probes", "scaling", "shog", "theorem")  # fmt: skip


def test_a_plan_survives_the_round_trip_to_plain_values(plan_values: dict[str, Any]) -> None:
    plan = parse_plan(plan_values)
    assert plan.seeds == (0, 1, 2)
    assert parse_plan(json.loads(json.dumps(plan.to_dict()))) == plan


def test_toml_and_yaml_give_the_same_plan(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    import tomllib

    (tmp_path / "plan.toml").write_text(preset_text("main"))
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(tomllib.loads(preset_text("main"))))
    assert load_plan(tmp_path / "plan.toml") == load_plan(tmp_path / "plan.yaml") == find_plan("main")


def test_every_preset_of_the_paper_is_there_and_valid() -> None:
    assert set(list_presets()) >= set(PRESETS)
    for name in list_presets():
        plan = find_plan(name)
        if isinstance(plan, Suite):
            assert set(plan.plans) == set(list_presets()) - {name}  # the suite is everything there is
        else:
            check_methods(plan.methods)
        assert plan.name == name
        assert plan.title
        assert plan.description


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seedz": 3}, "unknown key 'seedz'; did you mean 'seeds'"),
        ({"shots": [0]}, r"shots is \[0\]; expected whole numbers"),
        ({"shots": [2, 2]}, "each value once"),
        ({"l2": [0.0]}, "finite numbers above 0"),
        ({"l2": [float("nan")]}, "finite numbers above 0"),
        ({"n_features": ["most"]}, '"all"'),
        ({"seeds": 0}, "count of at least 1"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"selection": "validaton"}, "did you mean 'validation'"),
        ({"validation": 0}, "needs held-out rows"),
        ({"data": [{"name": "x", "generator": "shog", "validation": -1}]}, "rows per label, 0 or more"),
        ({"data": [{"name": "x", "generator": "shog", "validation": 0}]}, "needs held-out rows"),
        ({"baseline": "nobody"}, "one of the methods"),
        ({"methods": []}, "at least one"),
        ({"methods": [{"method": "pro2"}, {"method": "pro2"}]}, "named pro2 twice"),
        ({"methods": [{"methd": "pro2"}]}, "did you mean 'method'"),
        ({"methods": [{"name": "x"}]}, "has no `method`"),
        (
            {"data": [{"name": "x", "table": "t"}]},
            "exactly one of `domain` and `targets`, or `group` alone, found none",
        ),
        ({"data": [{"name": "x", "table": "t", "domain": "d"}]}, "has no `source`"),
        ({"data": [{"name": "x", "table": "t", "group": "g", "source": "a"}]}, "no `pool`"),
        ({"data": [{"name": "x"}]}, "exactly one of `table`"),
        ({"data": [{"name": "x", "table": "t", "grup": "g"}]}, "did you mean 'group'"),
        ({"data": [{"name": "a b", "generator": "shog"}]}, "a short name"),
        ({"measures": ["speed"]}, "'accuracy' or 'nullspace'"),
    ],
)
def test_mistakes_are_named(plan_values: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_plan({**copy.deepcopy(plan_values), **change})


def test_unknown_methods_and_parameters_are_found_before_running(plan_values: dict[str, Any]) -> None:
    for method, message in [
        ({"method": "pro3"}, "did you mean 'pro2'"),
        ({"method": "pro2", "params": {"rigde": 1}}, "did you mean 'ridge'"),
        ({"method": "ProjectAndProbe"}, "it is called 'pro2', with untuned = true"),
        ({"method": "pro2", "untuned": True, "params": {"nope": 1}}, "unknown parameter 'nope'"),
    ]:
        plan = parse_plan({**plan_values, "methods": [method], "baseline": None})
        with pytest.raises(ValueError, match=message):
            check_methods(plan.methods)


def test_plan_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = ")
    (tmp_path / "plan.txt").write_text("name: x")
    with pytest.raises(ValueError, match="not valid TOML"):
        load_plan(tmp_path / "bad.toml")
    with pytest.raises(ValueError, match=r"expected \.toml"):
        load_plan(tmp_path / "plan.txt")
    with pytest.raises(ValueError, match="neither a file nor a preset; did you mean 'main'"):
        find_plan("mian")


def test_override_checks_again(plan_values: dict[str, Any]) -> None:
    plan = parse_plan(plan_values)
    assert override(plan, seeds=(7,), selection=None).seeds == (7,)
    with pytest.raises(ValueError, match="selection"):
        override(plan, selection="best")


def test_the_plan_on_the_documentation_page_is_valid() -> None:
    import re
    import tomllib

    page = Path(__file__).parents[3] / "docs" / "howto" / "experiments.md"
    text = re.search(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert text is not None
    plan = parse_plan(tomllib.loads(text[1]))
    check_methods(plan.methods)
    assert plan.selection == "support"
