"""The page that shows what Redis says of itself."""

from __future__ import annotations

from pathlib import Path

import httpx
import redis

from delayq import DelayQ
from delayq.core.api_keys import Scope, new_key
from tests.http.dashboard.test_guard import enter, locked
from tests.support.pages import read
from tests.support.servers import OwnServer
from tests.support.web import web

SECRET = "4111-1111-1111-1111"


async def test_what_the_server_says_of_itself(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", queue="orders")
    page = await read(api, "/redis")
    for word in ("Memory", "Peak", "Eviction policy", "Fragmentation", "Persistence", "Append-only file", "Clients"):
        assert word in page.text
    assert "Role primary" in page.text
    assert "The keys of 1 queue of delayq take about" in page.text
    assert "/redis" in page.links


async def test_slow_commands_are_shown_without_what_they_hold(own_server: OwnServer) -> None:
    server = own_server()
    with redis.Redis.from_url(server.url) as admin, DelayQ(server.url) as q:
        q.schedule("order.close", delay="1h", queue="orders")  # the server knows the script from now on
        admin.config_set("slowlog-log-slower-than", 0)
        q.schedule("order.close", {"card": SECRET}, id=f"order-{SECRET}", queue="orders")
        admin.set("elsewhere", SECRET)
        admin.config_set("slowlog-log-slower-than", -1)
        rows = admin.slowlog_get(20)
        assert any(SECRET.encode() in row["command"] for row in rows), "the server itself keeps it"
        admin.delete("elsewhere")
        async with web(server.url) as client:
            page = await read(client, "/redis")
    assert "EVALSHA schedule.lua" in page.text
    assert "delayq:{orders}:" in page.text
    assert "SET" in page.text
    assert SECRET not in page.source
    assert "elsewhere" not in page.source


async def test_a_user_without_the_right_is_told_which_is_missing(own_server: OwnServer) -> None:
    server = own_server()
    with redis.Redis.from_url(server.url) as admin:
        admin.acl_setuser(
            "narrow", enabled=True, passwords=["+word"], keys=["*"], channels=["*"], categories=["+@all"],
            commands=["-slowlog", "-info", "-client|list"],
        )  # fmt: skip
    url = server.url.replace("unix://", "unix://narrow:word@")
    async with web(url) as client:
        page = await read(client, "/redis")
    assert "may not send INFO, SLOWLOG, CLIENT LIST" in page.text
    assert "+info +slowlog +client|list" in page.text


async def test_only_an_admin_of_all_queues_may_look(redis_url: str, tmp_path: Path) -> None:
    writer, of_some, admin = (
        new_key(0, [Scope.WRITE]),
        new_key(0, [Scope.ADMIN], queues=["orders"]),
        new_key(0, [Scope.ADMIN]),
    )
    for (key, token), status in ((writer, 403), (of_some, 403), (admin, 200)):
        async with locked(redis_url, tmp_path, key) as client:
            await enter(client, token)
            await read(client, "/redis", status)
            assert ("/redis" in (await read(client, "/jobs")).links) == (status == 200)
