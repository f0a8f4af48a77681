"""lock list, show, free."""

from __future__ import annotations

import asyncio

import pytest

from delayq import AsyncDelayQ, DelayQ, Unique
from delayq.core.errors import LockNotFound
from delayq.core.states import Answer
from tests.cli.conftest import Inline

NOT_FOUND, USAGE = 3, 2
KEY = "invoice:42"


@pytest.fixture
def owners(q: DelayQ) -> dict[str, str]:
    """A lock of every kind, and a window whose job is gone: what each is called, by its owner."""
    q.schedule("act", id="done", unique=KEY, delay="1h")
    q.schedule("act", id="start", unique=Unique(until="start"))
    q.schedule("act", id="window", unique=Unique(until="window", window="1h"), queue="vip", delay="1h")
    q.schedule("act", id="gone", unique=Unique(key="k", until="window", window="1h"), queue="vip", delay="1h")
    q.cancel("gone", queue="vip")
    return {view.owner: view.lock for view in q.locks.all()}


def test_every_lock_is_listed_with_its_owner(inline: Inline, owners: dict[str, str]) -> None:
    heads, *lines = [line.split() for line in inline.ok("lock", "list").lines]
    assert heads == ["lock", "queue", "until", "owner", "name", "state", "since", "ends"]
    assert [line[:6] for line in lines[:2]] == [
        [owners["done"], "default", "done", "done", "act", "scheduled"],
        [owners["start"], "default", "start", "start", "act", "ready"],
    ]
    rows = {row["owner"]: row for row in inline.ok("lock", "list", "--queue", "vip", "--json").documents}
    assert sorted(rows) == ["gone", "window"]
    assert (rows["gone"]["state"], rows["gone"]["name"], rows["gone"]["since_ms"]) == ("absent", None, None)
    window = rows["window"]
    assert (window["until"], window["state"], window["lock"]) == ("window", "scheduled", owners["window"])
    assert abs(window["ends_ms"] - window["since_ms"] - 3_600_000) < 60_000
    assert len(inline.ok("lock", "list", "--limit", "3", "--json").documents) == 3


@pytest.mark.usefixtures("owners")
def test_show_by_name_or_by_key(inline: Inline, owners: dict[str, str]) -> None:
    by_key = inline.ok("lock", "show", "--key", KEY, "--json").json
    assert by_key == inline.ok("lock", "show", owners["done"], "--json").json
    assert (by_key["owner"], by_key["until"], by_key["ends"]) == ("done", "done", None)
    assert "done" in inline.ok("lock", "show", "--key", KEY).out
    assert inline("lock", "show", "--key", "other").code == NOT_FOUND
    assert inline("lock", "show").code == USAGE
    assert inline("lock", "show", "d", "--key", "k").code == USAGE


def test_free_lets_the_next_one_in_and_is_on_record(inline: Inline, owners: dict[str, str], q: DelayQ) -> None:
    assert q.schedule("act", unique=KEY).outcome is Answer.KEPT
    done = inline.ok("lock", "free", "--key", KEY, "--reason", "it was moved")
    assert (done.out, "on record: delayq audit" in done.err) == ("done\n", True)
    [deed] = q.audit_log.last()
    assert (deed.what, deed.target, deed.detail) == ("lock free", f"default {owners['done']}", "done")
    assert deed.reason == "it was moved"
    assert q.get("done") is not None, "its owner goes on"
    assert q.schedule("act", unique=KEY, delay="1h").outcome is Answer.CREATED
    freed = inline.ok("lock", "free", owners["gone"], "--queue", "vip", "--reason", "x", "--json").json
    assert (freed["owner"], freed["state"]) == ("gone", "absent")


@pytest.mark.usefixtures("owners")
def test_what_nobody_holds_is_not_freed_and_not_on_record(inline: Inline, q: DelayQ) -> None:
    missing = inline("lock", "free", "d", "--reason", "x")
    assert (missing.code, missing.out) == (NOT_FOUND, "")
    assert "Nobody holds the lock 'd' in queue 'default'." in missing.err
    assert inline("lock", "free", "--key", KEY, "--reason", " ").code == USAGE
    assert q.audit_log.last() == []


def test_the_async_shell_sees_the_same(redis_url: str, owners: dict[str, str], q: DelayQ) -> None:
    async def both() -> None:
        async with AsyncDelayQ(redis_url) as aq:
            assert await aq.locks.all() == q.locks.all()
            assert (await aq.locks.get(owners["done"])).owner == "done"
            assert (await aq.locks.free(owners["done"], reason="async")).owner == "done"

    asyncio.run(both())
    with pytest.raises(LockNotFound):
        q.locks.get(owners["done"])
