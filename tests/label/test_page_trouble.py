"""When things go wrong or several people are at it: the page says so, waits, and loses nothing."""

from __future__ import annotations

import pytest

from pro2.label.pool import Pool
from pro2.label.session import Settings

pytestmark = pytest.mark.slow

TWO = Settings(annotators=("ann", "ben"))


def test_a_lost_server_is_told_labels_wait_and_arrive_when_it_is_back(serve, picture_pool, model, tab):
    with serve(picture_pool, model) as server:
        found = tab(server, quiet=False).press("1", "2")
        url = server.url
    found.says("#banner", "The server does not answer. This page keeps trying.").says("#saved", "Reconnecting …")
    with serve(picture_pool, model) as found.server:
        assert found.server.url == url
        found.says("#saved", "Connected again, all saved")
        assert found.page.is_hidden("#banner")
    row = found.row
    found.key("3").says("#banner", "Your last label is kept here")
    with serve(picture_pool, model) as found.server:
        found.settled().wait("document.getElementById('banner').hidden")
        assert found.labels[row] == "fox"
        assert len(found.labels) == 3
        row = found.row
        found.press("1")
        assert found.labels[row] == "cat"


def test_labels_that_were_not_sent_survive_a_reload_of_the_page(open_tab):
    found = open_tab(quiet=False)
    row = found.row
    found.page.route("**/api/act*", lambda route: route.abort())
    found.key("2").wait("document.getElementById('saved').dataset.state === 'lost'")
    assert found.labels == {}
    found.page.unroute("**/api/act*")
    found.page.reload()
    found.ready().settled().says("#n-labelled", "1")
    assert found.labels == {row: "dog"}


def test_an_answer_that_got_lost_does_not_make_two_labels(serve, picture_pool, model, tab):
    """The server wrote the label, its answer never came: the page sends it again, and it counts once."""
    found, lost = tab(None, quiet=False), []

    def swallow(route) -> None:
        if not lost:
            lost.append(route.fetch())
            route.abort()
        else:
            route.continue_()

    with serve(picture_pool, model) as found.server:
        found.page.route("**/api/act*", swallow)  # before the page is there: no request gets past it
        found.open(found.server.url).press("1")
        assert len(lost) == 1
        assert [event.kind for event in found.session.store.events("label")] == ["label"]
        found.press("u")
        assert found.labels == {}


def test_a_full_disk_pauses_labelling_and_goes_on_when_there_is_room(open_tab):
    found = open_tab(quiet=False).press("1")
    db = found.session.store._db
    db.execute("PRAGMA wal_autocheckpoint=1")
    db.execute("PRAGMA max_page_count=1")
    for _ in range(100):
        found.key("2").wait("document.getElementById('saved').dataset.state !== 'waiting'")
        if found.page.is_visible("#banner"):
            break
    assert "The disk is full" in found.text("#banner")
    assert "earlier ones were" in found.text("#banner")
    n, shown = len(found.labels), found.shown
    found.key("3")
    assert found.shown == shown  # keys do nothing now
    db.execute("PRAGMA max_page_count=100000")
    found.page.click("#banner-retry")
    found.settled()
    assert len(found.labels) == n + 1
    assert found.page.is_hidden("#banner")


def test_two_people_two_browsers(serve, picture_pool, model, tab):
    with serve(picture_pool, model, settings=TWO) as server:
        ann, ben = tab(server, "ann"), tab(server, "ben")
        seen = []
        for _ in range(8):
            seen += [ann.row, ben.row]
            ann.key("1")
            ben.key("2")
            ann.settled()
            ben.settled()
        assert len(set(seen)) == 16
        assert set(ann.labels) == set(seen)
        assert {who for row in seen[::2] for who in server.session.store.annotations[row]} == {"ann"}
        ann.says("#n-labelled", "16")
        assert ann.text("#person") == "ann"


def test_a_page_without_a_name_asks_who_is_there(serve, picture_pool, model, tab):
    found = tab(None, quiet=False)
    with serve(picture_pool, model, settings=TWO) as found.server:
        found.page.goto(found.server.url)
        found.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
        found.page.click("#people button:text('ben')")
        row = found.ready().row
        found.press("1")
        assert found.session.store.annotations[row] == {"ben": "cat"}
        found.page.reload()
        assert found.ready().text("#person") == "ben"


def test_disagreement_is_counted_shown_and_settled(serve, picture_pool, model, tab):
    with serve(picture_pool, model, settings=Settings(annotators=("ann", "ben"), overlap=1.0)) as server:
        ann = tab(server, "ann").press("1", "1", "1", "1")
        tab(server, "ben").press("2", "1", "1")
        people = server.session.store.annotations
        (conflict,) = (row for row, each in people.items() if len(set(each.values())) == 2)
        ann.says("#agreement-text", "3 items labelled by several people, who disagree on 1. Agreement beyond chance")
        assert ann.text("#decide") == "Decide 1"
        ann.page.click("#decide")
        ann.says("#lists h3", "Disagreements").says(".entry .note", "ann: cat, ben: dog")
        ann.page.locator(".entry").first.locator("button:text('It is dog')").click()
        ann.settled()
        assert ann.labels[conflict] == "dog"
        ann.wait("document.getElementById('decide').hidden")


def test_the_same_person_in_two_windows(serve, picture_pool, model, tab):
    """What one window has answered, the other does not ask again."""
    with serve(picture_pool, model) as server:
        first, second = tab(server), tab(server)
        before = first.shown
        assert second.shown == before
        first.press("1")
        second.wait(lambda: second.shown != before)
        second.press("2")
        assert len(first.labels) == 2


def test_a_broken_image_shows_as_such_and_can_be_labelled(open_tab, table):
    class Broken:
        def read(self, row: int) -> bytes:
            return b"not an image"

    found = open_tab(Pool(table, Broken()), quiet=False).says("#stage", "This image cannot be shown")
    assert "not an image of a known format" in found.text("#stage")
    found.press("1")
    assert len(found.labels) == 1
    found.view("grid").page.wait_for_selector(".tile .short")
    found.view("labelled").page.wait_for_selector(".thumb.none")
