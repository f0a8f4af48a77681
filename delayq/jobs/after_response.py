"""Jobs that run in a web process once its response is sent, as Laravel's dispatchAfterResponse.

    app = AfterResponse(app)          ASGI: Starlette, FastAPI, Django under ASGI
    app = AfterResponseWSGI(app)      WSGI: Flask, Django

Inside a request, `job.dispatch_after_response()` keeps the job; the middleware runs what was kept when the response
is out, in order, whatever its status. For small things that may be lost with the process. An error is logged, after
the job's `failed` hook, and does not keep the next one from running.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeAlias

from delayq.core import envelope as envelopes
from delayq.core.outcome import GiveUp
from delayq.drivers.deferred import kept_jobs
from delayq.drivers.sync import Ran
from delayq.jobs.current import current_manager
from delayq.jobs.running import LocalRunner

log = logging.getLogger("delayq.jobs")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Wsgi: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class AfterResponse:
    """ASGI middleware. What is not HTTP (lifespan, websocket) passes through untouched."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kept: list[bytes] = []
        token = kept_jobs.set(kept)
        try:
            await self._app(scope, receive, send)
        finally:
            kept_jobs.reset(token)
            for envelope in kept:
                try:
                    _report(await LocalRunner(current_manager).arun(envelope), envelope)
                except Exception as error:  # noqa: BLE001  (no handler for it, say: the next job runs all the same)
                    _log(error, envelope)


class AfterResponseWSGI:
    """WSGI middleware. The server calls `close` on the body when the response is sent; that is the moment."""

    def __init__(self, app: Wsgi) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return _Body(self._app, environ, start_response)


class _Body:
    """The body of one response, and the jobs kept while it was made."""

    def __init__(self, app: Wsgi, environ: dict[str, Any], start_response: Callable[..., Any]) -> None:
        self._jobs: list[bytes] = []
        token = kept_jobs.set(self._jobs)
        try:
            self._parts = app(environ, start_response)
        except BaseException:
            self._run()
            raise
        finally:
            kept_jobs.reset(token)

    def __iter__(self) -> Iterator[bytes]:
        parts = iter(self._parts)
        while True:
            token = kept_jobs.set(self._jobs)  # a body that is made while it is read may keep jobs too
            try:
                part = next(parts)
            except StopIteration:
                return
            finally:
                kept_jobs.reset(token)
            yield part

    def close(self) -> None:
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
        finally:
            self._run()

    def _run(self) -> None:
        jobs, self._jobs = self._jobs, []
        for envelope in jobs:
            try:
                _report(LocalRunner(current_manager).run(envelope), envelope)
            except Exception as error:  # noqa: BLE001
                _log(error, envelope)


def _report(ran: Ran, envelope: bytes) -> None:
    if isinstance(ran.outcome, GiveUp):
        _log(ran.outcome.error, envelope)


def _log(error: BaseException, envelope: bytes) -> None:
    job = envelopes.decode(envelope)
    log.error("job %s (%s) failed after the response: %r", job.id, job.name, error, exc_info=error)
