"""HTTP: the page, its images and a handful of JSON answers of a `Session`; and who may ask for them."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pro2.label.pool import SIZES, BrokenImage, thumbnails
from pro2.label.session import Action, Refused, Session
from pro2.label.store import JournalError

STATIC = Path(__file__).parent / "static"
MAX_BODY = 1 << 16  # bytes of a request; an action is far smaller
MAX_QUERY = 1000  # characters of a search
POLL = 20.0  # seconds that a request for newer figures waits
LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("", "0.0.0.0", "::")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def make_app(session: Session, done: Callable[[], dict[str, Any]]) -> Starlette:
    """The application, open to everybody; `done` writes the results and returns what the page shows about them."""
    api = _Api(session, done)
    routes = [
        Route("/", lambda request: FileResponse(STATIC / "index.html")),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/api/state", api.state),
        Route("/api/people", lambda request: JSONResponse({"annotators": session.settings.annotators})),
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
        BrokenImage: lambda request, error: JSONResponse({"error": str(error)}, 415),
        HTTPException: lambda request, error: JSONResponse({"error": error.detail}, error.status_code),
    }
    return Starlette(routes=routes, exception_handlers=handlers)


class _Api:
    """One method per address. Starlette runs those that are not asynchronous in threads: they may wait for the lock."""

    def __init__(self, session: Session, done: Callable[[], dict[str, Any]]) -> None:
        pictures = session.pool.pictures
        self._session, self._done = session, done
        self._thumbnail = None if pictures is None else thumbnails(pictures)

    def _annotator(self, request: Request) -> str:
        name = request.query_params.get("as", "")
        if name not in self._session.settings.annotators:
            raise Refused("This name is not on the list of annotators.")
        return name

    def state(self, request: Request) -> Response:
        session, items = self._session, self._session.assigned(self._annotator(request))
        return JSONResponse({"title": session.pool.title, "classes": session.classes, "assigned": items})

    async def figures(self, request: Request) -> Response:
        """Figures newer than `after`, as soon as there are any; the same again when the wait is over."""
        annotator = self._annotator(request)
        if request.query_params.get("after") == str(self._session.version):
            changed = asyncio.Event()
            wake = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
            with self._session.subscribed(wake), contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), POLL)
        return JSONResponse(await run_in_threadpool(self._session.figures, annotator))

    async def act(self, request: Request) -> Response:
        annotator, body = self._annotator(request), b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, "This request is too large.")
        try:
            action = msgspec.json.decode(body, type=Action)
        except msgspec.DecodeError as error:
            raise Refused(f"This is not an action of the page: {error}.") from error
        return JSONResponse(await run_in_threadpool(self._session.act, annotator, action))

    def grid(self, request: Request) -> Response:
        query = request.query_params
        label, order, words = query.get("label", ""), query.get("order", "doubtful"), query.get("q", "")[:MAX_QUERY]
        like = _number(query["like"]) if query.get("like") else None
        return JSONResponse(self._session.grid(self._annotator(request), label, order, words, like))

    def labelled(self, request: Request) -> Response:
        query, offset = request.query_params.get("q", "")[:MAX_QUERY], request.query_params.get("offset", "0")
        return JSONResponse(self._session.listing(query, _number(offset)))

    def image(self, request: Request) -> Response:
        row, size = request.path_params["row"], request.query_params.get("size", "")
        if self._thumbnail is None or row >= len(self._session.pool) or size not in map(str, SIZES):
            raise HTTPException(404, "There is no such image.")
        content, media_type = self._thumbnail(row, int(size))
        return Response(content, media_type=media_type, headers={"Cache-Control": "private, max-age=3600"})

    def done(self, request: Request) -> Response:
        try:
            return JSONResponse(self._done())
        except ValueError as error:
            raise Refused(f"Nothing was written: {error}.") from error


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Refused("This is not the number of a row.")
    return int(text)


class Access:
    """Requires the token as first part of every address, a host name of this machine and the page's own origin.

    A server that listens at all addresses may also be called by any number: a foreign page can make a *name* of its own
    point here (DNS rebinding), but not a number.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app, self._token, self._everywhere = app, token, host in EVERYWHERE
        name = socket.gethostname()
        own = (name, f"{name}.local", socket.getfqdn()) if self._everywhere else (host,)
        hosts = [each if ":" not in each else f"[{each}]" for each in (*LOOPBACK, *own)]
        self._checked = TrustedHostMiddleware(self._with_token, hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        app: ASGIApp = self._checked
        if self._everywhere:
            with contextlib.suppress(ValueError):  # a name is not a number
                ipaddress.ip_address(urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or "")
                app = self._with_token
        await app(scope, receive, with_headers)

    async def _with_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        host, origin = headers.get("host", ""), headers.get("origin")
        # compared in constant time: answers must not reveal how much of a token is right
        knows_token = hmac.compare_digest(path.split("/")[1].encode(), self._token.encode())
        app: ASGIApp = self._app
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            app = PlainTextResponse("Requests from other sites are refused.", 403)
        elif not knows_token:
            app = PlainTextResponse("Open the address that `pro2 label` printed, including the token.", 404)
        elif path == f"/{self._token}":  # addresses inside the page are relative to the slash
            app = RedirectResponse(f"/{self._token}/")
        else:
            inside = path[len(self._token) + 1 :]
            scope = {**scope, "path": inside, "raw_path": inside.encode()}
        await app(scope, receive, send)
