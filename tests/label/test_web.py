"""Access over real HTTP: token, Host, Origin and headers; and no answer that reveals folders of this machine."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from pro2 import EmbeddingTable
from pro2.label.pool import Pool

server = pytest.importorskip("pro2.label.server", exc_type=ImportError)


class Client:
    """Requests as anybody could send them."""

    def __init__(self, url: str) -> None:
        self.at = urlsplit(url)

    def __call__(self, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, Any]:
        connection = http.client.HTTPConnection(self.at.hostname or "", self.at.port, timeout=120)
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, content, headers)
        answer = connection.getresponse()
        found = answer.status, answer.read(), answer.headers
        connection.close()
        return found

    def inside(self, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, Any]:
        return self(self.at.path + path, body, **headers)

    def json(self, path: str, body: Any = None) -> Any:
        status, content, _ = self.inside(path, body)
        assert status == 200, content
        return json.loads(content)


@pytest.fixture
def page(serve, picture_pool, model):
    with serve(picture_pool, model) as found:
        yield found


@pytest.fixture
def client(page) -> Client:
    return Client(page.url)


def test_it_listens_on_loopback_with_a_random_token_in_the_address(page, client):
    assert client.at.hostname == "127.0.0.1"
    assert len(client.at.path.strip("/")) >= 20
    assert page._socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "/wrong-token/", "/static/main.js", "/api/state", "/%2e%2e/", "//"])
def test_without_the_token_nothing_is_there(client, path):
    status, content, headers = client(path)
    assert status == 404
    assert b"token" in content
    assert headers["Content-Security-Policy"]


def test_a_token_that_is_nearly_right_is_wrong(client):
    token = client.at.path.strip("/")
    for wrong in (token[:-1], token + "x", token[:-1] + chr(ord(token[-1]) ^ 1), token.swapcase()):
        assert client(f"/{wrong}/")[0] == 404


FOREIGN = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "[bad", ""]


@pytest.mark.parametrize(
    ("host", "status"),
    [*((name, 400) for name in FOREIGN), ("localhost:{}", 200), ("127.0.0.1:{}", 200), ("[::1]:{}", 200)],
)
def test_only_names_of_this_machine_are_accepted(client, host, status):
    assert client(client.at.path, Host=host.format(client.at.port))[0] == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1", "http://localhost:9"])
def test_foreign_origins_are_refused_for_reading_and_writing(client, origin):
    assert client.inside("api/state", Origin=f"http://127.0.0.1:{client.at.port}")[0] == 200
    assert client.inside("api/state", Origin=origin)[0] == 403
    body = {"kind": "skip", "key": "12345678", "rows": [0]}
    assert client.inside("api/act", body, Origin=origin)[0] == 403


def test_every_answer_has_strict_headers(client):
    for path in ("", "static/main.js", "api/state", "api/image/0?size=320", "nothing"):
        _, _, headers = client.inside(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Server"] is None
    for name, kind in (("main.js", "text/javascript"), ("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
        assert client.inside(f"static/{name}")[2]["Content-Type"].startswith(kind)


def test_without_the_last_slash_the_address_still_leads_there(client):
    status, _, headers = client(client.at.path.rstrip("/"))
    assert status == 307
    assert headers["Location"] == client.at.path


@pytest.mark.parametrize(
    "path",
    ["static/../web.py", "static/%2e%2e%2fweb.py", "static/web.py", "static/", "api/image/-1?size=320",
     "api/image/999999?size=320", "api/image/0?size=5000", "api/image/0", "api/image/../../etc/passwd?size=320"],
)  # fmt: skip
def test_only_known_files_rows_and_sizes_are_served(client, path):
    assert client.inside(path)[0] == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 422), (b"[1]", 422), ({}, 422), ({"kind": "label"}, 422), ({"kind": "label", "key": "short"}, 422),
     ({"kind": "explode", "key": "12345678"}, 422), (b"x" * 100_000, 413),
     ({"kind": ["label"], "key": "12345678"}, 422), ({"kind": "label", "key": "12345678", "rows": [{}]}, 422)],
)  # fmt: skip
def test_bad_requests_get_a_sentence_not_a_traceback(client, body, status):
    found, content, _ = client.inside("api/act", body)
    assert found == status
    assert json.loads(content)["error"].endswith(".")
    assert client.inside("api/labelled?offset=x")[0] == 422
    assert client.inside("api/labelled?offset=" + "9" * 5000)[0] == 422


def test_a_whole_session_by_hand(client, truth):
    state = client.json("api/state")
    assert state["classes"] == ["cat", "dog", "fox"]
    before = client.json("api/figures")["version"]
    for number in range(6):
        row = state["assigned"][0]["row"]
        action = {"kind": "label", "key": f"key-{number:05d}", "rows": [row], "label": truth[row]}
        state |= client.json("api/act", action)
        assert state["saved"] == action["key"]
    figures = client.json("api/figures")
    assert figures["labels"] == 6
    newer = client.json(f"api/figures?after={before}")  # the last fit may be done already: nothing newer would come
    assert newer["version"] != before
    assert client.json("api/labelled?q=photo")["total"] == 6
    assert client.json("api/done", {})["files"]


def test_done_without_labels_says_so(client):
    status, content, _ = client.inside("api/done", {})
    assert status == 422
    assert json.loads(content)["error"] == "Nothing was written: there are no labels yet: label a few items first."


def test_no_answer_tells_where_things_are_on_this_machine(serve, model, tmp_path: Path):
    """Ids and columns are absolute paths, images are missing, a disk is full, a request is wrong: no path comes out."""
    home = tmp_path / "very-private"
    home.mkdir()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 12)).astype(np.float32)
    ids = [str(home / f"photo-{i}.jpg") for i in range(30)]
    from pro2.embed.sources import FileImages

    pool = Pool(EmbeddingTable(X, ids, {"copy": ids}), FileImages(home, ids, np.array(ids), {}), title="pool")
    with serve(pool, model, home / "session") as page:
        client = Client(page.url)
        row = client.json("api/state")["assigned"][0]["row"]
        label = {"kind": "label", "key": "key-00001", "rows": [row], "label": "fox"}
        answers = [
            client.inside(path, body)[1]
            for path, body in [
                ("", None), ("api/state", None), ("api/people", None), ("api/figures", None), ("api/act", label),
                ("api/act", {"kind": "label", "key": "key-00002", "rows": [999], "label": "fox"}), ("api/act", b"{"),
                ("api/grid?label=fox", None), ("api/labelled", None), (f"api/image/{row}?size=320", None),
                ("api/image/x", None), ("static/nothing", None), ("api/done", {}),
            ]
        ]  # fmt: skip
        page.session.store._db.execute("PRAGMA query_only=1")
        answers.append(client.inside("api/act", {"kind": "undo", "key": "key-00009"})[1])
    assert any(b"photo-" in answer for answer in answers)
    for answer in answers:
        assert b"very-private" not in answer
        assert str(tmp_path.parent).encode() not in answer
        assert b"/src/" not in answer
        assert b"Traceback" not in answer


class TestOthers:
    """Serving to other machines is a choice."""

    def test_any_address_but_no_foreign_name(self, serve, pool, model):
        with serve(pool, model, address=server.Address(host="0.0.0.0")) as page:
            port = urlsplit(page.url).port
            client = Client(f"http://127.0.0.1:{port}{urlsplit(page.url).path}")
            assert client(client.at.path, Host=f"192.168.7.7:{port}")[0] == 200
            assert client(client.at.path, Host=f"rebound.example:{port}")[0] == 400

    def test_the_token_of_last_time_and_a_given_one(self, serve, pool, model):
        with serve(pool, model) as page:
            first = page.url
        with serve(pool, model) as page:
            assert page.url == first  # an open page finds its server again
        with serve(pool, model, address=server.Address(token="a-token-of-mine")) as page:
            assert urlsplit(page.url).path == "/a-token-of-mine/"

    def test_a_port_that_is_taken(self, serve, pool, model, tmp_path):
        with serve(pool, model) as page:
            taken = serve(pool, model, tmp_path / "other", address=server.Address(port=urlsplit(page.url).port))
            with pytest.raises(OSError, match="choose another host or port"), taken:
                pass
