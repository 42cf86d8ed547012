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
from pro2.lab.experiments.presets import members
from pro2.lab.report.claims import CLAIMS

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
            assert set(plan.plans) == {claim.plan for claim in CLAIMS} | {"picture"}  # what reproduces the paper
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


class TestLimits:
    """A plan is a page of text: what is larger, deeper or longer is refused with the number, at once."""

    @pytest.mark.parametrize("seeds", [10**9, 10_001, list(range(10_001))])
    def test_seeds(self, plan_values: dict[str, Any], seeds: Any) -> None:
        with pytest.raises(ValueError, match="expected at most 10000 seeds"):
            parse_plan({**plan_values, "seeds": seeds})

    def test_runs(self, plan_values: dict[str, Any], table_folder: Path) -> None:
        from pro2.lab.experiments.expand import expand
        from pro2.lab.experiments.problems import load_problems

        grid = {"ridge": [float(i) for i in range(1000)]}
        methods = [{"method": "pro2", "name": f"m{i}", "grid": grid} for i in range(20)]
        plan = parse_plan({**plan_values, "methods": methods, "baseline": None, "seeds": 10_000})
        with pytest.raises(ValueError, match="runs, at most 2000000 are done"):
            expand(plan, load_problems(plan.data, table_folder)[0])

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("a.toml", "a." * 50_000 + "a = 1", r"bytes; at most 65536 are read"),
            ("b.toml", "a." * 20_000 + "a = 1", r"nested 20000 levels deep; at most 64"),
            ("c.toml", "[" + "a." * 20_000 + "a]\nb = 1", r"nested 20000 levels deep; at most 64"),
            ("d.toml", "\n".join(f"a{i} = 1" for i in range(5_000)), r"unknown key 'a0'"),
            ("e.toml", "a = " + "[" * 20_000 + "]" * 20_000, r"nested 20000 levels deep"),
            ("f.toml", "a = " + "[" * 50 + "]" * 50, r"unknown key 'a'"),
            ("g.toml", "seeds = [" + "1," * 25_000 + "]", r"at most 10000 seeds"),
            ("h.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]", r"uses a YAML alias"),
            ("i.yaml", "[" * 20_000 + "]" * 20_000, r"nested 20000 levels deep"),
            ("l.yaml", "- " * 20_000 + "x", r"nested 20000 levels deep"),
            ("j.yaml", "!!python/object/apply:os.system ['true']", r"not valid YAML"),
            ("k.yaml", "a: \x00", r"not valid YAML"),
        ],
    )
    def test_files(self, tmp_path: Path, name: str, text: str, message: str) -> None:
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            load_plan(tmp_path / name)

    def test_text_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ValueError, match="not UTF-8"):
            load_plan(tmp_path / "a.toml")

    def test_long_values_are_cut_in_messages(self, plan_values: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="a short name") as told:
            parse_plan({**plan_values, "name": "x" * 10_000})
        assert len(str(told.value)) < 400

    @pytest.mark.parametrize("params", [{"n_features": 10**9}, {"n_source": 10**12}, {"n_target": 1.5}])
    def test_made_data(self, params: dict[str, Any], tmp_path: Path) -> None:
        from pro2.lab.experiments.problems import load_problems

        plan = parse_plan(
            {"name": "x", "methods": ["pro2"], "data": [{"name": "g", "generator": "shog", "params": params}]}
        )
        with pytest.raises(ValueError, match="expected a whole number from 1 to"):
            load_problems(plan.data, tmp_path)


def test_standard_data_may_be_named_and_changed() -> None:
    plan = parse_plan({"name": "x", "methods": ["pro2"], "data": ["collages", {"use": "celeba", "validation": 7}]})
    assert [(d.name, d.validation) for d in plan.data] == [("collages", None), ("celeba", 7)]
    with pytest.raises(ValueError, match="did you mean 'celeba'"):
        parse_plan({"name": "x", "methods": ["pro2"], "data": ["celebra"]})


def test_a_suite_lists_plans(tmp_path: Path) -> None:
    suite = parse_plan({"name": "s", "title": "S", "plans": ["main", "shog"]})
    assert isinstance(suite, Suite)
    assert list(members(suite)) == ["main", "shog"]
    for plans, message in (
        (["main", "main"], "two plans called 'main'"),
        (["claims"], "is a suite itself"),
        (["mian"], "did you mean"),
    ):
        with pytest.raises(ValueError, match=message):
            members(parse_plan({"name": "s", "plans": plans}))
    for values in ({"name": "s", "plans": []}, {"name": "s", "plans": [3]}, {"name": "../s", "plans": ["main"]}):
        with pytest.raises(ValueError, match="expected"):
            parse_plan(values)
