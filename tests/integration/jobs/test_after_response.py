"""Jobs that wait for a web response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pytest

from delayq import Job
from delayq.core.errors import ConfigError
from delayq.core.views import Fate
from delayq.jobs.after_response import AfterResponse, AfterResponseWSGI

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def note(station: Any) -> Any:
    class Note(Job):
        what: str
        log: ClassVar[list[str]] = []

        def handle(self) -> None:
            self.log.append(f"job {self.what}")
            if self.what == "bad":
                raise ValueError("broken")

        def failed(self, error: BaseException) -> None:
            self.log.append(f"failed {self.what}")

    return Note


async def call(app: Any, log: list[str]) -> None:
    async def send(message: Any) -> None:
        log.append(str(message["type"]))

    async def receive() -> Any:
        return {"type": "http.request"}

    await AfterResponse(app)({"type": "http"}, receive, send)


async def test_asgi_runs_them_in_order_once_the_response_is_out(note: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        ref = note(what="one").dispatch_after_response()
        assert (ref.outcome, ref.name) == (Fate.AFTER_RESPONSE, "Note")
        await send({"type": "http.response.start"})
        await asyncio.to_thread(note(what="bad").on_queue("x").dispatch_after_response)
        note(what="two").dispatch_after_response()
        await send({"type": "http.response.body"})

    await call(app, note.log)
    assert note.log == ["http.response.start", "http.response.body", "job one", "job bad", "failed bad", "job two"]


async def test_asgi_runs_them_also_after_an_error(note: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        note(what="one").dispatch_after_response()
        raise RuntimeError("500")

    with pytest.raises(RuntimeError, match="500"):
        await call(app, note.log)
    assert note.log == ["job one"]


async def test_two_requests_do_not_mix(note: Any) -> None:
    both = asyncio.Barrier(2)

    def app_of(name: str) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            note(what=name).dispatch_after_response()
            await both.wait()
            await send({"type": f"end {name}"})

        return app

    one: list[str] = []
    two: list[str] = []
    await asyncio.gather(call(app_of("a"), one), call(app_of("b"), two))
    assert sorted(note.log) == ["job a", "job b"]


def test_wsgi_runs_them_when_the_server_closes_the_body(note: Any) -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        note(what="early").dispatch_after_response()

        def body() -> Iterator[bytes]:
            try:
                yield b"a"
                note(what="late").dispatch_after_response()
                yield b"b"
            finally:
                note.log.append("closed")

        return body()

    body: Any = AfterResponseWSGI(app)({}, lambda *words: None)
    assert list(body) == [b"a", b"b"]
    note.log.append("read")
    body.close()
    assert note.log == ["closed", "read", "job early", "job late"]
    body.close()
    assert len(note.log) == 4


def test_wsgi_runs_them_also_after_an_error(note: Any) -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        note(what="one").dispatch_after_response()
        raise RuntimeError("500")

    with pytest.raises(RuntimeError, match="500"):
        AfterResponseWSGI(app)({}, lambda *words: None)
    assert note.log == ["job one"]


def test_outside_of_a_request_it_is_refused(note: Any) -> None:
    with pytest.raises(ConfigError, match="No response is under way"):
        note(what="one").dispatch_after_response()
    assert note.log == []


async def test_what_is_no_http_passes_through(note: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(ConfigError):
            note(what="one").dispatch_after_response()

    await AfterResponse(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
