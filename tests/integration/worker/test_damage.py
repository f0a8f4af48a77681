"""What operators and plain consumers do to a queue, with workers at work on it: closed, healed, delivered again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from delayq.core.states import State
from delayq.drivers import redis_repair
from delayq.jobs.context import JobContext
from delayq.redis.calls.call import Scope
from delayq.redis.keys import GROUP
from delayq.redis.scripts import load
from tests.support.snapshot import word
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

DAY_MS = 86_400_000
TICK_MS = 200


def taken_by_a_plain_consumer(station: Station, count: int) -> list[tuple[str, str]]:
    """(job, entry) of what a consumer that knows nothing of delayq has read."""
    client: Any = station.connector.commands()
    stream = station.keys().stream
    [[_, rows]] = client.xreadgroup(GROUP, "plain-1", {stream: ">"}, count=count)
    return [(json.loads(fields[b"job"])["id"], entry.decode()) for entry, fields in rows]


# -- plain consumers -------------------------------------------------------------------------------------------------


def test_a_plain_xack_closes_the_job(station: Station) -> None:
    station.client.schedule_many([{"name": "note", "id": f"j{n}"} for n in range(1_000)])
    client: Any = station.connector.commands()
    taken = taken_by_a_plain_consumer(station, 1_000)
    assert client.xack(station.keys().stream, GROUP, *(entry for _, entry in taken)) == 1_000
    tidied = station.driver.tidy(QUEUE)
    assert tidied.closed == 1_000
    assert client.xlen(station.keys().stream) == client.hlen(station.keys().of("jobs")) == 0


def test_a_plain_xack_of_a_job_with_retention_completes_it(station: Station) -> None:
    station.client.schedule("note", id="o1", retention="1h")
    [(_, entry)] = taken_by_a_plain_consumer(station, 1)
    client: Any = station.connector.commands()
    client.xack(station.keys().stream, GROUP, entry)
    station.driver.tidy(QUEUE)
    assert station.state("o1") is State.COMPLETED


def test_what_a_plain_consumer_still_holds_is_left_to_it(station: Station) -> None:
    station.client.schedule("note", id="o1")
    taken_by_a_plain_consumer(station, 1)
    for _ in range(3):
        assert station.driver.tidy(QUEUE).quiet
    assert station.state("o1") is State.RESERVED


def test_a_plain_consumer_may_use_the_script(station: Station) -> None:
    station.client.schedule("note", id="o1")
    [(job_id, entry)] = taken_by_a_plain_consumer(station, 1)
    script = load("ack")
    keys = [station.keys().of(name) for name in script.keys]
    answer = station.connector.commands().eval(script.text, len(keys), *keys, "", job_id, entry, 0, "")
    assert answer == [1]
    assert station.state("o1") is State.ABSENT


@pytest.mark.station(lease_ms=400)
def test_a_plain_consumer_that_vanished_is_recovered_like_any_other(station: Station) -> None:
    ran = station.tape()
    station.handles("note", lambda context_recoveries=0: ran.append(1))
    station.client.schedule("note", id="o1")
    taken_by_a_plain_consumer(station, 1)
    with station.working(mover=True, tidy_every_ms=TICK_MS):
        station.until("o1", State.ABSENT)
    assert ran == [1]


# -- damage under load -----------------------------------------------------------------------------------------------


def destroy_group(station: Station) -> None:
    client: Any = station.connector.commands()
    client.xgroup_destroy(station.keys().stream, GROUP)


def delete_consumers(station: Station) -> None:
    client: Any = station.connector.commands()
    for row in client.xinfo_consumers(station.keys().stream, GROUP):
        client.xgroup_delconsumer(station.keys().stream, GROUP, row["name"])


def trim(station: Station) -> None:
    station.connector.commands().xtrim(station.keys().stream, maxlen=0, approximate=False)


def delete_stream(station: Station) -> None:
    station.connector.commands().delete(station.keys().stream)


def delete_entries(station: Station) -> None:
    station.connector.commands().delete(station.keys().of("entries"))


def delete_scheduled(station: Station) -> None:
    station.connector.commands().delete(station.keys().of("scheduled"))


def delete_meta(station: Station) -> None:
    station.connector.commands().delete(station.keys().meta)


DAMAGE = [
    destroy_group, delete_consumers, trim, delete_stream, delete_entries, delete_scheduled, delete_meta,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_under_load_loses_nothing(station: Station, damage: Callable[[Station], None]) -> None:
    """Each kind three times, in the middle of the work; afterwards all have run and the queue is sound.

    What runs while its stream is torn away may run twice; nothing may be lost, and nothing runs a third time.
    """
    runs = station.tally()
    ids = [f"j{n}" for n in range(400)]

    def note(context: JobContext) -> None:
        runs.add(context.id)
        time.sleep(0.001)

    station.handles("note", note)
    station.client.schedule_many(
        [{"name": "note", "id": job_id, "delay": f"{n % 600}ms"} for n, job_id in enumerate(ids)]
    )
    with station.working(mover=True, tidy_every_ms=TICK_MS), station.working(mover=True, tidy_every_ms=TICK_MS):
        for share in (60, 160, 260):
            wait_until(lambda: len(runs) > share, what=f"{share} have run")  # noqa: B023  (asked at once)
            damage(station)
        wait_until(lambda: len(runs) == len(ids), timeout=30, what="all have run")
        station.until_gone(ids)
    assert station.client.stats(QUEUE)[0].failed == 0
    assert max(runs.values()) <= 4


def test_a_deleted_consumer_that_lives_keeps_its_job(station: Station) -> None:
    """Its worker is alive and renews: the row is put back, and the work is not delivered a second time."""
    entered, go_on = station.flag(), station.flag()
    starts = station.tape()

    def slow(context: JobContext) -> None:
        starts.append(context.token)
        entered.set()
        assert go_on.wait(50)

    station.handles("slow", slow)
    station.client.queue_set(QUEUE, lease="600ms")
    station.client.schedule("slow", id="o1")
    with station.working():
        assert entered.wait(50)
        delete_consumers(station)
        client: Any = station.connector.commands()
        wait_until(lambda: client.xpending(station.keys().stream, GROUP)["pending"], what="it is back")
        assert station.driver.tidy(QUEUE).redelivered == 0
        go_on.set()
        station.until("o1", State.ABSENT)
    assert len(starts) == 1


def test_a_delivery_that_lost_its_group_is_counted_once(station: Station) -> None:
    """The janitor delivers the job of a busy worker again. The worker gave nothing back, and no counter says so."""
    entered, go_on = station.flag(), station.flag()

    def slow(context: JobContext) -> None:
        entered.set()
        assert go_on.wait(50)

    station.handles("slow", slow)
    station.client.schedule("slow", id="o1")
    with station.working():
        assert entered.wait(50)
        destroy_group(station)
        assert station.driver.tidy(QUEUE).redelivered == 1
        assert station.client.stats(QUEUE)[0].counters.get("handed_back_total", 0) == 0
        go_on.set()
        station.until("o1", State.ABSENT)


# -- dead consumers, old failures ------------------------------------------------------------------------------------


def test_dead_consumers_that_hold_nothing_are_dropped(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_repair, "MIN_IDLE_MS", 50)
    monkeypatch.setattr(redis_repair, "IDLE_LEASES", 0)
    client: Any = station.connector.commands()
    stream = station.keys().stream
    station.client.schedule("note", id="o1")
    for n in range(20):
        client.xgroup_createconsumer(stream, GROUP, f"dq:gone:{n}:a1")
    held = client.xreadgroup(GROUP, "dq:holder:1:a1", {stream: ">"}, count=1)
    assert held

    def names() -> set[str]:
        station.driver.tidy(QUEUE)
        return {row["name"].decode() for row in client.xinfo_consumers(stream, GROUP)}

    with station.working():
        wait_until(lambda: client.zcard("delayq:workers"), what="the worker is here")
        [here] = [word(name) for name in client.zrange("delayq:workers", 0, -1)]
        wait_until(lambda: names() == {"dq:holder:1:a1", here}, what="only these are left")
        assert names() == {"dq:holder:1:a1", here}, "who holds something stays, and who is here"
    client.xack(stream, GROUP, *(entry for _, rows in held for entry, _ in rows))
    wait_until(lambda: names() == set(), what="the last one is dropped")


def test_failed_jobs_are_pruned_after_ninety_days(station: Station) -> None:
    station.now_ms = 1_800_000_000_000

    def bad() -> None:
        raise ValueError("x")

    station.handles("bad", bad)
    station.client.schedule_many([{"name": "bad", "id": f"j{n}", "tries": 1} for n in range(1_200)])
    station.drain()
    assert station.client.stats(QUEUE)[0].failed == 1_200
    station.now_ms += 90 * DAY_MS - 1
    assert station.driver.tidy(QUEUE).pruned == 0
    station.now_ms += 2
    assert station.driver.tidy(QUEUE).pruned == 1_200, "all of them in one tick"
    assert station.connector.commands().hlen(station.keys().of("errors")) == 0


def test_damage_that_comes_back_is_not_walked_every_tick(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk through everything reads every payload: when it did not help, it rests; and heals once it can."""
    client, jobs = station.connector.commands(), station.keys().of("jobs")
    repair = station.driver._repair
    mend, walks = repair._mend, Counter[str]()

    def undone(scope: Scope) -> int:
        mended = mend(scope)
        walks["all"] += 1
        client.hset(jobs, f"ghost-{walks['all']}", "{}")  # somebody is faster than the repair
        return mended

    monkeypatch.setattr(repair, "_mend", undone)
    client.hset(jobs, "ghost-0", "{}")
    found = [station.driver.tidy(QUEUE) for _ in range(20)]
    assert walks == {"all": 1}
    assert [tidied.unhealed for tidied in found] == [1] + [0] * 19
    monkeypatch.setattr(repair, "_mend", mend)
    monkeypatch.setattr(repair, "_rests", {})
    assert station.driver.tidy(QUEUE).mended == 1
    assert station.state("ghost-0") is station.state("ghost-1") is State.SCHEDULED
