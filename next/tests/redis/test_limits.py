"""Operations on limits, with both clients."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq import AsyncDelayQ, DelayQ, InvalidInput, LimitInfo, LimitNotFound, RateLimit
from delayq.redis.operations import limits
from tests.support.waiting import wait_until


def acquire(client: DelayQ, job: str, *, name: str = "mail", limit: int = 2, key: str = "", ms: int = 70_000) -> Any:
    return client.limits.acquire(name, limit, holder=f"orders {job}", key=key, expire_ms=ms)


@pytest.fixture
def blocking(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url, prefix="test") as client:
        yield client


def test_limits_are_listed_with_their_places(blocking: DelayQ) -> None:
    assert blocking.limits.list() == []
    for job in "abc":
        acquire(blocking, job)
    acquire(blocking, "d", key="ann")
    acquire(blocking, "e", name="api", key="bob")
    assert blocking.limits.take("sms", RateLimit.per_day(1))
    assert not blocking.limits.take("sms", RateLimit.per_day(1))
    api, mail, sms = blocking.limits.list()
    assert api == LimitInfo("api", 1, 0, [("bob", 1)])
    assert (mail.name, mail.granted, mail.refused, sorted(mail.places), mail.held) == (
        "mail",
        3,
        1,
        [("", 2), ("ann", 1)],
        3,
    )
    assert sms == LimitInfo("sms", 1, 1, [])


def test_freed_and_expired_places_are_not_listed(blocking: DelayQ, server: redis.Redis) -> None:
    until = acquire(blocking, "a")
    assert blocking.limits.release("mail", holder="orders a", expires_ms=until)
    assert not blocking.limits.release("mail", holder="orders a", expires_ms=until)
    acquire(blocking, "b", key="ann", ms=1)
    acquire(blocking, "c", key="bob")
    wait_until(lambda: blocking.limits.list()[0].places == [("bob", 1)])


def test_free(blocking: DelayQ) -> None:
    for job in "ab":
        acquire(blocking, job, key="ann")
        acquire(blocking, job, key="bob")
    acquire(blocking, "c")
    assert blocking.limits.free("mail", "ann", job="a") == 1
    assert blocking.limits.free("mail", "ann", job="a") == 0
    assert blocking.limits.free("mail", job="b") == 2
    assert blocking.limits.free("mail", "bob") == 1
    assert blocking.limits.free("mail") == 1
    (mail,) = blocking.limits.list()
    assert mail.held == 0
    with pytest.raises(LimitNotFound, match="No limit has the name 'nail'"):
        blocking.limits.free("nail")
    with pytest.raises(InvalidInput):
        blocking.limits.free("my mail")


def test_a_lost_list_of_limits_is_written_again(
    blocking: DelayQ, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire(blocking, "a")
    server.delete("test:limits")
    acquire(blocking, "b")
    assert blocking.limits.list() == []
    monkeypatch.setattr(limits, "LIST_EVERY", 0.0)
    acquire(blocking, "a", name="api")
    acquire(blocking, "b", name="api")
    server.delete("test:limits")
    acquire(blocking, "c", name="api", limit=9)
    assert [one.name for one in blocking.limits.list()] == ["api"]


@pytest.mark.parametrize("field", ["name", "limit", "key"])
def test_wrong_arguments_are_refused_before_anything_is_sent(blocking: DelayQ, field: str) -> None:
    arguments: dict[str, Any] = {"name": "mail", "limit": 1, "holder": "orders a", "key": "", "expire_ms": 1}
    arguments[field] = {"name": "my mail", "limit": 0, "key": "a\n"}[field]
    with pytest.raises(InvalidInput) as refused:
        blocking.limits.acquire(arguments.pop("name"), arguments.pop("limit"), **arguments)
    assert refused.value.field == field


def test_the_asyncio_client_has_the_same_operations(blocking: DelayQ, url: str) -> None:
    async def use() -> None:
        client = AsyncDelayQ(url, prefix="test")
        until = await client.limits.acquire("mail", 1, holder="orders a", expire_ms=70_000)
        assert until is not None
        assert await client.limits.acquire("mail", 1, holder="orders b", expire_ms=70_000) is None
        assert (await client.limits.list())[0].places == [("", 1)]
        assert await client.limits.release("mail", holder="orders a", expires_ms=until)
        assert await client.limits.free("mail") == 0
        assert await client.limits.take("sms", RateLimit.per_day(1))
        await client.close()

    asyncio.run(use())


@pytest.mark.parametrize("ms", [0, -5, 10**30, "5s", None, True])
def test_a_place_without_a_valid_length_is_refused(blocking: DelayQ, server: redis.Redis, ms: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^expire_ms is"):
        acquire(blocking, "a", ms=ms)
    with pytest.raises(InvalidInput, match=r"^expires_ms is"):
        blocking.limits.release("mail", holder="orders a", expires_ms=-1 if ms == 0 else ms)
    assert server.keys() == []


@pytest.mark.parametrize("job", ["é" * 120, "order 42", "{x}"])
def test_a_job_with_the_id_of_another_program_gets_its_place(blocking: DelayQ, job: str) -> None:
    ends = acquire(blocking, job)
    assert blocking.limits.release("mail", holder=f"orders {job}", expires_ms=ends)


@pytest.mark.parametrize("holder", [None, 5, "", "orders", "orders ", " a", "orders \udc80"])
def test_a_holder_needs_a_queue_and_an_id(blocking: DelayQ, holder: Any) -> None:
    with pytest.raises(InvalidInput, match="The holder of a place is"):
        blocking.limits.acquire("mail", 1, holder=holder, expire_ms=1_000)
