"""What a request must keep to before anything reads it: its host, its headers, its body's size, form and depth.

All of it is checked here, in front of the routes, so that no route can forget it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final
from urllib.parse import unquote

from delayq.http.problems import Problem, Refused, plain

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

WHOLE: Final = "delayq.whole"
"""The key of a scope that tells whether the whole body had arrived when the request began."""
SLASH: Final = "\ue000"
"""Stands for an encoded slash inside a path; no path has this character else."""
MAX_HEADERS: Final = 16 * 1024
MAX_HEADER_COUNT: Final = 100
MAX_QUERY: Final = 8 * 1024
MAX_DEPTH: Final = 64
BATCH_BODY: Final = 16 * 1024 * 1024
"""What a batch may hold, whatever the limit of one payload is."""
SMALL_BODY: Final = 16 * 1024
"""Bodies up to so many bytes are always read; the connections bound how many there are."""
MAX_IN_FLIGHT: Final = 48 * 1024 * 1024
"""What the larger bodies that are being read may hold together."""
_PIECE: Final = 256 * 1024
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
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
    in_flight: int = MAX_IN_FLIGHT


class Limits:
    """An ASGI application in front of another one."""

    def __init__(self, app: Application, bounds: Bounds, known: Callable[[str], object] | None = None) -> None:
        """`known` takes an Authorization header, and raises `Refused` unless a body may be read for it."""
        self._app = app
        self._bounds = bounds
        self._known = known
        self._in_flight = 0

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
                if self._known is not None and scope["path"].startswith("/v1/"):
                    self._known(headers.get("authorization", ""))
                body = await self._body(scope, receive, headers)
                await _check_form(scope["path"], headers, body)
            receive = _replay(body, receive)
        except Refused as refused:
            return await refused.problem.response(scope["path"])(scope, receive, send)
        return await self._app(_with_slashes(scope), receive, send)

    async def _body(self, scope: Scope, receive: Receive, headers: dict[str, str]) -> bytes:
        """Return the whole body; raise `Refused` when it is too slow, too large, or too much beside the others."""
        parts: list[bytes] = []
        try:
            # A body that has arrived needs no timer, which costs 2 % of a request.
            async with nullcontext() if scope.get(WHOLE) else asyncio.timeout(self._bounds.body_s):
                await self._read(receive, headers, self._most(scope["path"]), parts)
        except TimeoutError:
            raise Refused(plain(408, f"The body was not complete within {self._bounds.body_s:g} s.")) from None
        finally:
            self._in_flight -= _counted(sum(map(len, parts)))
        return b"".join(parts)

    async def _read(self, receive: Receive, headers: dict[str, str], most: int, parts: list[bytes]) -> None:
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(plain(400, "The body ended before it was complete."))
            part: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            if size + len(part) > most:
                raise _too_large(most)
            added = _counted(size + len(part)) - _counted(size)
            if added and self._in_flight + added > self._bounds.in_flight:
                raise Refused(plain(503, "Too many large bodies are being sent.", "Try again.", Retry_After="1"))
            parts.append(part)
            size += len(part)
            self._in_flight += added

    def _most(self, path: str) -> int:
        return self._bounds.batch if path == "/v1/jobs/batch" else self._bounds.body

    def _headers(self, scope: Scope) -> dict[str, str]:
        """The headers that matter here, by name; raises `Refused`."""
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        if len(raw) > MAX_HEADER_COUNT or sum(len(name) + len(value) for name, value in raw) > MAX_HEADERS:
            raise Refused(plain(431, f"At most {MAX_HEADER_COUNT} headers of {MAX_HEADERS:,} bytes together are read."))
        if len(scope["query_string"]) > MAX_QUERY:
            raise Refused(plain(414, f"At most {MAX_QUERY:,} bytes of query are read."))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy in front may have believed the other one: what follows may be another caller's request.
            two = plain(400, "The request has both Content-Length and Transfer-Encoding.", "Send one of them.")
            raise Refused(replace(two, headers={"Connection": "close"}))
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


def _too_large(most: int) -> Refused:
    return Refused(plain(413, f"The body is larger than {most:,} bytes.", "Send less at a time."))


def _counted(size: int) -> int:
    """Return how many bytes of a body of that size count as in flight."""
    return size if size > SMALL_BODY else 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first, and then what comes."""
    left = [body]

    async def replayed() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replayed


async def _check_form(path: str, headers: dict[str, str], body: bytes) -> None:
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
    deep = depth(body) if len(body) <= _PIECE else await asyncio.to_thread(depth, body)
    if deep > MAX_DEPTH:
        raise Refused(Problem(400, "too-deep", f"The JSON is nested deeper than {MAX_DEPTH} levels."))


def depth(body: bytes) -> int:
    """Return how deep brackets are nested, strings left out; stop just beyond `MAX_DEPTH`.

    One pass, in pieces that let other threads run in between. Closing brackets without an opening one make the answer
    too small; the JSON reader refuses such a body at the first of them.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return 0  # it cannot be too deep
    level = deepest = start = 0
    in_string = False
    while start < len(body) and deepest <= MAX_DEPTH:
        end = start + _PIECE
        while body[end - 1 : end] == b"\\":  # keep an escape and what it escapes together
            end += 1
        outside, in_string = _outside_strings(body[start:end], in_string)
        steps = memoryview(outside.translate(_STEPS, _NO_BRACKETS)).cast("b")
        highest = max(accumulate(steps, initial=level))
        deepest = max(deepest, highest)
        level += sum(steps)
        start = end
    return deepest


def _outside_strings(piece: bytes, in_string: bool) -> tuple[bytes, bool]:
    """Return the brackets of `piece` that lie in no string, and whether its end lies in one."""
    if b"\\" in piece:
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = piece.translate(None, _NEITHER).replace(b'""', b"")  # two quotes side by side hold nothing
    parts = left.split(b'"')
    return b"".join(parts[in_string::2]), in_string ^ (len(parts) % 2 == 0)
