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


def labels(page) -> dict[int, str]:
    return {row: answer.label for row, answer in page.session.store.labels.items()}


def test_digits_and_letters_label_and_the_next_item_is_there_at_once(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        assert [each.inner_text() for each in found.page.query_selector_all("#classes kbd")] == list("1c2d3f")
        given = {}
        for key, name in [("1", "cat"), ("2", "dog"), ("3", "fox"), ("c", "cat"), ("d", "dog"), ("f", "fox")]:
            given[found.row] = name
            before = found.shown
            found.key(key)
            assert found.shown != before  # without waiting for the server
            found.settled()
        assert labels(page) == given


def test_enter_accepts_the_guess_that_is_on_screen(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        for _ in range(3):
            row, guess = found.row, found.text("#guess b")
            found.press("Enter")
            assert labels(page)[row] == guess


def test_the_guess_on_screen_does_not_change_under_the_finger(serve, picture_pool, model, tab):
    """A refit that arrives while an item is shown leaves its guess alone: Enter means what one reads."""
    with serve(picture_pool, model) as page:
        found = tab(page.url).press("1", "2")
        before = found.text("#guess")
        page.session.refitter.request()
        found.informed(page)
        assert found.text("#guess") == before


def test_figures_from_before_the_last_action_change_nothing(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found, held = tab(None), []
        old = page.session.figures("")
        found.page.route("**/api/figures?*", lambda route: held.append(route))
        found.open(page.url).press("1")
        page.session.refitter.wait()
        before = found.text("#n-labelled")
        found.wait(lambda: held)
        with found.page.expect_request("**/api/figures?*", timeout=120_000):  # it has read the answer and asks again
            held.pop().fulfill(json=old | {"classes": ["other"], "assigned": []})
        assert found.text("#n-labelled") == before
        assert found.page.locator("#classes button").count() == 3
        found.wait(lambda: held)
        held.pop().continue_()
        found.wait("document.getElementById('n-labelled').textContent === '1'")


def test_skip_undo_at_any_depth_and_undo_across_a_restart(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url, quiet=False)  # it will miss its server for a while
        seen = []
        for key in ("1", "s", "2", "3"):
            seen.append(found.shown)
            found.press(key)
        assert len(labels(page)) == 3
        assert list(page.session.store.skipped) == [int(seen[1][6:9])]
        found.press("u")
        assert found.shown == seen[3]
        url = page.url
        found.page.close()
    with serve(picture_pool, model) as page:
        assert page.url == url
        found = tab(page.url)
        assert found.shown == seen[3]
        for name in reversed(seen[:3]):
            found.press("u")
            assert found.shown == name
        assert labels(page) == {}
        assert list(page.session.store.skipped) == []
        found.key("u")
        found.wait("document.getElementById('saved').textContent === 'There is nothing to undo.'")
        found.console.clear()  # the browser notes that the server refused


def test_n_makes_a_new_class_and_labels_the_item_with_it(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        row = found.row
        found.key("n")
        assert found.page.evaluate("document.activeElement.id") == "new-name"
        found.key(*"Cat")
        found.key("Enter")
        assert "There is already a class “cat”." in found.text("#new-problem")
        found.page.fill("#new-name", "wolf")
        found.key("Enter")
        found.settled()
        assert labels(page) == {row: "wolf"}
        found.wait("document.querySelector('#classes li:last-child button').textContent === '4wwolf'")
        row = found.row
        found.press("4")
        assert labels(page)[row] == "wolf"


def test_keys_in_a_field_are_text_and_keys_can_be_switched_off(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        found.key("n")
        found.key(*"sun 123")
        found.key("Escape")
        found.key("Control+1")
        found.page.click("#open-keys")
        found.key("1")
        found.page.click("#keys-on")
        found.key("Escape")
        found.wait("!document.querySelector('dialog[open]')")
        found.key("1")
        row = found.row
        found.page.click("#classes button[data-name=dog]")  # arrives after everything that was sent before
        found.settled()
        assert labels(page) == {row: "dog"}


def test_none_of_these_a_note_and_zoom(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        row = found.row
        found.key("t")
        found.key(*"two x")  # keys are text here
        found.page.click("#note-form button.strong")
        found.settled()
        assert page.session.store.notes == {row: "two x"}
        assert found.row == row
        assert "Note: two x" in found.text("#stage figcaption")
        found.key("z")
        found.wait("document.querySelector('#zoom-image img')?.width >= innerHeight")  # the drawn ones are small
        found.key("z")
        found.wait("!document.getElementById('dialog-zoom').open")
        found.page.click("#stage img")
        found.wait("document.getElementById('dialog-zoom').open")
        found.key("Escape")
        found.press("x")
        assert list(page.session.store.none) == [row]
        assert found.row != row
        found.informed(page)
        assert found.text("#progress") == "1 of 120 items"
        found.view("labelled")
        found.wait("document.querySelector('.entry .what')?.textContent.includes('Note: two x')")
        assert found.text("#lists h3") == "None of these"
        found.page.select_option(".entry select", "dog")
        found.settled()
        assert labels(page) == {row: "dog"}
        found.press("u", "u")
        assert not page.session.store.none
        assert page.session.store.notes == {row: "two x"}
        found.press("u")
        assert page.session.store.notes == {}


def test_clicking_and_then_enter_does_not_repeat_the_click(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        first = found.row
        found.page.click("#classes button[data-name=fox]")
        found.settled()
        second, guess = found.row, found.text("#guess b")
        found.press("Enter")
        assert labels(page) == {first: "fox", second: guess}


def test_everything_can_be_reached_and_used_by_tab_alone(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        order = []
        for _ in range(20):
            found.key("Tab")
            order.append(found.page.evaluate(FOCUSED))
        wanted = ["one", "grid", "labelled", "open-keys", "open-done", "accept", "cat", "dog", "fox", "skip", "undo"]
        assert [each for each in order if each in wanted][: len(wanted)] == wanted
        row = found.row
        found.page.focus("#classes button[data-name=dog]")
        found.key("Enter")
        found.settled()
        assert labels(page) == {row: "dog"}


def test_many_classes_have_a_search(serve, picture_pool, tab):
    names = [f"species {chr(97 + i // 5)}{i % 5}" for i in range(30)] + ["zebra"]
    with serve(picture_pool, None, classes=names) as page:
        found = tab(page.url)
        row = found.row
        found.key("z")
        assert found.page.input_value("#find-class") == "z"
        found.key("Enter")
        found.settled()
        assert labels(page) == {row: "zebra"}
        row = found.row
        found.key("/")
        found.key(*"es b3")
        assert found.page.locator("#classes li:visible").count() == 1
        found.key("Enter")
        found.settled()
        assert labels(page)[row] == "species b3"
        assert found.page.locator("#classes li:visible").count() == 31


def test_the_class_that_enter_takes_is_marked(serve, picture_pool, tab):
    """It need not be the first on screen: a name that begins with what is typed comes before one that holds it."""
    with serve(picture_pool, None, classes=[*(f"bad {i}" for i in range(9)), "dog"]) as page:
        found = tab(page.url)
        row, top = found.row, found.page.locator("#stage").bounding_box()
        found.key("/")
        found.key(*"d")
        assert found.page.locator("#classes [data-enter]").all_inner_texts() == [
            found.page.inner_text("[data-name=dog]")
        ]
        assert found.page.locator("#stage").bounding_box() == top
        found.key("Enter")
        found.settled()
        assert labels(page) == {row: "dog"}
        assert found.page.locator("#classes [data-enter]").count() == 0


def test_classes_that_are_digits_have_themselves_as_keys(serve, picture_pool, tab):
    with serve(picture_pool, None, classes=["0", "1", "8"]) as page:
        found = tab(page.url)
        for key in ("8", "0", "1"):
            row = found.row
            found.press(key)
            assert labels(page)[row] == key


def test_before_the_first_model_there_is_nothing_to_expect(serve, picture_pool, tab):
    with serve(picture_pool, None, classes=["cat", "dog"]) as page:
        found = tab(page.url)
        found.wait("document.querySelectorAll('#shares .value').length === 2")
        assert found.page.locator("#shares .value").all_text_contents() == ["0 labels", "0 labels"]
        found.view("grid")
        found.wait("document.getElementById('grid-note').textContent.startsWith('No unlabelled item')")
        for i, name in enumerate(("cat", "dog")):  # in another window: the grid fills with the first model
            page.session.act("", Action("label", f"key-{i:05d}", [i], name))
        found.page.wait_for_selector("#tiles img")


def test_figures_follow_every_label(serve, picture_pool, model, truth, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        found.wait("document.getElementById('accuracy').textContent === 'Not measured yet'")
        for _ in range(36):
            found.press(str(["cat", "dog", "fox"].index(truth[found.row]) + 1))
            page.session.refitter.wait()  # the same items and the same curve on a machine of any speed
        found.informed(page)
        figures = page.session.figures("")
        assert found.text("#n-labelled") == "36"
        assert found.text("#advice") == figures["advice"]["text"]
        now = figures["accuracy"]  # from fewer than 20 random items: the interval in place of a number
        shown = f"{round(100 * now['low'])} to {round(100 * now['high'])}%"
        assert found.text("#accuracy") == shown
        assert found.text("#range") == f"95% interval from {now['n']} random items"
        assert found.page.is_hidden("#interval b")
        assert "a random sample only" in found.text("#basis")
        assert found.page.locator("#shares li").count() == 3
        assert found.page.locator("#chart polyline").count() == 1


def test_a_grid_confirms_what_is_not_marked(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url + "#grid")
        found.page.select_option("#grid-class", "dog")
        found.wait("document.querySelector('#tiles input')?.ariaLabel.endsWith('not dog')")
        rows = [int(box.input_value()) for box in found.page.query_selector_all("#tiles input")]
        assert rows == [item["row"] for item in page.session.grid("", "dog", "doubtful")["items"]]
        found.page.locator("#tiles label").nth(1).click()
        found.key("ArrowRight")
        found.key(" ")
        assert "2 marked" in found.text("#confirm-note")
        found.press("Enter")
        assert labels(page) == {row: "dog" for row in rows if row not in rows[1:3]}
        found.wait("document.body.dataset.view === 'one'")
        for key in ("1", "3"):  # the marked items come first, then the grid again
            assert found.row in rows[1:3]
            found.press(key)
        found.wait("document.body.dataset.view === 'grid'")
        assert {labels(page)[row] for row in rows[1:3]} == {"cat", "fox"}
        found.press("u", "u", "u")
        assert labels(page) == {}
        found.informed(page)  # what is certain follows the labels, and these have just gone
        found.page.select_option("#grid-order", "certain")
        certain = page.session.grid("", "dog", "certain")["items"]
        found.wait(f"document.querySelector('#tiles input')?.value === '{certain[0]['row']}'")


def test_a_grid_that_is_loaded_again_keeps_its_marks(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url + "#grid")
        found.wait("document.querySelector('#tiles input')?.ariaLabel.endsWith('not cat')")
        found.page.locator("#tiles label").nth(0).click()
        found.page.evaluate("window.before = document.querySelector('#tiles input')")
        found.page.dispatch_event("#grid-class", "change")  # what choosing the same class again does
        found.wait("!window.before.isConnected")
        assert found.page.locator("#tiles input:checked").count() == 1


def test_a_grid_labels_what_is_on_screen_however_late_answers_come(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found, late = tab(page.url), []
        found.page.route("**/api/grid?*label=cat*", lambda route: late.append(route))
        found.page.goto(page.url + "#grid")
        found.page.select_option("#grid-class", "dog")
        found.wait("document.querySelector('#tiles input')?.ariaLabel.endsWith('not dog')")
        dogs = [item["row"] for item in page.session.grid("", "dog", "doubtful")["items"]]
        found.wait(lambda: late)
        late[0].continue_()  # the class of before answers last
        found.page.select_option("#grid-class", "fox")
        found.wait("document.querySelector('#tiles input')?.ariaLabel.endsWith('not fox')")
        found.page.route("**/api/grid?*label=dog*", lambda route: late.append(route))
        found.page.select_option("#grid-class", "dog")  # asked for, not there yet
        foxes = [int(box.input_value()) for box in found.page.query_selector_all("#tiles input")]
        assert foxes == [item["row"] for item in page.session.grid("", "fox", "doubtful")["items"]]
        found.page.click("#confirm")
        found.settled()
        assert labels(page) == dict.fromkeys(foxes, "fox")
        assert not set(dogs) & set(foxes)


def tiles(found) -> list[int]:
    return [int(box.input_value()) for box in found.page.query_selector_all("#tiles input")]


def test_more_like_this_labels_what_a_person_selected(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        row, guess = found.row, found.text("#guess b")
        found.key("m")
        found.wait("document.querySelector('#tiles input') !== null")
        alike = [item["row"] for item in page.session.grid("", guess, "doubtful", like=row)["items"]]
        assert tiles(found) == alike
        assert found.page.input_value("#grid-class") == guess
        assert found.text("#grid-like").startswith(f"Like photo-{row:03d}.png")
        found.page.locator("#tiles label").nth(3).click()
        assert found.text("#confirm-note") == "1 marked: it stays without a label."
        found.press("Enter")
        assert labels(page) == {each: guess for each in alike if each != alike[3]}
        assert {page.session.store.draw_of(each) for each in labels(page)} == {"selected"}
        found.wait(f"document.querySelector('#tiles input')?.value === '{alike[3]}'")  # the nearest of what is left
        assert found.page.locator("#tiles input:checked").count() == 1
        found.press("u")
        assert labels(page) == {}
        found.wait(f"document.querySelector('#tiles input')?.value === '{alike[0]}'")  # the grid was loaded again
        found.key("a")
        found.wait("document.querySelectorAll('#tiles input:checked').length === 24")
        assert found.text("#mark-all span") == "Mark none"
        found.page.click("#grid-like")
        found.wait("document.getElementById('grid-note').textContent.includes('predicted to be')")
        assert found.page.is_hidden("#grid-like")


def test_more_like_a_labelled_item_and_like_a_tile(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        row = found.row
        found.press("3").view("labelled")
        found.page.click(f".entry[data-row='{row}'] .like")
        found.wait("document.querySelector('#tiles input') !== null")
        assert found.page.input_value("#grid-class") == "fox"
        alike = tiles(found)
        assert alike == [item["row"] for item in page.session.grid("", "fox", "doubtful", like=row)["items"]]
        found.key("ArrowRight")
        found.key("m")
        found.wait(f"document.getElementById('grid-like').textContent.includes('photo-{alike[0]:03d}')")
        found.wait(f"document.querySelector('#tiles input')?.value === '{alike[0]}'")  # nothing is more like it


def test_a_search_of_all_items_is_a_grid(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url + "#grid")
        found.key("/")
        assert found.page.evaluate("document.activeElement.id") == "grid-search"
        found.page.fill("#grid-search", "camera ==")
        found.wait("document.querySelectorAll('#tiles input').length === 0")
        found.wait("document.getElementById('grid-note').textContent.includes('camera ==')")
        found.page.fill("#grid-search", 'camera == 1 and predicted == "dog"')
        found.wait("document.getElementById('grid-note').textContent.includes('found')")
        wanted = page.session.grid("", "cat", "doubtful", 'camera == 1 and predicted == "dog"')["items"]
        found.wait("document.querySelectorAll('#tiles input').length > 0")
        assert tiles(found) == [item["row"] for item in wanted]
        found.page.select_option("#grid-class", "dog")
        found.wait("document.querySelector('#tiles input')?.ariaLabel.endsWith('not dog')")
        found.page.click("#confirm")
        found.settled()
        assert labels(page) == {item["row"]: "dog" for item in wanted}
        assert page.session.sample() == []


def test_labelled_items_are_searched_and_corrected_with_one_click(serve, picture_pool, model, truth, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url)
        for _ in range(24):
            found.press(str(["cat", "dog", "fox"].index(truth[found.row]) + 1))
            page.session.refitter.wait()  # what is shown next follows the fit: the same items on a machine of any speed
        row = found.row
        wrong = next(name for name in ("cat", "dog", "fox") if name not in (truth[row], found.text("#guess b")))
        found.page.click(f"#classes button[data-name={wrong}]")
        found.settled()
        page.session.refitter.wait()
        found.view("labelled")
        found.wait("document.querySelectorAll('.entry').length === 25")
        first = page.session.listing("", 0)["items"][0]
        assert first["doubt"] > 0
        entry = found.page.locator(".entry").first
        assert entry.get_attribute("data-row") == str(first["row"])
        entry.locator("button:not(.like)").click()
        found.settled()
        assert labels(page)[first["row"]] == first["alternative"]
        found.key("Escape")
        found.page.fill("#search", f"photo-{row:03d}")
        found.wait("document.querySelectorAll('.entry').length === 1")
        found.page.select_option(".entry select", truth[row])
        found.settled()
        assert labels(page)[row] == truth[row]


def test_done_writes_the_files_and_names_them(serve, picture_pool, model, tab, tmp_path: Path):
    with serve(picture_pool, model) as page:
        found = tab(page.url).press("1", "2", "3")
        found.page.click("#open-done")
        found.page.click("#done-write")
        found.page.wait_for_selector(".files li")
        named = [each.inner_text() for each in found.page.query_selector_all(".files code")]
        assert "folder session" in found.text("#done-result")
    assert {"adapted.safetensors", "labels.csv", "predictions.csv"} <= set(named)
    assert all((tmp_path / "session" / name).is_file() for name in named)


MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;"


def test_markup_in_names_labels_and_text_appears_as_text(serve, tab):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 12)).astype(np.float32)
    columns = {"body": [f"{MARKUP} {i}" for i in range(20)], MARKUP: [MARKUP] * 20}
    pool = Pool(EmbeddingTable(X, [f"{MARKUP}{i}" for i in range(20)], columns), text="body", title=MARKUP)
    with serve(pool, None, classes=["<b>bold</b>", "plain"], settings=Settings(annotators=(MARKUP, "ben"))) as page:
        found = tab(page.url_for("ben"))
        assert MARKUP in found.text("#stage .text")
        assert found.text("#stage dt") == MARKUP
        assert found.text("#title") == MARKUP
        assert "<b>bold</b>" in found.text("#classes")
        found.press("1", "2").informed(page)  # without a model the grid is empty
        for view, content in (("grid", "#tiles li"), ("labelled", ".entry")):
            found.view(view)
            found.page.wait_for_selector(content)
        assert MARKUP in found.text(".entry .what")
        assert found.page.locator("#classes b, main script, main img").count() == 0


def test_text_rows_and_tables_show_their_columns(serve, tab):
    rng = np.random.default_rng(0)
    table = EmbeddingTable(rng.normal(size=(9, 4)).astype("f4"), columns={"stars": np.arange(9), "shop": ["A"] * 9})
    with serve(Pool(table), None, classes=["good", "bad"]) as page:
        found = tab(page.url)
        assert found.page.locator("#stage dt").all_inner_texts() == ["stars", "shop"]
        found.press("1", "2", "1", "2")
        assert len(labels(page)) == 4


def test_when_everything_is_labelled_the_page_says_so(serve, table, truth, tab):
    with serve(Pool(table.head(5)), None, classes=["cat", "dog", "fox"]) as page:
        found = tab(page.url).press("1", "2", "3", "1", "s")
        assert "Every item is labelled or skipped." in found.text("#stage")
        found.press("u")
        assert found.page.locator("#stage dt").count() == 1
