"""Who may come in: only those who know the token, under this machine's own name, from the page's own origin."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})


class Gate:
    """Wraps the application: its addresses all begin with the token, and every answer carries strict headers.

    Parameters
    ----------
    app : ASGI application
    token : str
    host : str
        Where the server listens, which says under which names requests may come. A server that listens at all its
        addresses is known by any number, too: a foreign page can make a *name* of its own point here (DNS rebinding),
        but not a number.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app, self._token, self._everywhere = app, token, host in EVERYWHERE
        self._hosts = _LOOPBACK | (_own_names() if self._everywhere else {host.lower().strip("[]")})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, strict)
            return
        inside = scope["path"][len(self._token) + 1 :] or "/"
        await self._app({**scope, "path": inside, "raw_path": inside.encode()}, receive, strict)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._knows(host):
            return PlainTextResponse("This server does not go by that name.", 421)
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return PlainTextResponse("Requests from other sites are refused.", 403)
        given = scope["path"].split("/")[1]
        # compared in constant time: answers must not tell how much of a token is right
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return PlainTextResponse("Open the address that `pro2 label` printed, token included.", 404)
        if scope["path"] == f"/{self._token}":  # addresses inside the page are relative to the slash
            return RedirectResponse(f"/{self._token}/")
        return None

    def _knows(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            return name in self._hosts or (self._everywhere and ipaddress.ip_address(name) is not None)
        except ValueError:  # not the name of any host, or no number
            return False


def _own_names() -> set[str]:
    name = socket.gethostname().lower()
    return {name, f"{name}.local", socket.getfqdn().lower()}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    return host in _LOOPBACK
