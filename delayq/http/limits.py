"""What a request must keep to before anything reads it: its host, its headers, its body's size, form and depth.

All of it is checked here, in front of the routes, so that no route can forget it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from delayq.http.problems import Problem, Refused, plain

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SLASH: Final = "\ue000"
"""Stands for an encoded slash inside a path; no path has this character else."""
MAX_HEADERS: Final = 16 * 1024
MAX_HEADER_COUNT: Final = 100
MAX_QUERY: Final = 8 * 1024
MAX_DEPTH: Final = 64
BATCH_BODY: Final = 16 * 1024 * 1024
"""What a batch may hold, whatever the limit of one payload is."""
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_NEITHER: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
_SNIFF: Final = (b"x-content-type-options", b"nosniff")
_JSON: Final = "application/json"
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Bounds:
    """`hosts`: names the server may be called by (empty = any). Sizes in bytes; a body's time in seconds."""

    hosts: frozenset[str] = frozenset()
    body: int = 512 * 1024
    batch: int = BATCH_BODY
    body_s: float = 30.0


class Limits:
    """An ASGI application in front of another one."""

    def __init__(self, app: Application, bounds: Bounds) -> None:
        self._app = app
        self._bounds = bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or hand it on with its body read."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        send = _not_guessed(send)
        try:
            headers = self._headers(scope)
            _check_origin(scope["method"], headers)
            body = b""
            if scope["method"] in _WITH_BODY:
                body = await self._body(receive, headers, self._most(scope["path"]))
                _check_form(scope["path"], headers, body)
            receive = _replay(body, receive)
        except Refused as refused:
            return await refused.problem.response(scope["path"])(scope, receive, send)
        return await self._app(_with_slashes(scope), receive, send)

    async def _body(self, receive: Receive, headers: dict[str, str], most: int) -> bytes:
        """It is read before anybody asks for a key: so nobody may hold it in memory for as long as they like."""
        try:
            async with asyncio.timeout(self._bounds.body_s):
                return await _body(receive, headers, most)
        except TimeoutError:
            raise Refused(plain(408, f"The body was not complete within {self._bounds.body_s:g} s.")) from None

    def _most(self, path: str) -> int:
        return self._bounds.batch if path.endswith("/batch") else self._bounds.body

    def _headers(self, scope: Scope) -> dict[str, str]:
        """The headers that matter here, by name; raises `Refused`."""
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        if len(raw) > MAX_HEADER_COUNT or sum(len(name) + len(value) for name, value in raw) > MAX_HEADERS:
            raise Refused(plain(431, f"At most {MAX_HEADER_COUNT} headers of {MAX_HEADERS:,} bytes together are read."))
        if len(scope["query_string"]) > MAX_QUERY:
            raise Refused(plain(414, f"At most {MAX_QUERY:,} bytes of query are read."))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        if self._bounds.hosts and _host(headers.get("host", "")) not in self._bounds.hosts:
            raise Refused(
                plain(
                    421,
                    f"This server does not answer to the Host {headers.get('host', '')[:100]!r}.",
                    "Call it by the address it listens on, or start it with --allow-host NAME.",
                )
            )
        return headers


def _not_guessed(send: Send) -> Send:
    """A `send` whose answers are taken for what they say they are: JSON with markup in it is no page to any browser."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() != _SNIFF[0]]
            message = {**message, "headers": [*headers, _SNIFF]}
        await send(message)

    return sent


def _with_slashes(scope: Scope) -> Scope:
    """The scope with slashes that the caller encoded kept apart from those of the path: an id may hold some."""
    raw: bytes = scope.get("raw_path") or b""
    if not scope["path"].startswith("/v1/") or b"%2f" not in raw.lower():
        return scope
    path = raw.partition(b"?")[0].replace(b"%2f", b"%2F").split(b"%2F")
    return {**scope, "path": SLASH.join(unquote(part.decode("latin-1")) for part in path)}


def _check_origin(method: str, headers: dict[str, str]) -> None:
    """Raises `Refused` for what a page of somebody else's lets a browser do: it would do so in its user's name."""
    if method in _HARMLESS:
        return
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin", "")
    foreign = site not in ("none", "same-origin") or (origin and origin.partition("://")[2] != headers.get("host", ""))
    if foreign:
        raise Refused(plain(403, "A page of another site may not change anything here."))


def _host(header: str) -> str:
    """The name in a Host header, without its port; '' for what is none."""
    found = _HOST.fullmatch(header)
    return (found[1] or found[2]).lower() if found else ""


async def _body(receive: Receive, headers: dict[str, str], most: int) -> bytes:
    """The whole body; raises `Refused` for more than `most` bytes, before the rest of it is read."""
    too_large = Refused(plain(413, f"The body is larger than {most:,} bytes.", "Send less at a time."))
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise too_large
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(plain(400, "The body ended before it was complete."))
        part: bytes = message.get("body", b"")
        size, more = size + len(part), message.get("more_body", False)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first, and then what comes."""
    left = [body]

    async def replayed() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replayed


def _check_form(path: str, headers: dict[str, str], body: bytes) -> None:
    """Raises `Refused` for what is not plain JSON of a sane depth; pages send forms."""
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Refused(plain(415, "Compressed bodies are not read.", "Send it without Content-Encoding."))
    if not body:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not path.startswith("/v1/") and kind in _FORMS:
        return
    if kind != _JSON:
        raise Refused(plain(415, f"The body's Content-Type is {kind[:100]!r}.", f"Send JSON, as {_JSON}."))
    if depth(body) > MAX_DEPTH:
        raise Refused(Problem(400, "too-deep", f"The JSON is nested deeper than {MAX_DEPTH} levels."))


def depth(body: bytes) -> int:
    """How deep brackets are nested, up to just beyond `MAX_DEPTH`; those in strings do not count.

    The innermost pairs are taken out again and again: a step for each level, and each as fast as C searches bytes.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return 0  # it cannot be deep
    told = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    left = told.translate(_ALIKE, _NEITHER).replace(b'""', b"")  # quotes side by side hold nothing between them
    if b'"' in left:
        left = b"".join(left.split(b'"')[::2])  # every other piece lies in a string
    levels = 0
    while left and levels <= MAX_DEPTH:
        inner = left.replace(b"[]", b"")
        if inner == left:  # the rest is no JSON: whoever reads it says so, and opens no more than these
            return levels + left.count(b"[")
        left, levels = inner, levels + 1
    return levels
