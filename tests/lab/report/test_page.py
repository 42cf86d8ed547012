"""The page a reader opens from disk: whole, told how settings were chosen, alive in a real browser."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pro2.lab.experiments import Plan, find_plan
from pro2.lab.report.figures import COLOURS, figure_style, looks, plot_lines, ranked_methods
from pro2.lab.report.tables import Results, Summary
from pro2.lab.report.write import write_report


@pytest.fixture(scope="module")
def page(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(finished, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def oracle_page(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By another rule, with a documentation folder beside it."""
    folder = tmp_path_factory.mktemp("oracle")
    return write_report(finished, folder / "page", "oracle", markdown=folder / "docs")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("main", ["pro2", "pro2-adamw", "random", "teney"]), ("multiclass", ["pro2", "random"])],
)
def test_heat_maps_show_each_form_of_pro2_and_a_random_projection(name: str, expected: list[str]) -> None:
    plan = find_plan(name)
    assert isinstance(plan, Plan)
    rows = [{"measure": "accuracy", "method": m.name, "n_features": None if "linear" in m.name or m.untuned else d}
            for m in plan.methods for d in (1, 4) if m.method not in ("source-only", "interpolation")]  # fmt: skip
    assert ranked_methods(Results(plan, pd.DataFrame(rows), Summary())) == expected


def test_each_figure_comes_as_png_svg_and_csv(page: Path) -> None:
    names = {p.stem for p in page.parent.glob("*.png")}
    assert names == {
        "overall", "accuracy-shog", "accuracy-own", "difference-shog", "difference-own", "dimension-shog",
        "dimension-own", "nullspace-shog", "nullspace-own", "bias-variance-shog", "bias-variance-own",
    }  # fmt: skip
    for name in names:
        assert (page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (page.parent / f"{name}.svg").read_text()
        with (page.parent / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 1


def test_the_page_needs_nothing_else(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert "@import" not in text
    assert "url(http" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)), "figures must not share ids"
    assert "A &lt;small&gt; check" in text


def test_the_page_says_how_settings_were_chosen_and_what_was_left_out(page: Path, oracle_page: Path) -> None:
    text = page.read_text()
    assert "by the few labels alone" in text
    assert "No other target label was used" in text
    assert "1000 shots + 6 validation" in text
    other = oracle_page.read_text()
    assert "the choice uses the test labels" in other
    assert "by test accuracy (oracle)" in other


def test_the_plan_on_the_page_keeps_its_lines(page: Path) -> None:
    shown = re.search(r"<h2>Plan</h2>\s*<pre>(.*?)</pre>", page.read_text(), re.DOTALL)
    assert shown is not None
    assert len(shown[1].splitlines()) > 10


def test_markdown_for_documentation(oracle_page: Path) -> None:
    docs = oracle_page.parents[1] / "docs"
    text = (docs / "check.md").read_text()
    assert "by test accuracy (oracle)" in text
    assert "Mean ± standard error over 4 seeds" in text
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(pictures) == 11
    assert all((docs / p).is_file() for p in pictures)
    table = [line for line in text.splitlines() if line.startswith("| far |")]
    assert len(table) == 3
    assert all("**" in line for line in table)
    assert json.loads((docs / "check" / "plan.json").read_text())["name"] == "check"


def test_known_methods_keep_their_colour_and_no_two_share_a_look() -> None:
    assert looks(["random", "pro2"])["pro2"] == looks(["pro2", "other"])["pro2"]
    many = looks([f"m{i}" for i in range(7)] + ["pro2"])
    assert len({(v["color"], v["linestyle"]) for v in many.values()}) == 8
    assert len(set(COLOURS)) == len(COLOURS)
    # figures of one page list the same methods in different orders
    assert looks(["source-only", "ridge", "pro2"]) == looks(["ridge", "pro2", "source-only"])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_legend_is_no_wider_than_its_figure(n: int) -> None:
    titles = {name: f"{name} with a name as long as people give" for name in "abcde"}
    rows = [
        {"target": str(i), "method": name, "shots": shots, "mean": 0.5, "standard_error": 0.1}
        for i in range(n) for name in titles for shots in (1, 2)
    ]  # fmt: skip
    with figure_style("test"):
        figure = plot_lines(pd.DataFrame(rows), titles, "target", "method")
        figure.draw_without_rendering()
    box, (wide, high) = figure.legends[0].get_window_extent(), figure.canvas.get_width_height()
    assert box.x0 >= 0
    assert box.x1 <= wide
    assert box.y1 <= high / 2


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no results\.parquet: run a sweep"):
        write_report(tmp_path)


@pytest.mark.slow
def test_interactive_parts_work_in_a_real_browser(page: Path, chromium: Any) -> None:
    tab, told = chromium.new_page(), []
    for event in ("console", "pageerror"):
        tab.on(event, lambda what: told.append(str(what)))
    tab.goto(page.as_uri())

    def shown(column: int) -> list[str]:
        cells = f"#results tbody tr:not([hidden]) td:nth-child({column + 1})"
        return tab.eval_on_selector_all(cells, "cells => cells.map(c => c.textContent)")

    n_rows = len(shown(3))
    tab.select_option(".filters select[data-column='3']", "Pro2")
    assert set(shown(3)) == {"Pro2"}
    assert len(shown(3)) < n_rows
    for falling in (False, True):
        tab.click("#results thead th:nth-child(5)")
        accuracies = [float(text) for text in shown(4)]
        assert accuracies == sorted(accuracies, reverse=falling)
    colour = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(colour)
    tab.click("#theme")
    assert tab.evaluate(colour) != before
    assert told == []


_SEEN = """svgs => svgs.map(s => [s.className.baseVal, s.getBoundingClientRect()]).filter(([_, r]) => r.width)
  .map(([name, r]) => [name, r.width, r.height])"""


@pytest.mark.slow
def test_panels_stack_on_a_narrow_screen(page: Path, chromium: Any) -> None:
    seen = {}
    for width in (360, 1100):
        tab = chromium.new_page(viewport={"width": width, "height": 800})
        tab.goto(page.as_uri())
        seen[width] = tab.eval_on_selector_all("figure svg", _SEEN)
        assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert len(seen[360]) == len(seen[1100]) == 11
    assert all(width <= 330 for _, width, _ in seen[360])
    stacked = [(tall, flat) for (kind, _, tall), (_, _, flat) in zip(seen[360], seen[1100]) if kind == "narrow"]
    # as tall as all panels together; a drawing whose panels were below each other already stays as it is
    assert sum(tall > 1.5 * flat for tall, flat in stacked) >= 5
    assert all(tall > 0.8 * flat for tall, flat in stacked)
