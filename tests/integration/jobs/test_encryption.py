"""Encrypted jobs on a real server and a real worker: nothing but the handler sees what they carry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import redis

from delayq import Job, JobContext, Manager, Settings, dispatch, dispatch_many, job, make_manager, using_manager
from delayq.core import envelope as envelopes
from delayq.core.errors import ConfigError
from delayq.core.states import State
from delayq.jobs.registry import using
from tests.support.keys import key, ring
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

SECRET = "4111-1111-1111-1111"


@pytest.fixture
def station(redis_url: str) -> Iterator[Station]:
    with Station(redis_url, keyring=ring("new", "old")) as station, using(station.registry):
        yield station


@pytest.fixture
def manager(station: Station) -> Iterator[Manager]:
    with managing(station, "new", "old") as manager:
        yield manager


def managing(station: Station, *keys: str, **settings: Any) -> Any:
    given = {"keys": ",".join(map(key, keys)) or None, **settings}
    return using_manager(make_manager(Settings(url=station.url, queue=QUEUE, **given)))


def everything_in(client: redis.Redis) -> str:
    """All that lies in that Redis, as text."""
    found: list[object] = []
    for name in client.scan_iter():
        match client.type(name):
            case b"hash":
                found.append(client.hgetall(name))
            case b"stream":
                found.append(client.xrange(name))
            case b"string":
                found.append(client.get(name))
            case b"zset":
                found.append(client.zrange(name, 0, -1, withscores=True))
            case b"set":
                found.append(client.smembers(name))
            case kind:
                raise AssertionError(f"nobody reads a {kind!r}")
    return str(found)


def partial_of(station: Station, job_id: str) -> object:
    told = station.client.progress(job_id)
    return told.partial if told else None


def declared(station: Station, kind: str) -> Any:
    """A job that takes a card and remembers it; how it is dispatched."""
    tape = station.tape()

    class Plain(Job, name="pay.class", encrypted=True):
        card: str
        seen: ClassVar[Any] = tape

        def handle(self) -> None:
            self.seen.append(self.card)

    class Async(Job, name="pay.async", encrypted=True):
        card: str

        async def handle(self) -> None:
            tape.append(self.card)

    @job("pay.function", encrypted=True)
    def function(card: str) -> None:
        tape.append(card)

    @job("pay.name")
    def named(card: str) -> None:
        tape.append(card)

    send = {
        "class": lambda: Plain(card=SECRET).dispatch(),
        "async": lambda: Async(card=SECRET).dispatch(),
        "function": lambda: function.job(card=SECRET).dispatch(),
        "at dispatch": lambda: named.job(card=SECRET).dispatch(encrypted=True),
        "by name": lambda: dispatch("pay.name", {"card": SECRET}, encrypted=True),
        "many": lambda: dispatch_many([Plain(card=SECRET)])[0],
        "client": lambda: station.client.schedule("pay.name", {"card": SECRET}, encrypted=True),
    }
    return tape, send[kind]


@pytest.mark.parametrize("kind", ["class", "async", "function", "at dispatch", "by name", "many", "client"])
@pytest.mark.usefixtures("manager")
def test_only_the_handler_reads_it(station: Station, redis_client: redis.Redis, kind: str) -> None:
    tape, send = declared(station, kind)
    ref = send()
    stored = everything_in(redis_client)
    assert SECRET not in stored
    assert "pay." in stored
    assert ref.id in stored
    station.drain()
    assert list(tape) == [SECRET]
    assert station.ends(ref.id) == ["done"]


def test_a_job_may_say_no_where_all_are_encrypted(station: Station, redis_client: redis.Redis) -> None:
    with managing(station, "new", encrypt="*"):
        dispatch("pay.name", {"card": SECRET})
        assert SECRET not in everything_in(redis_client)
        dispatch("pay.name", {"card": SECRET}, encrypted=False)
        assert SECRET in everything_in(redis_client)


def test_without_a_key_nothing_is_sent(station: Station, redis_client: redis.Redis) -> None:
    with managing(station), pytest.raises(ConfigError, match="no key to encrypt with"):
        dispatch("pay.name", {"card": SECRET}, encrypted=True)
    assert "pay.name" not in everything_in(redis_client)


def test_a_job_encrypted_with_an_old_key_still_runs(station: Station) -> None:
    tape, send = declared(station, "by name")
    with managing(station, "old"):
        send()
    station.drain()
    assert list(tape) == [SECRET]


def test_an_unknown_key_is_named(station: Station) -> None:
    tape, _send = declared(station, "by name")
    with managing(station, "lost"):
        ref = dispatch("pay.name", {"card": SECRET}, encrypted=True)
    with managing(station, "new"):
        dispatch("pay.name", {"card": "plain"})
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    info = station.job(ref.id)
    assert info.failure is not None
    assert info.failure.type == "UnknownKey"
    assert "'lost'; known here: new, old" in info.failure.message
    assert info.attempts == 3  # a worker that has the key may be next, so its tries are used
    assert list(tape) == ["plain"]
    assert key("lost").partition(":")[2] not in station.said()


def test_a_worker_without_keys_says_so(station: Station, redis_url: str) -> None:
    with managing(station, "new"):
        ref = dispatch("pay.name", {"card": SECRET}, encrypted=True, tries=1)
    with Station(redis_url) as other:
        other.handles("pay.name", lambda card: None)
        other.drain()
    info = station.job(ref.id)
    assert info.state is State.FAILED
    assert info.failure is not None
    assert "no keys are known here" in info.failure.message


def test_a_changed_payload_fails_at_once_and_the_worker_goes_on(station: Station) -> None:
    tape, send = declared(station, "class")
    with managing(station, "new"):
        ref = send()
        raw = station.job(ref.id).raw
        station.client.cancel(ref.id)
        data = re.sub(rb'("data":".{40})(.)', lambda found: found[1] + (b"B" if found[2] == b"A" else b"A"), raw)
        station.client.push_raw(data)
        send()
    station.drain()
    info = station.job(ref.id)
    assert (info.state, info.attempts) == (State.FAILED, 1)
    assert info.failure is not None
    assert info.failure.type == "BrokenSeal"
    assert "it was changed" in info.failure.message
    assert list(tape) == [SECRET]


@pytest.mark.parametrize("what", ["id", "name"])
def test_a_payload_that_was_moved_to_another_job_fails(station: Station, what: str) -> None:
    tape, send = declared(station, "class")
    station.handles("pay.other", tape.append)
    with managing(station, "new"):
        ref = send()
    changes = {"id": "moved"} if what == "id" else {"id": ref.id, "name": "pay.other"}
    raw = envelopes.rewrite(station.job(ref.id).raw, **changes)
    station.client.cancel(ref.id)
    moved = station.client.push_raw(raw)
    station.drain()
    info = station.job(moved.id)
    assert info.state is State.FAILED
    assert info.failure is not None
    assert "made for another job" in info.failure.message
    assert list(tape) == []


def test_an_entry_under_another_id_fails(station: Station, redis_client: redis.Redis) -> None:
    """The envelope as it was, under the id of another job: what the worker goes by is the entry's id."""
    tape, send = declared(station, "class")
    keys = station.keys()
    with managing(station, "new"):
        first, second = send(), send()
    redis_client.hset(keys.of("jobs"), second.id, station.job(first.id).raw)
    rows: Any = redis_client.xrange(keys.of("stream"))
    [(entry, fields)] = [(entry, fields) for entry, fields in rows if fields[b"id"] == second.id.encode()]
    redis_client.xdel(keys.of("stream"), entry)
    made = redis_client.xadd(keys.of("stream"), {**fields, b"job": station.job(first.id).raw})
    redis_client.hset(keys.of("entries"), second.id, made)
    station.drain()
    info = station.job(second.id)
    assert info.failure is not None
    assert info.failure.type == "BrokenSeal"
    assert list(tape) == [SECRET]


@pytest.mark.usefixtures("manager")
def test_a_retry_reads_it_again_and_the_failed_hook_too(station: Station, redis_client: redis.Redis) -> None:
    tape = station.tape()

    class Declined(Job, name="pay.declined", encrypted=True, tries=2, backoff="0s"):
        card: str

        def handle(self, context: JobContext) -> None:
            tape.append((context.attempt, self.card))
            raise RuntimeError("declined")

        def failed(self, error: BaseException) -> None:
            tape.append(("failed", self.card))

    ref = Declined(card=SECRET).dispatch()
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    assert list(tape) == [(1, SECRET), (2, SECRET), ("failed", SECRET)]
    assert SECRET not in everything_in(redis_client)
    station.client.retry(ref.id)
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    assert list(tape)[3:] == [(1, SECRET), (2, SECRET), ("failed", SECRET)]


@pytest.mark.usefixtures("manager")
def test_results_and_partial_results_are_hidden_too(station: Station, redis_client: redis.Redis) -> None:
    go = station.flag()

    @job("pay.report", encrypted=True, retention="1h")
    def report(context: JobContext, card: str) -> dict[str, str]:
        context.progress(1, 2, "half")
        context.partial({"card": card})
        assert go.wait(50)
        return {"card": card}

    ref = report.job(SECRET).dispatch()
    with station.working():
        wait_until(lambda: partial_of(station, ref.id) is not None, what="it told a partial result")
        assert SECRET not in everything_in(redis_client)
        assert partial_of(station, ref.id) == {"card": SECRET}
        go.set()
        station.until(ref.id, State.COMPLETED)
    assert SECRET not in everything_in(redis_client)
    info = station.job(ref.id)
    assert (info.data, info.result) == ({"card": SECRET}, {"card": SECRET})
    with Station(station.url) as other:
        blind = other.job(ref.id)
        assert (blind.encrypted, blind.data) == (True, None)
        assert SECRET not in str(blind)


@pytest.mark.usefixtures("manager")
def test_a_replacement_is_encrypted_anew_and_a_postponement_keeps_its_bytes(station: Station) -> None:
    ref = dispatch("pay.name", {"card": SECRET}, id="one", delay="1h", encrypted=True)
    first = station.job(ref.id).envelope
    dispatch("pay.name", {"card": "other"}, id="one", delay="2h", encrypted=True, on_conflict="postpone")
    postponed = station.job(ref.id)
    dispatch("pay.name", {"card": "other"}, id="one", delay="2h", encrypted=True, on_conflict="replace")
    replaced = station.job(ref.id)
    assert first is not None
    assert postponed.envelope is not None
    assert postponed.envelope.data == first.data
    assert (postponed.data, replaced.data) == ({"card": SECRET}, {"card": "other"})


def test_what_does_not_travel_needs_no_key(station: Station) -> None:
    tape, _ = declared(station, "class")
    handler = station.registry.get("pay.class")
    with managing(station):
        handler.kind(card=SECRET).dispatch_sync()  # type: ignore[attr-defined]  # the handler of a class
        handler.kind(card=SECRET).dispatch(connection="sync")  # type: ignore[attr-defined]
    assert list(tape) == [SECRET, SECRET]
