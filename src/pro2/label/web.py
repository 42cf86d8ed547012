"""The skin: a page, its pictures and a handful of JSON answers over `Desk`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pro2.label.desk import Desk, Refused
from pro2.label.journal import JournalError
from pro2.label.pictures import SIZES, BrokenPicture, PictureShelf

STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_BODY = 1 << 16  # bytes of a request; an action is far smaller
POLL = 20.0  # seconds that a request for newer figures waits

Done = Callable[[], dict[str, Any]]


def make_app(desk: Desk, done: Done) -> Starlette:
    """The application without its gate.

    Parameters
    ----------
    desk : Desk
    done : callable
        Writes the results and returns what the page tells about them.
    """
    pictures = desk.session.pool.pictures
    api = _Api(desk, None if pictures is None else PictureShelf(pictures), done)
    routes = [
        Route("/", api.file),
        Route("/static/{name}", api.file),
        Route("/api/state", api.state),
        Route("/api/people", api.people),
        Route("/api/figures", api.figures),
        Route("/api/act", api.act, methods=["POST"]),
        Route("/api/grid", api.grid),
        Route("/api/labelled", api.labelled),
        Route("/api/image/{row:int}", api.image),
        Route("/api/done", api.done, methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = {
        Refused: lambda request, error: JSONResponse({"error": str(error)}, 422),
        JournalError: lambda request, error: JSONResponse({"error": str(error)}, 507),
        HTTPException: lambda request, error: JSONResponse({"error": error.detail}, error.status_code),
    }
    return Starlette(routes=routes, exception_handlers=handlers)


class _Api:
    """One method per address.

    What touches disk, lock or pixels runs in a thread, so that no request waits for it: Starlette does that to all
    methods that are not asynchronous.
    """

    def __init__(self, desk: Desk, shelf: PictureShelf | None, done: Done) -> None:
        self._desk, self._shelf, self._done = desk, shelf, done
        self._files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in _TYPES}

    async def file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            raise HTTPException(404, "There is nothing of that name.")
        return Response(self._files[name], media_type=_TYPES[Path(name).suffix])

    def _who(self, request: Request) -> str:
        return self._desk.check_annotator(request.query_params.get("as", ""))

    def state(self, request: Request) -> Response:
        hands, session = self._desk.hands(self._who(request)), self._desk.session
        return JSONResponse({"title": session.pool.title, "classes": session.board.classes, "hands": hands})

    async def people(self, request: Request) -> Response:
        return JSONResponse({"annotators": self._desk.session.settings.annotators})

    async def figures(self, request: Request) -> Response:
        """Figures newer than `after`, as soon as there are any; the same again when the wait is over."""
        who = self._who(request)
        if request.query_params.get("after") == str(self._desk.version):
            await self._change()
        return JSONResponse(await run_in_threadpool(self._desk.figures, who))

    async def _change(self) -> None:
        changed = asyncio.Event()
        hear = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        with self._desk.listening(hear), contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), POLL)

    async def act(self, request: Request) -> Response:
        who, action = self._who(request), await _json(request)
        if not isinstance(action.get("kind"), str) or not 8 <= len(str(action.get("key", ""))) <= 64:
            raise Refused("This action is not known.")
        action["key"] = str(action["key"])
        return JSONResponse(await run_in_threadpool(self._desk.act, who, action))

    def grid(self, request: Request) -> Response:
        who, asked = self._who(request), request.query_params
        return JSONResponse(self._desk.grid(who, asked.get("label", ""), asked.get("order", "doubtful")))

    def labelled(self, request: Request) -> Response:
        asked = request.query_params
        offset = asked.get("offset", "0")
        if not offset.isdecimal() or len(offset) > 9:
            raise Refused("This page of the list does not exist.")
        return JSONResponse(self._desk.labelled(asked.get("q", "")[:200], int(offset)))

    def image(self, request: Request) -> Response:
        row, size = request.path_params["row"], request.query_params.get("size", "")
        if self._shelf is None or row >= len(self._desk.session.pool) or size not in map(str, SIZES):
            raise HTTPException(404, "There is no such image.")
        try:
            content, kind = self._shelf.get(row, int(size))
        except BrokenPicture as error:
            return JSONResponse({"error": str(error)}, 415)
        return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    def done(self, request: Request) -> Response:
        try:
            return JSONResponse(self._done())
        except ValueError as error:
            raise Refused(f"Nothing was written: {error}.") from error


async def _json(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY:
            raise HTTPException(413, "This request is too large.")
    try:
        found = json.loads(body)
    except ValueError as error:
        raise Refused("This request is not JSON.") from error
    if not isinstance(found, dict):
        raise Refused("This request is not an action.")
    return found
