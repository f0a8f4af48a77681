"""Garbage in the stream and in payloads: dead-lettered with the reason, and the loop lives."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from delayq.core.states import State
from delayq.worker.options import StopReason
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

JOB = b'{"v":1,"id":"stray","name":"note","queue":"orders","data":null,"attempts":0,"created_ms":0}'
DEEP = b"[" * 100_000 + b"]" * 100_000

ENTRIES: dict[str, dict[bytes, bytes]] = {
    "foreign fields": {b"temperature": b"21", b"unit": b"C"},
    "bytes": {b"\xff\xfe": b"\x00\x80"},
    "an id and no job": {b"id": b"o9"},
    "a job and no id": {b"job": JOB},
    "no JSON": {b"id": b"o9", b"job": b"\xff\x00garbage"},
    "no envelope": {b"id": b"o9", b"job": b'{"hello":1}'},
    "deep": {b"id": b"o9", b"job": DEEP},
    "deep data": {b"id": b"o9", b"job": JOB.replace(b'"data":null', b'"data":' + DEEP)},
    "a later version": {b"id": b"o9", b"job": JOB.replace(b'"v":1', b'"v":99')},
    "numbers of 5,000 digits": {b"id": b"o9", b"job": JOB, b"due": b"9" * 5_000, b"recoveries": b"8" * 5_000},
    "numbers that are none": {b"id": b"o9", b"job": JOB, b"due": b"soon", b"recoveries": b"-1"},
    "an id of bytes": {b"id": b"\xff\xfe\x00", b"job": JOB},
    "an empty id": {b"id": b"", b"job": JOB},
    "a stray copy": {b"id": b"stray", b"job": JOB},
}


def put(station: Station, fields: dict[bytes, bytes]) -> str:
    """Append an entry as a stranger would; its id."""
    station.connector.commands().sadd("delayq:queues", QUEUE)  # a queue off the list is forgotten while it is empty
    station.driver.tidy(QUEUE)
    entry: bytes = station.connector.commands().xadd(station.keys().stream, fields)  # type: ignore[arg-type, assignment]
    return entry.decode()


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_that_is_no_job_is_dead_lettered_and_the_loop_lives(station: Station, name: str) -> None:
    ran = station.tape()
    station.handles("note", lambda n=0: ran.append(n))
    entry = put(station, ENTRIES[name])
    station.client.schedule("note", {"n": 7}, id="good")
    assert station.drain() is StopReason.EMPTY
    assert 7 in ran
    buried = station.job(f"x-{entry}")
    assert buried.state is State.FAILED
    assert buried.failure is not None
    assert buried.failure.type == "Garbage"
    assert buried.raw == ENTRIES[name].get(b"job", buried.raw), "the bytes are kept"
    stats = station.client.stats(QUEUE)[0]
    assert (stats.ready, stats.reserved, stats.failed) == (0, 0, 1)
    assert station.connector.commands().xlen(station.keys().stream) == 0
    said = station.said()
    assert f"queue {QUEUE}, entry {entry}: This stream entry" in said
    assert f"It is kept as failed job x-{entry}." in said
    assert "taken back meanwhile" not in said
    assert station.fences() == []


def test_an_entry_of_sixty_megabytes(station: Station) -> None:
    ran = station.tape()
    station.handles("note", lambda n=0: ran.append(n))
    entry = put(station, {b"id": b"big", b"job": b"x" * 60_000_000})
    station.client.schedule("note", {"n": 7}, id="good")
    assert station.drain() is StopReason.EMPTY
    assert ran == [7]
    assert station.client.stats(QUEUE)[0].failed == 1
    assert station.connector.commands().zscore(station.keys().of("failed"), f"x-{entry}")
    assert station.client.forget([f"x-{entry}"], queue=QUEUE)[0] == "forgotten"


def test_a_copy_of_a_job_that_waits_elsewhere_is_dropped(station: Station) -> None:
    """It may run, because it looks like a job; it must not run again and again, nor take the job's place."""
    ran = station.tape()
    station.handles("note", lambda n=0: ran.append(n))
    station.client.schedule("note", {"n": 1}, id="o1", delay="1h")
    waiting = station.job("o1")
    put(station, {b"id": b"o1", b"job": waiting.raw})
    station.drain()
    assert ran in ([], [1])
    assert station.job("o1") == waiting
    stats = station.client.stats(QUEUE)[0]
    assert (stats.scheduled, stats.ready, stats.reserved, stats.failed) == (1, 0, 0, 0)


PAYLOADS: dict[str, Any] = {
    "no envelope": b"\xff\x00garbage",
    "no JSON": b"{",
    "deep": DEEP,
    "a later version": JOB.replace(b'"v":1', b'"v":99'),
    "deep data": JOB.replace(b'"data":null', b'"data":' + DEEP),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_somebody_overwrote_is_failed_with_the_reason(station: Station, name: str) -> None:
    ran = station.tape()
    station.handles("note", lambda n=0: ran.append(n))
    station.client.schedule("note", id="o1", delay="50ms")
    station.connector.commands().hset(station.keys().of("jobs"), "o1", PAYLOADS[name])
    with station.working(mover=True):
        station.until("o1", State.FAILED)
        station.client.schedule("note", {"n": 7}, id="good")
        station.until("good", State.ABSENT)
    failed = station.job("o1")
    assert failed.raw == PAYLOADS[name]
    assert failed.failure is not None
    assert failed.failure.message


def stray(member: str, value: object) -> bytes:
    """A job that nobody of delayq wrote, to be tried once; one of its members is not what it should be."""
    return msgspec.json.encode({**msgspec.json.decode(JOB), "tries": 1, member: value})


LINK = {"job": msgspec.json.decode(JOB)}
POISON: dict[str, bytes] = {
    "less-than-nothing": stray("retention_ms", -10),
    "beyond-Redis-numbers": stray("retention_ms", 2**53 - 1),
    "beyond-a-machines": JOB.replace(b'"attempts":0', b'"attempts":%d' % 10**30),
    "a-link-that-is-no-job": stray("chain", {"id": "c", "next": [{"job": 5}]}),
    "one-that-catches-and-is-no-job": stray("chain", {"id": "c", "catch": [{"job": 5}]}),
    "a-link-that-waits-for-ever": stray("chain", {"id": "c", "next": [{**LINK, "delay_ms": 2**60}]}),
    "rounds-beyond-count": stray("chain", {"id": "c", "next": [LINK], "retried": 2**60}),
}


def test_what_no_script_would_settle_keeps_nobody_from_settling(station: Station) -> None:
    """One that was refused with others would be sent again with them for ever."""
    ran = station.tape()
    station.handles("note", lambda n=0: ran.append(n))
    client, jobs = station.connector.commands(), station.keys().of("jobs")
    station.client.schedule_many([{"name": "note", "id": name, "delay": "1h"} for name in POISON])
    for name, raw in POISON.items():
        client.hset(jobs, name, raw.replace(b'"stray"', msgspec.json.encode(name), 1))
        station.client.run_now(name)
    station.client.schedule("note", {"n": 7}, id="good")
    with station.working(mover=True):
        station.until("good", State.ABSENT)
        for name in POISON:  # a chain that its handler does not ask for is read when the job is over, which ends alone
            station.until(name, State.FAILED, State.ABSENT)
    assert 7 in ran
    assert [name for name in POISON if station.state(name) is State.FAILED][:3] == list(POISON)[:3]


def test_a_link_far_behind_that_is_no_job_keeps_nobody_from_settling(station: Station) -> None:
    """Its batch cannot be told which links will not run."""
    ran = station.tape()
    station.handles("note", lambda n=0: ran.append(7 // n))
    raw = stray("chain", {"id": "c", "next": [LINK, {"job": 5}]})
    station.client.schedule("note", id="far", delay="1h")
    raw = raw.replace(b'"stray"', b'"far"', 1).replace(b'"attempts"', b'"batch":"b","attempts"', 1)
    station.connector.commands().hset(station.keys().of("jobs"), "far", raw)
    station.client.run_now("far")
    station.client.schedule("note", {"n": 7}, id="good")
    with station.working():
        station.until("good", State.ABSENT)
        station.until("far", State.FAILED)
    assert ran == [1]


def test_a_payload_that_is_gone_is_failed_and_reported(station: Station) -> None:
    station.handles("note", lambda: None)
    station.client.schedule("note", id="o1", delay="50ms")
    station.connector.commands().hdel(station.keys().of("jobs"), "o1")
    with station.working(mover=True):
        wait_until(lambda: station.client.stats(QUEUE)[0].failed, what="it is failed")
    failed = station.job("o1")
    assert failed.failure is not None
    assert failed.failure.type == "PayloadLost"
    assert "1 job had lost its payload" in station.said() or "mended" in station.said()
