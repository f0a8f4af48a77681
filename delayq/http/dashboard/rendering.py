"""Makes pages from templates. What comes from outside is escaped by the engine, and no template says otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from delayq import __version__
from delayq.core.api_keys import Scope
from delayq.http.dashboard import wording
from delayq.http.dashboard.visit import job_link, link

THEME: Final = "delayq_theme"
THEMES: Final = ("auto", "light", "dark")
_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NAVIGATION: Final = (
    ("/", "Overview"),
    ("/queues", "Queues"),
    ("/jobs", "Jobs"),
    ("/failed", "Failed"),
    ("/job-types", "Job types"),
    ("/workers", "Workers"),
    ("/batches", "Batches"),
    ("/limits", "Limits"),
    ("/redis", "Redis"),
    ("/audit", "Audit log"),
)


@dataclass(frozen=True, slots=True)
class File:
    """A style sheet, script or picture of our own; `version` changes when it does."""

    body: bytes
    kind: str
    version: str


class Renderer:
    """The templates, the files beside them, and what every page is told."""

    def __init__(self, about: Mapping[str, str]) -> None:
        """`about`: what the foot of each page says of this server."""
        self.files = _files()
        self._about = dict(about)
        self._addresses = {name: f"/static/{name}?v={file.version}" for name, file in self.files.items()}

    def text(self, template: str, told: Mapping[str, Any]) -> str:
        """A template as text: a part of a page."""
        common = {"about": self._about, "files": self._addresses}
        return _engine().get_template(template).render({**common, **told})

    def page(self, request: Request, template: str, told: Mapping[str, Any], status: int = 200) -> Response:
        """A page."""
        theme = request.cookies.get(THEME, "auto")
        common = {"theme": theme if theme in THEMES else "auto", "path": request.url.path}
        return HTMLResponse(self.text(template, {**common, **told}), status, _HEADERS)

    def file(self, name: str) -> Response | None:
        """A file of ours; it never changes under its version, so browsers may keep it."""
        found = self.files.get(name)
        if found is None:
            return None
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
        return Response(found.body, headers=headers, media_type=found.kind)


def sealed_off(response: Response) -> Response:
    """The headers of a page, on an answer that is none."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


@cache
def _engine() -> Environment:
    """One for the process: it keeps the templates it has read."""
    engine = Environment(
        loader=PackageLoader("delayq.http.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.globals |= {
        "version": __version__,
        "navigation": NAVIGATION,
        "link": link,
        "job_link": job_link,
        "moment": wording.moment,
        "Scope": Scope,
    }
    numbers = (wording.compact, wording.exact, wording.plural, wording.size, wording.span, wording.minute)
    shares = (wording.milliseconds, wording.percent)
    engine.filters |= {one.__name__: one for one in (*numbers, *shares, wording.counted)}
    return engine


def _files() -> dict[str, File]:
    found = {}
    for one in sorted(files("delayq.http.dashboard").joinpath("static").iterdir(), key=lambda one: one.name):
        kind = _KINDS.get(one.name.rpartition(".")[2])
        if kind is not None:
            body = one.read_bytes()
            found[one.name] = File(body, kind, hashlib.sha256(body).hexdigest()[:12])
    return found
