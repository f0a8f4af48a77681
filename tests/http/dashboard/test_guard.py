"""Who is let in, what he may do, and whose forms are taken."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import redis

from delayq import DelayQ
from delayq.core.api_keys import ApiKey, Scope, format_line, new_key
from delayq.http.dashboard.guard import SESSION
from delayq.http.seal import Seal
from delayq.http.seals import FRESH_S
from tests.support.failing import fail_job
from tests.support.job_types import report
from tests.support.pages import Page, confirm, read, send
from tests.support.servers import OwnServer
from tests.support.web import web

JOB = "/job?queue=orders&id=a"


@pytest.fixture
def waiting(q: DelayQ) -> DelayQ:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    return q


def there(q: DelayQ) -> bool:
    return q.get("a", queue="orders") is not None


async def test_a_form_without_its_mark_does_nothing(api: httpx.AsyncClient, waiting: DelayQ) -> None:
    page = await read(api, JOB)
    for mark in ("", "x", Seal().mark("form", "y")):
        found = await send(api, page, "/job/cancel", 403, mark=mark)
        assert "This form is not ours" in found.text
    assert there(waiting)


async def test_a_mark_is_of_one_browser(api: httpx.AsyncClient, waiting: DelayQ) -> None:
    page = await read(api, JOB)
    api.cookies.clear()
    await send(api, page, "/job/cancel", 403)
    assert there(waiting)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_pages_of_others_send_nothing(api: httpx.AsyncClient, waiting: DelayQ, headers: dict[str, str]) -> None:
    fields = dict((await read(api, JOB)).form("/job/cancel").fields)
    answer = await api.post("/job/cancel", data=fields, headers=headers)
    assert answer.status_code == 403
    assert there(waiting)


async def test_an_address_changes_nothing(api: httpx.AsyncClient, waiting: DelayQ) -> None:
    for path in ("/job/cancel?queue=orders&id=a", "/queues/orders/pause", "/failed/picked", "/logout"):
        assert (await api.get(path)).status_code == 405
    assert there(waiting)


async def test_a_name_that_was_pointed_here_reads_nothing(api: httpx.AsyncClient, waiting: DelayQ) -> None:
    answer = await api.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "orders" not in answer.text


# -- keys ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def locked(redis_url: str, folder: Path, *keys: ApiKey) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with these keys."""
    path = folder / "keys"
    path.write_text("".join(f"{format_line(key)}\n" for key in keys))
    async with web(redis_url, api_keys_file=str(path)) as client:
        yield client


async def enter(client: httpx.AsyncClient, token: str, status: int = 200, following: str = "/") -> Page:
    page = await read(client, f"/login?next={following}")
    return await send(client, page, "/login", status, key=token)


async def test_without_a_key_there_is_only_the_door(redis_url: str, waiting: DelayQ, tmp_path: Path) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    async with locked(redis_url, tmp_path, key) as client:
        page = await read(client, JOB)
        assert page.url.path == "/login"
        assert "order.close" not in page.source
        for wrong in ("", "x", token[:-1], f"{token}x"):
            assert "not known here" in (await enter(client, wrong, 403)).text
        answer = await client.get("/events?page=overview")
        assert answer.status_code == 303
        page = await enter(client, token, following="/job%3Fqueue%3Dorders%26id%3Da")
        assert page.url.path == "/job"
        assert "order.close" in page.text
        page = await send(client, page, "/logout")
        assert page.url.path == "/login"
        assert (await read(client, "/")).url.path == "/login"


async def test_a_session_is_signed_and_ends_with_its_key(redis_url: str, tmp_path: Path) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    async with locked(redis_url, tmp_path, key) as client:
        await enter(client, token)
        session = client.cookies[SESSION]
        assert token not in session
        head = (await client.post("/theme")).headers  # no mark: refused, but with the session still there
        assert "set-cookie" not in head
        client.cookies.clear()
        client.cookies.set(SESSION, session[:-2] + ("aa" if session[-2:] != "aa" else "bb"))
        assert (await read(client, "/")).url.path == "/login"
        client.cookies.clear()
        client.cookies.set(SESSION, Seal().sign(SESSION, f"{key.id} 99999999999 x"))
        assert (await read(client, "/")).url.path == "/login"


async def test_a_session_holds_on_every_server_and_after_a_restart(
    redis_url: str, waiting: DelayQ, tmp_path: Path
) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    async with locked(redis_url, tmp_path, key) as first:
        await enter(first, token)
        page, cookies = await read(first, JOB), first.cookies
    async with locked(redis_url, tmp_path, key) as second:
        second.cookies = cookies
        assert (await read(second, "/")).url.path == "/"
        await send(second, page, "/job/cancel", 403, mark="x")
        assert there(waiting)
        assert "The job was cancelled" in (await confirm(second, page, "/job/cancel")).text  # the form of the first one
    assert not there(waiting)


async def test_a_log_out_ends_the_session_on_every_server(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    assert FRESH_S == 1.0
    monkeypatch.setattr("delayq.http.seals.FRESH_S", 0.0)
    async with locked(redis_url, tmp_path, key) as first, locked(redis_url, tmp_path, key) as second:
        page = await enter(first, token)
        kept = first.cookies[SESSION]
        second.cookies.set(SESSION, kept)
        assert (await read(second, "/audit")).url.path == "/audit"
        await send(first, page, "/logout")
        for server in (first, second):
            server.cookies.clear()
            server.cookies.set(SESSION, kept)
            assert (await read(server, "/audit")).url.path == "/login"
        assert (await enter(second, token)).url.path == "/"


async def test_a_log_out_ends_the_open_streams_on_every_server(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    monkeypatch.setattr("delayq.http.seals.FRESH_S", 0.0)
    monkeypatch.setattr("delayq.http.dashboard.live.SILENT_S", 0.05)
    async with locked(redis_url, tmp_path, key) as first, locked(redis_url, tmp_path, key) as second:
        page = await enter(first, token)
        second.cookies.set(SESSION, first.cookies[SESSION])
        streams = [asyncio.create_task(one.get("/events?page=overview")) for one in (first, second)]
        done, _ = await asyncio.wait(streams, timeout=0.5)
        assert not done
        await send(first, page, "/logout")
        answers = await asyncio.wait_for(asyncio.gather(*streams), 10)
        assert [answer.status_code for answer in answers] == [200, 200]


async def test_a_revoked_key_ends_its_open_streams(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    monkeypatch.setattr("delayq.http.keys.LOOK_S", 0.0)
    monkeypatch.setattr("delayq.http.dashboard.live.SILENT_S", 0.05)
    async with locked(redis_url, tmp_path, key) as client:
        await enter(client, token)
        stream = asyncio.create_task(client.get("/events?page=overview"))
        done, _ = await asyncio.wait([stream], timeout=0.5)
        assert not done
        file = tmp_path / "keys"
        file.write_text(file.read_text().replace('"id"', '"revoked_ms":5,"id"'))
        assert (await asyncio.wait_for(stream, 10)).status_code == 200


async def test_a_browser_gets_a_page_for_an_unknown_address(api: httpx.AsyncClient) -> None:
    answer = await api.get("/no-such-page", headers={"accept": "text/html,application/xhtml+xml"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "Page not found" in Page(answer).text
    for path, accept in (("/no-such-page", "application/json"), ("/v1/no-such", "text/html")):
        found = await api.get(path, headers={"accept": accept})
        assert found.headers["content-type"] == "application/problem+json"


async def test_who_reads_redis_makes_himself_no_session(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    async with locked(redis_url, tmp_path, key) as client:
        await enter(client, token)
        stolen = redis_client.get("delayq:secret")
        assert isinstance(stolen, bytes)
        for purpose in (SESSION, f"{SESSION} "):
            made = Seal(hashlib.sha256(stolen).digest()).sign(purpose, f"{key.id} 99999999999 x")
            client.cookies.clear()
            client.cookies.set(SESSION, made)
            assert (await read(client, "/")).url.path == "/login"
        made = Seal(hashlib.sha256(stolen).digest()).sign(f"{SESSION} {key.hash}", f"{key.id} 99999999999 x")
        client.cookies.set(SESSION, made)
        assert (await read(client, "/")).url.path == "/"  # it is the hash alone that kept him out


async def test_a_cookie_is_out_of_reach_of_scripts(redis_url: str, tmp_path: Path) -> None:
    key, token = new_key(0, [Scope.READ])
    async with locked(redis_url, tmp_path, key) as client:
        answer = await client.post("/login", data={"key": token, "next": "//evil.example/"})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        words = {word.strip().lower() for word in answer.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/"} <= words


async def test_who_may_only_read_finds_no_buttons_and_is_refused(
    redis_url: str, waiting: DelayQ, tmp_path: Path
) -> None:
    fail_job(waiting, "broken", "no", queue="mail")
    reader, reads = new_key(0, [Scope.READ])
    async with locked(redis_url, tmp_path, reader) as client:
        page = await enter(client, reads)
        for path in (JOB, "/queues/orders", "/failed", "/jobs", "/failed/all?act=retry"):
            page = await read(client, path)
            assert {form.action for form in page.forms if form.method == "post"} == {"/theme", "/logout"}
        mark = dict(page.form("/theme").fields)["mark"]
        for action in ("/job/cancel", "/failed/picked", "/failed/all", "/queues/orders/pause", "/limits/free"):
            answer = await client.post(action, data={"mark": mark, "queue": "orders", "id": "a", "act": "forget"})
            assert (answer.status_code, "Not allowed" in answer.text) == (403, True)
    assert there(waiting)


async def test_who_may_write_may_not_pause(redis_url: str, waiting: DelayQ, tmp_path: Path) -> None:
    writer, writes = new_key(0, [Scope.WRITE], label="billing")
    async with locked(redis_url, tmp_path, writer) as client:
        await enter(client, writes)
        page = await send(client, await read(client, JOB), "/job/run-now")
        assert "it is ready" in page.text
        assert "/queues/orders/pause" not in (await read(client, "/queues/orders")).source
    [entry] = waiting.audit_log.last()
    assert (entry.who, entry.door) == (f"key {writer.id} billing", "page")


@pytest.mark.parametrize(
    ("scope", "queues", "page", "api"),
    [(Scope.READ, [], 403, 403), (Scope.WRITE, [], 403, 403), (Scope.ADMIN, ["orders"], 403, 403),
     (Scope.ADMIN, [], 200, 200)],
)  # fmt: skip
async def test_the_audit_log_is_behind_one_permission(
    redis_url: str, waiting: DelayQ, tmp_path: Path, scope: Scope, queues: list[str], page: int, api: int
) -> None:
    key, token = new_key(0, [scope], queues=queues)
    async with locked(redis_url, tmp_path, key) as client:
        await enter(client, token)
        await read(client, "/audit", page)
        assert ('href="/audit"' in (await read(client, "/jobs")).source) == (page == 200)
        answer = await client.get("/v1/audit", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == api


async def test_a_key_of_one_queue_sees_no_other(redis_url: str, waiting: DelayQ, tmp_path: Path) -> None:
    waiting.schedule("mail.send", delay="1h", id="b", queue="mail")
    report(waiting, "mail", "mail.send", [1.0], done=1)
    key, token = new_key(0, [Scope.ADMIN], queues=["orders"])
    async with locked(redis_url, tmp_path, key) as client:
        await enter(client, token)
        for path in ("/", "/queues", "/jobs", "/jobs?state=failed", "/failed", "/job-types", "/workers"):
            assert "mail" not in (await read(client, path)).text
        for path in ("/queues/mail", "/job?queue=mail&id=b", "/jobs?queue=mail", "/job-types?queue=mail"):
            assert "Wrong queue" in (await read(client, path, 400)).text
        for path in ("/batches", "/limits", "/audit"):
            assert "Not allowed" in (await read(client, path, 403)).text
        menu = (await read(client, "/jobs")).links
        assert {"/", "/queues", "/jobs", "/failed", "/workers"} <= set(menu)
        assert not {"/batches", "/limits", "/audit"} & set(menu)
        await read(client, "/job?id=b", 404)
        page = await read(client, JOB)
        await send(client, page, "/job/cancel", 400, queue="mail", id="b")
    assert waiting.get("b", queue="mail") is not None


# -- without Redis -----------------------------------------------------------------------------------------------------


async def test_without_redis_the_pages_say_so(own_server: OwnServer) -> None:
    server = own_server()
    async with web(server.url) as client:
        await read(client, "/")
        server.kill()
        for path in ("/", JOB):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "5"
            assert "Redis does not answer" in Page(answer).text
