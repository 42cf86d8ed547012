"""The page in a real browser: every key, undo across a restart, and what each view does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2 import EmbeddingTable
from pro2.label.pool import Pool
from pro2.label.session import Action, Settings

pytestmark = pytest.mark.slow

FOCUSED = "((at) => at.id || at.dataset.name || at.dataset.view || '')(document.activeElement)"


def rows_of(session, *arguments, **options) -> list[int]:
    return [item["row"] for item in session.grid("", *arguments, **options)["items"]]


def label_truthfully(found, truth: list[str], n: int) -> None:
    """Each label is learned before the next: the same items and the same curve on a machine of any speed."""
    for _ in range(n):
        found.press(str(["cat", "dog", "fox"].index(truth[found.row]) + 1))
        found.session.refitter.wait()


def test_digits_and_letters_label_and_the_next_item_is_there_at_once(open_tab):
    found = open_tab()
    assert found.page.locator("#classes kbd").all_inner_texts() == list("1c2d3f")
    given = {}
    for key, name in [("1", "cat"), ("2", "dog"), ("3", "fox"), ("c", "cat"), ("d", "dog"), ("f", "fox")]:
        given[found.row] = name
        before = found.shown
        found.key(key)
        assert found.shown != before  # without waiting for the server
        found.settled()
    assert found.labels == given


def test_enter_accepts_the_prediction_that_is_on_screen(open_tab):
    found = open_tab()
    clicked = found.row
    found.page.click("#classes button[data-name=fox]")
    found.settled()
    before = found.text("#guess")
    found.session.refitter.request()  # a refit that arrives while an item is shown leaves its prediction alone
    found.informed()
    assert found.text("#guess") == before
    for _ in range(3):
        row, guess = found.row, found.text("#guess b")
        found.press("Enter")  # the click is not repeated
        assert found.labels[row] == guess
    assert found.labels[clicked] == "fox"


def test_figures_from_before_the_last_action_change_nothing(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as server:
        found, held = tab(None), []
        old = server.session.figures("")
        found.page.route("**/api/figures?*", lambda route: held.append(route))
        found.open(server.url).press("1")
        server.session.refitter.wait()
        before = found.text("#n-labelled")
        found.wait(lambda: held)
        with found.page.expect_request("**/api/figures?*", timeout=120_000):  # it has read the answer and asks again
            held.pop().fulfill(json=old | {"classes": ["other"], "assigned": []})
        assert found.text("#n-labelled") == before
        assert found.page.locator("#classes button").count() == 3
        found.wait(lambda: held)
        held.pop().continue_()
        found.says("#n-labelled", "1")


def test_skip_undo_at_any_depth_and_undo_across_a_restart(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as server:
        found, seen = tab(server, quiet=False), []  # it will miss its server for a while
        for key in ("1", "s", "2", "3"):
            seen.append(found.shown)
            found.press(key)
        assert len(found.labels) == 3
        assert list(found.session.store.skipped) == [int(seen[1][6:9])]
        found.press("u")
        assert found.shown == seen[3]
        url = server.url
        found.page.close()
    with serve(picture_pool, model) as server:
        assert server.url == url
        found = tab(server)
        assert found.shown == seen[3]
        for name in reversed(seen[:3]):
            found.press("u")
            assert found.shown == name
        assert (found.labels, found.session.store.skipped) == ({}, {})
        found.key("u")
        found.says("#saved", "There is nothing to undo.")
        found.console.clear()  # the browser notes that the server refused


def test_n_makes_a_new_class_and_labels_the_item_with_it(open_tab):
    found = open_tab()
    row = found.row
    found.key("n")
    assert found.page.evaluate(FOCUSED) == "new-name"
    found.key(*"Cat", "Enter")
    message = found.page.evaluate("document.getElementById('new-name').validationMessage")
    assert message == "There is already a class “cat”."
    found.page.fill("#new-name", "wolf")
    found.press("Enter")
    assert found.labels == {row: "wolf"}
    found.says("#classes li:last-child button", "4wwolf")
    row = found.row
    found.press("4")
    assert found.labels[row] == "wolf"


def test_keys_in_a_field_are_text_and_keys_can_be_switched_off(open_tab):
    found = open_tab()
    found.key("n", *"sun 123", "Escape", "Control+1")
    found.page.click("#open-keys")
    found.key("1")
    found.page.click("#keys-on")
    found.key("Escape")
    found.number("dialog[open]", 0).key("1")
    row = found.row
    found.page.click("#classes button[data-name=dog]")  # arrives after everything that was sent before
    found.settled()
    assert found.labels == {row: "dog"}


def test_none_of_these_a_note_and_zoom(open_tab):
    found = open_tab()
    row, store = found.row, found.session.store
    found.key("t", *"two x")  # keys are text here
    found.page.click("#note-form button.strong")
    found.settled()
    assert store.notes == {row: "two x"}
    assert found.row == row
    assert "Note: two x" in found.text("#stage figcaption")
    found.key("z")
    found.wait("document.querySelector('#zoom-image img')?.width >= innerHeight")  # the drawn ones are small
    found.key("z").number("dialog[open]", 0)
    found.page.click("#stage img")
    found.number("#dialog-zoom[open]", 1).key("Escape").press("x")
    assert list(store.none) == [row]
    assert found.row != row
    found.informed()
    assert found.text("#progress") == "1 of 120 items"
    found.view("labelled").says(".entry .what", "Note: two x")
    assert found.text("#lists h3") == "None of these"
    found.page.select_option(".entry select", "dog")
    found.settled()
    assert found.labels == {row: "dog"}
    found.press("u", "u")
    assert (store.none, store.notes) == ({}, {row: "two x"})
    found.press("u")
    assert store.notes == {}


def test_everything_can_be_reached_and_used_by_tab_alone(open_tab):
    found = open_tab()
    order = [found.key("Tab").page.evaluate(FOCUSED) for _ in range(20)]
    wanted = ["one", "grid", "labelled", "open-keys", "open-done", "accept", "cat", "dog", "fox", "skip", "undo"]
    assert [each for each in order if each in wanted][: len(wanted)] == wanted
    row = found.row
    found.page.focus("#classes button[data-name=dog]")
    found.press("Enter")
    assert found.labels == {row: "dog"}


def test_many_classes_have_a_search(open_tab):
    species = [f"species {chr(97 + i // 5)}{i % 5}" for i in range(20)]
    found = open_tab(model=None, classes=[*(f"bad {i}" for i in range(9)), "dog", *species, "zebra"])
    buttons, stage = found.page.locator("#classes li:visible"), found.page.locator("#stage")
    # the class that Enter takes need not be the first: a name that begins with what is typed comes before one that
    # holds it
    for keys, n, name in (("z", 1, "zebra"), ("/es b3", 1, "species b3"), ("/d", 15, "dog")):
        row, place = found.row, stage.bounding_box()
        found.key(*keys)
        assert found.page.input_value("#find-class") == keys.removeprefix("/")
        assert buttons.count() == n
        assert found.page.locator("#classes [data-enter]").get_attribute("data-name") == name
        assert stage.bounding_box() == pytest.approx(place, abs=0.5)
        found.press("Enter")
        assert found.labels[row] == name
        assert found.page.locator("#classes [data-enter]").count() == 0
        assert buttons.count() == 31


def test_classes_that_are_digits_have_themselves_as_keys(open_tab):
    found = open_tab(model=None, classes=["0", "1", "8"])
    for key in ("8", "0", "1"):
        row = found.row
        found.press(key)
        assert found.labels[row] == key


def test_before_the_first_model_there_is_nothing_to_expect(open_tab):
    found = open_tab(model=None, classes=["cat", "dog"]).number("#shares .value", 2)
    assert found.page.locator("#shares .value").all_text_contents() == ["0 labels", "0 labels"]
    found.view("grid").says("#grid-note", "No unlabelled item")
    for i, name in enumerate(("cat", "dog")):  # in another window: the grid fills with the first model
        found.session.act("", Action("label", f"key-{i:05d}", [i], name))
    found.page.wait_for_selector("#tiles img")


def test_figures_follow_every_label(open_tab, truth):
    found = open_tab().says("#accuracy", "Not measured yet")
    label_truthfully(found, truth, 36)
    found.informed()
    figures = found.session.figures("")
    assert found.text("#n-labelled") == "36"
    assert found.text("#advice") == figures["advice"]["text"]
    now = figures["accuracy"]  # from fewer than 20 random items: the interval in place of a number
    assert found.text("#accuracy") == f"{round(100 * now['low'])} to {round(100 * now['high'])}%"
    assert found.text("#range") == f"95% interval from {now['n']} random items"
    assert found.page.is_hidden("#interval b")
    assert "a random sample only" in found.text("#basis")
    assert found.page.locator("#shares li").count() == 3
    assert found.page.locator("#chart polyline").count() == 1


def asks_for(found, name: str) -> None:
    """Until the grid shows what is predicted to be of a class."""
    found.wait(f"document.querySelector('#tiles input')?.ariaLabel.endsWith('not {name}')")


def test_a_grid_confirms_what_is_not_marked(open_tab):
    found = open_tab(view="#grid")
    asks_for(found, "cat")
    found.page.locator("#tiles label").nth(0).click()
    found.page.evaluate("window.before = document.querySelector('#tiles input')")
    found.page.dispatch_event("#grid-class", "change")  # what choosing the same class again does
    found.wait("!window.before.isConnected")
    assert found.page.locator("#tiles input:checked").count() == 1  # marks are kept
    found.page.select_option("#grid-class", "dog")
    asks_for(found, "dog")
    rows = found.tiles
    assert rows == rows_of(found.session, "dog", "doubtful")
    found.page.locator("#tiles label").nth(1).click()
    found.key("ArrowRight", " ")
    assert "2 marked" in found.text("#confirm-note")
    found.press("Enter")
    assert found.labels == {row: "dog" for row in rows if row not in rows[1:3]}
    found.wait("document.body.dataset.view === 'one'")
    for key in ("1", "3"):  # the marked items come first, then the grid again
        assert found.row in rows[1:3]
        found.press(key)
    found.wait("document.body.dataset.view === 'grid'")
    assert {found.labels[row] for row in rows[1:3]} == {"cat", "fox"}
    found.press("u", "u", "u")
    assert found.labels == {}
    found.informed()  # what is certain follows the labels, and these have just gone
    found.page.select_option("#grid-order", "certain")
    certain = rows_of(found.session, "dog", "certain")
    found.wait(lambda: found.tiles == certain)


def test_a_grid_labels_what_is_on_screen_however_late_answers_come(open_tab):
    found, late = open_tab(), []
    found.page.route("**/api/grid?*label=cat*", lambda route: late.append(route))
    found.page.goto(found.server.url + "#grid")
    found.page.select_option("#grid-class", "dog")
    asks_for(found, "dog")
    dogs = rows_of(found.session, "dog", "doubtful")
    found.wait(lambda: late)
    late[0].continue_()  # the class of before answers last
    found.page.select_option("#grid-class", "fox")
    asks_for(found, "fox")
    found.page.route("**/api/grid?*label=dog*", lambda route: late.append(route))
    found.page.select_option("#grid-class", "dog")  # asked for, not there yet
    foxes = found.tiles
    assert foxes == rows_of(found.session, "fox", "doubtful")
    found.page.click("#confirm")
    found.settled()
    assert found.labels == dict.fromkeys(foxes, "fox")
    assert not set(dogs) & set(foxes)


def test_more_like_this_labels_what_a_person_selected(open_tab):
    found = open_tab()
    row, guess = found.row, found.text("#guess b")
    found.key("m")
    alike = rows_of(found.session, guess, "doubtful", like=row)
    found.wait(lambda: found.tiles == alike)
    assert found.page.input_value("#grid-class") == guess
    assert found.text("#grid-like").startswith(f"Like photo-{row:03d}.png")
    found.page.locator("#tiles label").nth(3).click()
    assert found.text("#confirm-note") == "1 marked: it stays without a label."
    found.press("Enter")
    assert found.labels == {each: guess for each in alike if each != alike[3]}
    assert {found.session.store.draw_of(each) for each in found.labels} == {"selected"}
    found.wait(lambda: found.tiles[:1] == [alike[3]])  # the nearest of what is left
    assert found.page.locator("#tiles input:checked").count() == 1
    found.press("u")
    assert found.labels == {}
    found.wait(lambda: found.tiles[:1] == [alike[0]])  # the grid was loaded again
    found.key("a").number("#tiles input:checked", 24)
    assert found.text("#mark-all span") == "Mark none"
    found.page.click("#grid-like")
    found.says("#grid-note", "predicted to be")
    assert found.page.is_hidden("#grid-like")


def test_more_like_a_labelled_item_and_like_a_tile(open_tab):
    found = open_tab()
    row = found.row
    found.press("3").view("labelled").page.click(f".entry[data-row='{row}'] .like")
    alike = rows_of(found.session, "fox", "doubtful", like=row)
    found.wait(lambda: found.tiles == alike)
    assert found.page.input_value("#grid-class") == "fox"
    found.key("ArrowRight", "m").says("#grid-like", f"photo-{alike[0]:03d}")
    found.wait(lambda: found.tiles[:1] == [alike[0]])  # nothing is more like it


def test_a_search_of_all_items_is_a_grid(open_tab):
    found, query = open_tab(view="#grid"), 'camera == 1 and predicted == "dog"'
    found.key("/")
    assert found.page.evaluate(FOCUSED) == "grid-search"
    found.page.fill("#grid-search", "camera ==")
    found.says("#grid-note", "camera ==").number("#tiles input", 0)
    found.page.fill("#grid-search", query)
    wanted = rows_of(found.session, "cat", "doubtful", query)
    found.wait(lambda: found.tiles == wanted)
    assert "found" in found.text("#grid-note")
    found.page.select_option("#grid-class", "dog")
    asks_for(found, "dog")
    found.page.click("#confirm")
    found.settled()
    assert found.labels == dict.fromkeys(wanted, "dog")
    assert found.session.sample() == []


def test_labelled_items_are_searched_and_corrected_with_one_click(open_tab, truth):
    found = open_tab()
    label_truthfully(found, truth, 24)
    row = found.row
    wrong = next(name for name in ("cat", "dog", "fox") if name not in (truth[row], found.text("#guess b")))
    found.page.click(f"#classes button[data-name={wrong}]")
    found.settled().session.refitter.wait()
    found.view("labelled").number(".entry", 25)
    first = found.session.listing("", 0)["items"][0]
    assert first["doubt"] > 0
    entry = found.page.locator(".entry").first
    assert entry.get_attribute("data-row") == str(first["row"])
    entry.locator("button:not(.like)").click()
    found.settled()
    assert found.labels[first["row"]] == first["alternative"]
    found.key("Escape")
    found.page.fill("#search", f"photo-{row:03d}")
    found.number(".entry", 1).page.select_option(".entry select", truth[row])
    found.settled()
    assert found.labels[row] == truth[row]


def test_done_writes_the_files_and_names_them(open_tab, tmp_path: Path):
    found = open_tab().press("1", "2", "3")
    found.page.click("#open-done")
    found.page.click("#done-write")
    found.page.wait_for_selector(".files li")
    named = found.page.locator(".files code").all_inner_texts()
    assert "folder session" in found.text("#done-result")
    assert {"adapted.safetensors", "labels.csv", "predictions.csv"} <= set(named)
    assert all((tmp_path / "session" / name).is_file() for name in named)


MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;"


def test_markup_in_names_labels_and_text_appears_as_text(serve, tab):
    X = np.random.default_rng(0).normal(size=(20, 12)).astype(np.float32)
    columns = {"body": [f"{MARKUP} {i}" for i in range(20)], MARKUP: [MARKUP] * 20}
    pool = Pool(EmbeddingTable(X, [f"{MARKUP}{i}" for i in range(20)], columns), text="body", title=MARKUP)
    with serve(pool, None, classes=["<b>bold</b>", "plain"], settings=Settings(annotators=(MARKUP, "ben"))) as server:
        found = tab(server, "ben")
        assert MARKUP in found.text("#stage .text")
        assert found.text("#stage dt") == MARKUP
        assert found.text("#title") == MARKUP
        assert "<b>bold</b>" in found.text("#classes")
        found.press("1", "2").informed()  # without a model the grid is empty
        for view, content in (("grid", "#tiles li"), ("labelled", ".entry")):
            found.view(view).page.wait_for_selector(content)
        assert MARKUP in found.text(".entry .what")
        assert found.page.locator("#classes b, main script, main img").count() == 0


def test_a_table_shows_its_columns_until_everything_is_labelled(open_tab):
    X = np.random.default_rng(0).normal(size=(5, 4)).astype("f4")
    found = open_tab(
        Pool(EmbeddingTable(X, columns={"stars": np.arange(5), "shop": ["A"] * 5})), None, classes=["a", "b"]
    )
    assert found.page.locator("#stage dt").all_inner_texts() == ["stars", "shop"]
    found.press("1", "2", "1", "2", "s")
    assert len(found.labels) == 4
    assert "Every item is labelled or skipped." in found.text("#stage")
    found.press("u")
    assert found.page.locator("#stage dt").count() == 2
