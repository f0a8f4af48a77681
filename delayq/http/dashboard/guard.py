"""Who may come in: sessions, and forms that only our own pages can send.

login      an API key once; then a signed cookie, which ends with the key, or after 12 hours
forms      carry a mark made for this browser alone, and must come from this server's own pages
"""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from delayq.core.api_keys import ApiKey, ApiKeys, Scope
from delayq.http.dashboard.viewer import Viewer, viewer_with
from delayq.http.keys import KeyFile
from delayq.http.seal import Seal, claimed, nonce
from delayq.http.seals import Seals

SESSION: Final = "delayq_session"
VISIT: Final = "delayq_visit"
SAID: Final = "delayq_said"
SESSION_S: Final = 12 * 3600
_FORM: Final = "form"


class Forged(Exception):
    """A form that did not come from one of our pages, or from one that is out of date."""


class Guard:
    """Reads who is there from a request, and writes it to an answer."""

    def __init__(self, keys: KeyFile, seals: Seals) -> None:
        self._keys = keys
        self._seals = seals
        self._seal = Seal()

    async def ready(self) -> None:
        """Before a request is read: know the seal. Raises `BackendError` when it cannot be had."""
        self._seal = await self._seals.seal()

    def viewer(self, request: Request) -> Viewer | None:
        """Who it is; None when somebody has to log in."""
        if not self._keys.wanted:
            visit = self._seal.read(VISIT, request.cookies.get(VISIT, ""))
            return viewer_with(None, visit or nonce())
        cookie = request.cookies.get(SESSION, "")
        key_id, _, rest = (claimed(cookie) or "").partition(" ")
        in_force: ApiKeys = self._keys.keys()
        key = next((key for key in in_force if key.id == key_id and not key.revoked_ms), None)
        if key is None or self._seal.read(_session_of(key), cookie) is None:
            return None
        until, _, visit = rest.partition(" ")
        ended = int(until) < time.time() or self._seals.is_logged_out(visit)
        return None if ended or not key.may(Scope.READ) else viewer_with(key, visit)

    def find(self, token: str) -> ApiKey | None:
        """The key somebody logs in with; None for one that does not let him read."""
        key = self._keys.keys().find(token.strip())
        return key if key is not None and key.may(Scope.READ) else None

    def admit(self, request: Request, response: Response, key: ApiKey) -> None:
        """Begin a session."""
        said = f"{key.id} {int(time.time()) + SESSION_S} {nonce()}"
        self._keep(request, response, SESSION, said, SESSION_S, _session_of(key))

    async def dismiss(self, response: Response, viewer: Viewer) -> None:
        """End the session on all servers, and delete its cookie."""
        if viewer.key:
            await self._seals.log_out(viewer.visit, int(time.time()) + SESSION_S)
        response.delete_cookie(SESSION, path="/")

    def greet(self, request: Request, response: Response, viewer: Viewer) -> None:
        """Let a browser keep its visit, where there is no session to hold it."""
        if not viewer.key and self._seal.read(VISIT, request.cookies.get(VISIT, "")) != viewer.visit:
            self._keep(request, response, VISIT, viewer.visit, SESSION_S)

    # -- forms -------------------------------------------------------------------------------------------------------

    def mark(self, viewer: Viewer) -> str:
        """What the forms of this viewer carry."""
        return self._seal.mark(_FORM, viewer.visit)

    def check(self, request: Request, viewer: Viewer, mark: str) -> None:
        """Raises `Forged` for a form of somebody else's."""
        self.check_origin(request)
        if not self._seal.fits(_FORM, viewer.visit, mark):
            raise Forged

    def check_origin(self, request: Request) -> None:
        """Raises `Forged` for what a page of another origin sends. A program that is no browser says nothing of it."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise Forged
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forged

    # -- what was said ------------------------------------------------------------------------------------------------

    def say(self, request: Request, response: Response, sentence: str) -> None:
        """Let the next page open with a sentence."""
        self._keep(request, response, SAID, sentence, 60)

    def said(self, request: Request) -> str:
        """It, or ''."""
        return self._seal.read(SAID, request.cookies.get(SAID, "")) or ""

    def _keep(
        self, request: Request, response: Response, name: str, text: str, seconds: int, purpose: str = ""
    ) -> None:
        secure = request.url.scheme == "https"
        signed = self._seal.sign(purpose or name, text)
        response.set_cookie(name, signed, seconds, path="/", secure=secure, httponly=True, samesite="lax")


def _session_of(key: ApiKey) -> str:
    """What a session is signed for. The key's hash stands in the file of keys alone: who reads all of Redis, where the
    seal's secret lies, makes himself no session."""
    return f"{SESSION} {key.hash}"
