"""Accessibility: screen readers (axe-core), fingers, dark mode, small and very large screens."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pro2.label.model import Abstention
from pro2.label.session import Action

pytestmark = pytest.mark.slow

VIEWS = ("one", "grid", "labelled")
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core as npm installs it: `make browser` puts it below build/."""
    places = [Path(os.environ.get("PRO2_AXE", "")), REPOSITORY / "build" / "node_modules" / "axe-core" / "axe.min.js"]
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    pytest.skip("no axe-core; `make browser` installs it where npm is")


@pytest.fixture(scope="module")
def busy(serve_in, picture_pool, model, truth, tmp_path_factory):
    """A page with labels, doubts and figures: everything is on it that can be."""
    with serve_in(tmp_path_factory.mktemp("busy"))(picture_pool, model) as page:
        session = page.session
        for number in range(40):
            row = session.assigned("")[0]["row"]
            name = truth[row] if number % 9 else next(each for each in ("cat", "dog") if each != truth[row])
            session.act("", Action("label", f"key-{number:05d}", [row], name))
            session.refitter.wait()  # the same items and the same curve on a machine of any speed
        session.act("", Action("skip", "key-skip-1", [session.assigned("")[0]["row"]]))
        session.refitter.wait()
        yield page


def ready(found, view: str) -> None:
    found.page.wait_for_selector({"one": "#stage img", "grid": "#tiles img", "labelled": ".entry"}[view])
    found.wait("'ready' in document.body.dataset && !document.getElementById('interval').hidden")


def violations(found, axe: str) -> list[str]:
    """Through the debugger, as an extension would: the page itself takes no foreign script."""
    found.page.evaluate(f"{axe}; undefined")
    result = found.page.evaluate("axe.run(document)")
    assert len(result["passes"]) > 15
    return [f"{each['id']}: {[node['html'] for node in each['nodes']]}"[:300] for each in result["violations"]]


PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("options", [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE])
def test_no_violation_in_any_view_or_dialog(busy, tab, axe, options):
    found = tab(busy, **options)
    for view in VIEWS:
        found.view(view)
        ready(found, view)
        assert violations(found, axe) == [], view
    found.view("one")
    found.page.click("#more-like")
    found.page.wait_for_selector("#tiles img")
    found.page.locator("#tiles label").nth(1).click()
    assert violations(found, axe) == [], "more like this"
    found.page.fill("#grid-search", "doubt >")
    found.page.wait_for_selector("#tiles img", state="detached")
    assert violations(found, axe) == [], "search"
    found.page.fill("#grid-search", "")
    found.view("one")
    for opener in (
        ("zoom", "open-note", "open-new", "open-done")
        if options is PHONE
        else ("zoom", "open-note", "open-keys", "open-done")
    ):
        found.page.click(f"#{opener}")
        assert violations(found, axe) == [], opener
        found.key("Escape")


def test_label_sets_and_the_hint_of_an_outlier(serve, picture_pool, model, tab, axe):
    with serve(picture_pool, model) as page:
        session, n = page.session, len(picture_pool)
        names = [str(name) for name in session.fitted.names]

        def show(bits: list[bool], score: float) -> None:
            known = Abstention(names, np.packbits(np.tile(bits, (n, 1)), axis=1), np.full(n, score), 0)
            session.set_model(replace(session.fitted, top=np.zeros(n, np.int16), abstention=known))

        show([True, False, True], 0.99)
        for scheme in ("light", "dark"):
            found = tab(page, color_scheme=scheme)
            assert "cat or fox: right for 90% of items" in found.text("#guess")
            outlined = found.page.query_selector_all("button[data-possible] span:not([class])")
            assert [each.inner_text() for each in outlined] == ["cat", "fox", "None of these?"]
            assert found.text("#unlike") == "Unlike all labelled items"
            assert violations(found, axe) == []
        before = found.text("#guess")
        show([True, True, False], 0.1)
        found.informed()
        assert found.text("#guess") == before  # nothing changes while one looks
        found.key("2")
        assert "cat or dog: right" in found.text("#guess")
        assert found.text("#unlike") == ""
        found.settled()


SMALL = """
[...document.querySelectorAll("button, a, select, input, summary")].filter((each) => {
  const box = (each.closest("label") ?? each).getBoundingClientRect();
  const seen = each.checkVisibility() && box.width > 0 && !each.classList.contains("jump");
  return seen && (box.height < 32 || (box.height < 40 && !each.matches("summary")) || box.width < 40);
}).map((each) => each.outerHTML.slice(0, 120))
"""


def test_fingers_find_every_control(busy, tab):
    found = tab(busy, **PHONE)
    for view in VIEWS:
        found.page.tap(f"a[data-view={view}]")
        ready(found, view)
        assert found.page.evaluate(SMALL) == [], view
    found.page.tap("a[data-view=one]")
    row = found.row
    found.page.tap("#classes button[data-name=fox]")  # the click follows the touch later
    found.wait(lambda: row in busy.session.store.labels)
    assert busy.session.store.labels[row].label == "fox"
    found.page.tap("#undo")
    found.wait(lambda: row not in busy.session.store.labels)
    found.settled()


@pytest.mark.parametrize("size", [(360, 740), (768, 1024), (1280, 720), (1920, 1080), (3840, 2160)])
def test_nothing_overflows_and_the_item_is_in_sight(busy, tab, size):
    found = tab(busy, viewport={"width": size[0], "height": size[1]})
    for view in VIEWS:
        found.view(view)
        ready(found, view)
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    found.view("one")
    box = found.page.locator("#stage").bounding_box()
    assert box["height"] > 0.25 * size[1]
    assert box["y"] + box["height"] < size[1]
    if size[0] > 900:  # every class in reach without scrolling
        last = found.page.locator("#classes li").last.bounding_box()
        assert last["y"] + last["height"] < size[1]


def test_dark_and_light_follow_the_system(busy, tab):
    light = tab(busy, color_scheme="light").page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = tab(busy, color_scheme="dark").page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = [sum(map(int, colour[4:-1].split(","))) / 3 for colour in (light, dark)]
    assert brightness[0] > 230
    assert brightness[1] < 40


def test_what_a_screen_reader_gets(busy, tab):
    found = tab(busy)
    ready(found, "one")
    for line in ("navigation \"Views\"", "link \"One by one\"", "main", "list \"Classes\"", "button \"cat\"",
                 "complementary \"Accuracy and other figures\"",
                 "heading \"Accuracy\"", "button \"Done\""):  # fmt: skip
        found.wait(lambda line=line: line in found.page.locator("body").aria_snapshot())
    assert found.page.get_attribute("#guess", "aria-live") == "polite"
    assert found.page.get_attribute("a[data-view=one]", "aria-current") == "page"
    assert "Accuracy from" in (found.page.get_attribute("#chart", "aria-label") or "")


def test_the_page_asks_the_network_for_nothing_but_its_own_server(busy, tab):
    found = tab(busy)
    asked: list[str] = []
    found.page.on("request", lambda request: asked.append(request.url))
    found.page.reload()
    found.ready()
    for view in VIEWS:
        found.view(view)
        ready(found, view)
    assert len(asked) > 10
    assert {url.startswith(busy.url) for url in asked} == {True}
