"""When things go wrong or several people are at it: the page says so, waits, and loses nothing."""

from __future__ import annotations

import pytest

from pro2.label.session import Settings

pytestmark = pytest.mark.slow


def labels(page) -> dict[int, str]:
    return {row: answer.label for row, answer in page.session.store.labels.items()}


def test_a_lost_server_is_told_labels_wait_and_arrive_when_it_is_back(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url, quiet=False).press("1", "2")
        url = page.url
    found.wait("!document.getElementById('banner').hidden")
    assert "The server does not answer. This page keeps trying." in found.text("#banner")
    row = found.row
    found.key("3")
    found.wait("document.getElementById('banner').textContent.includes('Your last label is kept here')")
    with serve(picture_pool, model) as page:
        assert page.url == url
        found.settled()
        found.wait("document.getElementById('banner').hidden")
        assert labels(page)[row] == "fox"
        assert len(labels(page)) == 3
        row = found.row
        found.press("1")
        assert labels(page)[row] == "cat"


def test_a_page_that_waits_says_that_it_is_connected_again(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url, quiet=False)
    found.wait("document.getElementById('saved').textContent === 'Reconnecting …'")
    with serve(picture_pool, model):
        found.wait("document.getElementById('saved').textContent === 'Connected again, all saved'")
        assert found.page.is_hidden("#banner")
        found.page.close()


def test_labels_that_were_not_sent_survive_a_reload_of_the_page(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url, quiet=False)
        row = found.row
        found.page.route("**/api/act*", lambda route: route.abort())
        found.key("2")
        found.wait("document.getElementById('saved').dataset.state === 'lost'")
        assert labels(page) == {}
        found.page.unroute("**/api/act*")
        found.page.reload()
        found.ready().settled()
        found.wait("document.getElementById('n-labelled').textContent === '1'")
        assert labels(page) == {row: "dog"}


def test_an_answer_that_got_lost_does_not_make_two_labels(serve, picture_pool, model, tab):
    """The server wrote the label, its answer never came: the page sends it again, and it counts once."""
    with serve(picture_pool, model) as page:
        found, lost = tab(None, quiet=False), []

        def swallow(route) -> None:
            if not lost:
                lost.append(route.fetch())
                route.abort()
            else:
                route.continue_()

        found.page.route("**/api/act*", swallow)  # before the page is there: no request gets past it
        found.open(page.url).press("1")
        assert len(lost) == 1
        assert len([event for event in page.session.store.events() if event.kind == "label"]) == 1
        found.press("u")
        assert labels(page) == {}


def test_a_full_disk_pauses_labelling_and_goes_on_when_there_is_room(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as page:
        found = tab(page.url, quiet=False).press("1")
        db = page.session.store._db
        db.execute("PRAGMA wal_autocheckpoint=1")
        db.execute("PRAGMA max_page_count=1")
        for _ in range(100):
            found.key("2")
            found.wait("document.getElementById('saved').dataset.state !== 'waiting'")
            if found.page.is_visible("#banner"):
                break
        assert "The disk is full" in found.text("#banner")
        assert "earlier ones were" in found.text("#banner")
        kept, shown = labels(page), found.shown
        found.key("3")
        assert found.shown == shown  # keys do nothing now
        db.execute("PRAGMA max_page_count=100000")
        found.page.click("#banner-retry")
        found.settled()
        assert len(labels(page)) == len(kept) + 1
        assert found.page.is_hidden("#banner")


def test_two_people_two_browsers(serve, picture_pool, model, tab):
    with serve(picture_pool, model, settings=Settings(annotators=("ann", "ben"))) as page:
        ann, ben = tab(page.url_for("ann")), tab(page.url_for("ben"))
        seen = []
        for _ in range(8):
            seen += [ann.row, ben.row]
            ann.key("1")
            ben.key("2")
            ann.settled()
            ben.settled()
        assert len(set(seen)) == 16
        assert set(labels(page)) == set(seen)
        assert {who for row in seen[::2] for who in page.session.store.annotations[row]} == {"ann"}
        ann.wait("document.getElementById('n-labelled').textContent === '16'")
        assert ann.text("#person") == "ann"


def test_a_page_without_a_name_asks_who_is_there(serve, picture_pool, model, tab):
    with serve(picture_pool, model, settings=Settings(annotators=("ann", "ben"))) as page:
        found = tab(None, quiet=False)
        found.page.goto(page.url)
        found.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
        found.page.click("#people button:text('ben')")
        found.ready()
        assert found.text("#person") == "ben"
        row = found.row
        found.press("1")
        assert page.session.store.annotations[row] == {"ben": "cat"}
        found.page.reload()
        found.ready()
        assert found.text("#person") == "ben"


def test_disagreement_is_counted_shown_and_settled(serve, picture_pool, model, tab):
    settings = Settings(annotators=("ann", "ben"), overlap=1.0)
    with serve(picture_pool, model, settings=settings) as page:
        ann = tab(page.url_for("ann"))
        ann.press("1", "1", "1", "1")
        ben = tab(page.url_for("ben"))
        ben.press("2", "1", "1")
        people = page.session.store.annotations
        assert sum(len(each) == 2 for each in people.values()) == 3
        (conflict,) = (row for row, each in people.items() if len(set(each.values())) == 2)
        said = "3 items labelled by several people"
        ann.wait(f"document.getElementById('agreement-text').textContent.startsWith('{said}')")
        assert "who disagree on 1. Agreement beyond chance (Fleiss' kappa): " in ann.text("#agreement-text")
        assert ann.text("#decide") == "Decide 1"
        ann.page.click("#decide")
        ann.page.wait_for_selector(".entry")
        assert ann.text("#lists h3") == "Disagreements"
        first = ann.page.locator(".entry").first
        assert "ann: cat, ben: dog" in first.inner_text()
        first.locator("button:text('It is dog')").click()
        ann.settled()
        assert labels(page)[conflict] == "dog"
        ann.wait("document.getElementById('decide').hidden")


def test_the_same_person_in_two_windows(serve, picture_pool, model, tab):
    """What one window has answered, the other does not ask again."""
    with serve(picture_pool, model) as page:
        first, second = tab(page.url), tab(page.url)
        assert first.shown == second.shown
        before = first.shown
        first.press("1")
        second.wait(f"document.querySelector('#stage .name')?.textContent !== {before!r}")
        second.press("2")
        assert len(labels(page)) == 2


def test_a_broken_image_shows_as_such_and_can_be_labelled(serve, table, model, truth, tab):
    from pro2.label.pool import Pool

    class Broken:
        def read(self, row: int) -> bytes:
            return b"not an image"

    with serve(Pool(table, Broken()), model) as page:
        found = tab(page.url, quiet=False)
        found.page.wait_for_selector("#stage .empty")
        assert "This image cannot be shown" in found.text("#stage")
        assert "not an image of a known format" in found.text("#stage")
        found.press("1")
        assert len(labels(page)) == 1
        found.view("grid")
        found.page.wait_for_selector(".tile .short")
        found.view("labelled")
        found.page.wait_for_selector(".thumb.none")
