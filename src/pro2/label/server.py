"""A running page: folder, journal, desk, gate and server put together."""

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
from pro2.label.desk import Desk
from pro2.label.events import Event
from pro2.label.gate import EVERYWHERE, Gate
from pro2.label.journal import Journal
from pro2.label.outputs import Writer, write_outputs
from pro2.label.pool import Pool
from pro2.label.resume import Changes, check_pool
from pro2.label.session import ALONE, Session, Settings
from pro2.label.start import start_model
from pro2.label.web import make_app

ABOUT = {
    "adapted.safetensors": "the adapted model, for pro2 predict",
    "labels.csv": "your labels, for pro2 adapt and spreadsheets",
    "labels.arrow": "the same as an Arrow table",
    "labels.label-studio.json": "the same for Label Studio",
    "predictions.csv": "the model's answer for every item",
    "classifier.onnx": "for deployment",
    "report.html": "how the model was adapted",
}


@dataclass(frozen=True)
class Address:
    """Where the page is: loopback and any free port unless told otherwise; the port of last time when it is free."""

    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = None


HERE = Address()


@dataclass
class Page:
    """An opened session that can be served.

    Attributes
    ----------
    desk : Desk
    url : str
        The page's address, token included.
    changes : Changes
        What is different from the last time.
    """

    desk: Desk
    url: str
    changes: Changes
    _server: uvicorn.Server
    _socket: socket.socket

    def serve(self) -> None:
        """Answer requests until the process is interrupted or `stop` is called, now or before."""
        with pillow_guard():
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let `serve` return; from another thread or a signal's handler."""
        self._server.should_exit = True

    def of(self, annotator: str) -> str:
        """The address for one person."""
        return f"{self.url}?as={quote(annotator)}" if annotator else self.url


class _Server(uvicorn.Server):
    """Ends at once: pages that wait for newer figures get their answer first."""

    def __init__(self, app: Any, desk: Desk) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=1
        )
        super().__init__(config)
        self._desk = desk

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._desk.tell()
        await super().shutdown(sockets)


@contextlib.contextmanager
def open_page(
    pool: Pool, model: Any, folder: Path, *, classes: Sequence[str] = (), settings: Settings = ALONE,
    address: Address = HERE, by_id: bool = False, writers: Mapping[str, Writer] = {},
    told: Callable[[list[str]], None] = lambda names: None,
) -> Iterator[Page]:  # fmt: skip
    """Open or continue the session in `folder`; the page is there until the context ends.

    Parameters
    ----------
    pool : Pool
    model : ProjectAndProbe or None
        None starts from unlabelled rows alone, with `classes`.
    folder : Path
        Holds the journal and, in the end, the results.
    by_id : bool
        Go on although the pool has changed, with the labels whose ids still exist.
    writers, told
        See `write_outputs`; `told` hears which files were written.
    """
    journal = Journal(folder / "journal.sqlite")
    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        events = journal.events()
        found = check_pool(events, pool, by_id, str(folder))
        last = next((event.info for event in reversed(events) if event.kind == "start"), {})
        where = _listen(address, last)
        stack.callback(where.close)
        token = address.token or last.get("token") or secrets.token_urlsafe(16)
        settings = replace(settings, seed=last.get("seed", settings.seed))
        start = start_model(model, pool, list(classes) or last.get("classes", []))
        info = {
            "token": token, "port": where.getsockname()[1], "seed": settings.seed, "rows": len(pool),
            "classes": start.classes,
        }  # fmt: skip
        journal.append([Event("start", info=info)])
        desk = Desk(Session(pool, start.classes, settings), start, journal)
        desk.open()
        stack.callback(desk.worker.stop)

        def done() -> dict[str, Any]:
            desk.worker.wait()  # the model on disk has learned from every label
            names = write_outputs(desk.session, folder, writers, {} if model is None else model.provenance)
            told(names)
            return {"folder": folder.name, "files": [{"name": name, "about": ABOUT.get(name, "")} for name in names]}

        server = _Server(Gate(make_app(desk, done), token, address.host), desk)
        yield Page(desk, _url(address.host, info["port"], token), found, server, where)


def _listen(address: Address, last: Mapping[str, Any]) -> socket.socket:
    """A socket at the address: the port asked for, else the last one, so that an open page finds its server again."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    wanted = [address.port] if address.port is not None else [last.get("port", 0), 0]
    for port in wanted:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((address.host.strip("[]"), port))
            found.listen(128)  # who comes before the server is up waits instead of being turned away
            return found
        except OSError as error:
            found.close()
            reason = error.strerror or str(error)
    raise OSError(f"cannot listen at {address.host}:{wanted[0]} ({reason}): choose another host or port")


def _url(host: str, port: int, token: str) -> str:
    name = socket.gethostname() if host in EVERYWHERE else host
    return f"http://[{name}]:{port}/{token}/" if ":" in name else f"http://{name}:{port}/{token}/"
