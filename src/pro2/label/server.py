"""A running page: journal, session, socket and server put together."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn

from pro2.embed.images import pillow_guard
from pro2.label.inputs import Given
from pro2.label.model import start_from
from pro2.label.outputs import Writer, write_outputs
from pro2.label.pool import Pool
from pro2.label.session import DEFAULTS, Session, Settings
from pro2.label.store import Event, Store, check_pool
from pro2.label.web import EVERYWHERE, Access, make_app

ABOUT = {
    "adapted.safetensors": "the adapted model, for pro2 predict",
    "labels.csv": "your labels, for pro2 adapt and spreadsheets",
    "labels.arrow": "the same as an Arrow table",
    "labels.label-studio.json": "the same for Label Studio",
    "labels.cvat.xml": "the same for CVAT",
    "map.parquet": "every item as a point, for embedding-atlas, FiftyOne or a notebook",
    "predictions.csv": "the model's prediction for every item",
    "classifier.onnx": "for deployment",
    "report.html": "how the model was adapted",
}


@dataclass(frozen=True)
class Address:
    """Where the page is. By default loopback at the port of the last time, or any free one, with a random token."""

    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = None


LOCAL = Address()


@dataclass
class Page:
    """An opened session that can be served: its address, token included, and what has changed in the pool.

    `n_given` labels from elsewhere were new.
    """

    session: Session
    url: str
    changes: str
    n_given: int
    _server: uvicorn.Server
    _socket: socket.socket

    def serve(self) -> None:
        """Answer requests until the process is interrupted or `stop` is called, now or before."""
        with pillow_guard():
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let `serve` return; from another thread or a signal's handler."""
        self._server.should_exit = True

    def url_for(self, annotator: str) -> str:
        """The address for one person."""
        return f"{self.url}?as={quote(annotator)}" if annotator else self.url


class _Server(uvicorn.Server):
    """Ends at once: pages that wait for newer figures get their answer first."""

    def __init__(self, app: Any, session: Session) -> None:
        quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(app, lifespan="off", timeout_graceful_shutdown=1, **quiet))
        self._session = session

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._session.notify()
        await super().shutdown(sockets)


@contextlib.contextmanager
def open_page(
    pool: Pool, model: Any, folder: Path, *, classes: Sequence[str] = (), settings: Settings = DEFAULTS,
    address: Address = LOCAL, by_id: bool = False, given: Sequence[tuple[int, Given]] = (),
    writers: Mapping[str, Writer] = {}, on_written: Callable[[list[str]], None] = lambda names: None,
) -> Iterator[Page]:  # fmt: skip
    """Open or continue the session in `folder`; the page is there until the context ends.

    Without a model it starts from unlabelled rows and the names of `classes`. `by_id` continues although the pool has
    changed, with the labels whose ids still exist; `given` are labels from elsewhere with their rows. For `writers` see
    `write_outputs`; `on_written` gets their names.
    """
    with contextlib.ExitStack() as stack:
        store = Store(folder / "journal.sqlite", pool.row_of)
        stack.callback(store.close)
        changes = check_pool(store, pool, by_id, str(folder))
        last = next((event.info for event in reversed(store.events("start"))), {})
        listener = stack.enter_context(_listen(address, last.get("port", 0)))
        port, token = listener.getsockname()[1], address.token or last.get("token") or secrets.token_urlsafe(16)
        settings = replace(settings, seed=last.get("seed", settings.seed))
        start = start_from(model, pool, list(classes) or last.get("classes", []))
        info = {"token": token, "port": port, "seed": settings.seed, "rows": len(pool), "classes": start.classes}
        with store.transaction():
            store.append([Event("start", info=info)])
        session = Session(pool, start, store, settings)
        stack.callback(session.refitter.stop)
        n_given = session.add_labels(given)
        session.fit()
        if session.store.labels:
            session.refitter.request()  # for their label sets; the first item does not wait for them
        session.refitter.prepare(lambda: session.neighbours.lengths)  # the first search for similar items needs no wait

        def done() -> dict[str, Any]:
            session.refitter.wait()  # the model on disk has learned from every label
            names = write_outputs(session, folder, writers, {} if model is None else model.provenance)
            on_written(names)
            return {"folder": folder.name, "files": [{"name": name, "about": ABOUT.get(name, "")} for name in names]}

        server = _Server(Access(make_app(session, done), token, address.host), session)
        name = socket.gethostname() if address.host in EVERYWHERE else address.host
        url = f"http://{f'[{name}]' if ':' in name else name}:{port}/{token}/"
        yield Page(session, url, changes, n_given, server, listener)


def _listen(address: Address, last_port: int) -> socket.socket:
    """A socket at the port asked for, else at the last one, so that an open page finds its server again."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    ports = [last_port, 0] if address.port is None else [address.port]
    for port in ports:
        try:  # requests that come before the server is up wait instead of being turned away
            return socket.create_server((address.host.strip("[]"), port), family=family, backlog=128)
        except OSError as error:
            reason = error.strerror or str(error)
    raise OSError(f"cannot listen at {address.host}:{ports[0]} ({reason}): choose another host or port")
