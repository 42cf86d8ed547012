"""A report is safe against its data: names become neither paths nor markup, whatever they are."""

from __future__ import annotations

import csv
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import run_sweep
from pro2.lab.report.figures import figure_text, slug
from pro2.lab.report.write import markdown_text, write_report

XSS = "<script>alert(1)</script>"
NAMES = [XSS, "/../../../escaped", "..", "a/b", "C:\\x", "$\\frac{", "$x$", "=1+1", "*b* | `c`\n# d", "\u202ekcatta",
         "x" * 400]  # fmt: skip


@given(st.text(max_size=300))
def test_a_slug_is_one_plain_file_name(name: str) -> None:
    made = slug(name)
    assert re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9.+_-]*", made)
    assert len(made) <= 70
    assert ".." not in made.split("-")


@given(st.text(max_size=50), st.text(max_size=50))
def test_different_names_have_different_slugs(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)


def test_plain_names_stay_as_they_are() -> None:
    names = ["celeba-1", "accuracy-ResNet-50", "a.b_c+d"]
    assert [slug(name) for name in names] == names


@given(st.text(max_size=100))
def test_text_is_text(name: str) -> None:
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*<>\[\]$]", markdown_text(name))
    assert "\n" not in markdown_text(name) + figure_text(name)
    assert not re.search(r"(?<!\\)\$", figure_text(name))
    assert len(figure_text(name).replace("\\$", "$")) <= 60


def _sweep(folder: Path, names: list[str]) -> Path:
    """Results whose targets, titles and descriptions are hostile."""
    rng = np.random.default_rng(0)
    part = np.repeat(np.arange(len(names) + 1), 50)
    y = np.arange(len(part)) % 2
    X = rng.normal(size=(len(part), 4)).astype(np.float32) + y[:, None]
    np.savez(folder / "t.npz", embeddings=X, y=y, part=part)
    targets = {name: f"part == {i + 1}" for i, name in enumerate(names)}
    data = {"name": "t", "table": "t.npz", "source": "part == 0", "targets": targets}
    methods = [{"method": "pro2", "title": f"Pro2 {XSS} $\\frac{{"}, {"method": "linear-probe", "title": "| ` *"}]
    plan = parse_plan({"name": "hostile", "title": XSS, "description": f"````\n{XSS}", "shots": [2, 4], "seeds": 2,
                       "n_features": [1], "l2": [0.1], "methods": methods, "data": [data], "min_test": 5})  # fmt: skip
    assert run_sweep(plan, folder / "out", data=folder).n_failed == 0
    return folder / "out"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _sweep(tmp_path_factory.mktemp("hostile"), ["=1+1", XSS])


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_names_of_targets_and_methods_stay_text(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    results = _sweep(tmp_path_factory.mktemp("names"), NAMES)
    page = write_report(results, tmp_path / "deep" / "report", markdown=tmp_path / "deep" / "docs")
    text = page.read_text()
    tags = _Tags()
    tags.feed(text)
    assert tags.scripts == 1  # the page's own
    assert tags.handlers == []
    assert "alert(1)" in text  # shown, not run
    assert XSS not in text
    written = {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*")}
    assert written == {"deep"}
    markdown = (tmp_path / "deep" / "docs" / "hostile.md").read_text()
    before, plan = markdown.split("## Plan")
    assert XSS not in before
    # the fence of the plan is longer than any run of backticks in it, which then cannot close it
    assert plan.split()[0] == "`````json"
    assert plan.rstrip().endswith("\n`````")
    rows = [line for line in markdown.splitlines() if line.startswith("| ") and "labels per class" not in line]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_a_picture_is_named_by_its_target_and_stays_inside(tmp_path: Path) -> None:
    gaussians = {"name": "g", "generator": "shog", "params": {"n_features": 3, "n_source": 100, "n_target": 50}}
    values = {"name": "p", "measures": ["picture"], "seeds": [0], "n_features": [3], "methods": ["pro2"],
              "data": [gaussians]}  # fmt: skip
    run_sweep(parse_plan(values), tmp_path / "a" / "out")
    _forge(tmp_path / "a" / "out", "target", "/../../../escaped")
    page = write_report(tmp_path / "a" / "out", tmp_path / "a" / "report")
    assert {p.name for p in tmp_path.iterdir()} == {"a"}
    assert len(list(page.parent.glob("picture-*.png"))) == 1


def _forge(folder: Path, column: str, value: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "results.parquet")
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, column, pa.array([value] * len(table))), folder / "results.parquet")


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/x", "a b", "", 3, None])
def test_a_forged_plan_name_is_refused(hostile: Path, tmp_path: Path, name: object) -> None:
    folder = tmp_path / "a" / "b" / "forged"
    shutil.copytree(hostile, folder)
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "name": name}))
    with pytest.raises(ValueError, match=r"a short name of letters and digits|Expected `str`"):
        write_report(folder, markdown=tmp_path / "a" / "docs")
    assert {p.name for p in tmp_path.iterdir()} == {"a"}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("plan.json", "[]"), ("plan.json", "{"), ("plan.json", "[" * 100_000), ("plan.json", '{"name": "x"}'),
        ("summary.json", "3"), ("summary.json", "{"), ("summary.json", '{"runs": "many"}'),
        ("results.parquet", "PAR1"), ("results.parquet", ""),
    ],
)  # fmt: skip
def test_damaged_folders_are_told_in_one_error(hostile: Path, tmp_path: Path, file: str, content: str) -> None:
    shutil.copytree(hostile, tmp_path / "x")
    (tmp_path / "x" / file).write_text(content)
    with pytest.raises(ValueError, match=re.escape(file.split(".")[0])):
        write_report(tmp_path / "x")


@pytest.mark.parametrize("summary", [
    {},
    {"skips": [dict.fromkeys(("data", "target", "method", "reason"), XSS) | {"shots": 2}], "data": {XSS: {"rows": XSS}},
     "code_hash": XSS, "versions": {XSS: XSS}},
])  # fmt: skip
def test_a_strange_summary_spoils_nothing(hostile: Path, tmp_path: Path, summary: dict[str, object]) -> None:
    shutil.copytree(hostile, tmp_path / "x")
    (tmp_path / "x" / "summary.json").write_text(json.dumps(summary))
    page = write_report(tmp_path / "x", markdown=tmp_path / "docs")
    assert XSS not in page.read_text()


def test_columns_of_the_wrong_kind_are_no_results(hostile: Path, tmp_path: Path) -> None:
    shutil.copytree(hostile, tmp_path / "x")
    _forge(tmp_path / "x", "accuracy", "high")
    with pytest.raises(ValueError, match="damaged or not a results file"):
        write_report(tmp_path / "x")


def test_an_interrupted_report_leaves_the_old_page(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is old or new, never half; the page itself comes last. The same results give the same files."""
    page = write_report(hostile, tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr("pro2.lab.report.write.render", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(hostile, tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    monkeypatch.undo()
    assert write_report(hostile, tmp_path).read_bytes() == page.read_bytes() == before["index.html"]
    with (tmp_path / "results.csv").open() as file:
        assert any(row["target"].startswith("'=") for row in csv.DictReader(file))
