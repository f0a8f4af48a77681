"""What people and programs ask of a sharded queue is answered for all of its shards."""

from __future__ import annotations

import pytest

from delayq.core.errors import BackendDamaged, InvalidInput, JobNotFound
from delayq.core.shards import PLAIN, Layout, number_for, shard_of
from delayq.core.states import Answer, State
from delayq.core.unique import Unique
from delayq.drivers.redis_shards import RedisShards
from delayq.jobs.context import JobContext
from delayq.redis.client import Client
from delayq.redis.keys import Globals
from tests.support.snapshot import word
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

IDS = [f"job-{n}" for n in range(24)]
SHARDS = [shard_of(QUEUE, number) for number in range(4)]


@pytest.fixture
def four(station: Station) -> Station:
    """A queue of 4 shards with a job in each that waits, and one that has failed."""
    station.client.queue_set(QUEUE, shards=4)
    station.handles("bad", lambda: 1 / 0, tries=1)
    station.client.schedule_many([{"name": "x", "id": job_id, "delay": "1h"} for job_id in IDS])
    station.client.schedule_many([{"name": "bad", "id": f"bad-{job_id}"} for job_id in IDS])
    station.drain()
    return station


def held(station: Station, role: str) -> list[int]:
    """How much each shard holds."""
    client = station.connector.commands()
    return [int(client.zcard(station.keys(shard).of(role))) for shard in SHARDS]


def layout(station: Station, shard: str = QUEUE) -> str:
    return word(station.connector.commands().hget(station.keys(shard).meta, "shards") or b"")


def test_jobs_lie_where_the_page_says(four: Station) -> None:
    client = four.connector.commands()
    for job_id in IDS:
        shard = shard_of(QUEUE, number_for(job_id, 4))
        assert client.zscore(four.keys(shard).of("scheduled"), job_id) is not None
    assert min(held(four, "scheduled")) > 0


def test_counts_and_pages_are_of_all_shards(four: Station) -> None:
    [stats] = four.client.stats(QUEUE)
    assert (stats.queue, stats.scheduled, stats.failed, stats.ready) == (QUEUE, len(IDS), len(IDS), 0)
    assert stats.counters["scheduled_total"] == 2 * len(IDS)
    assert four.client.queues() == [QUEUE]
    for queue in (QUEUE, None):
        today = Client(four.connector, four.client.options).activity(queue, days=2).spans[-1]  # it knows no shards yet
        assert (today.scheduled, today.failed) == (2 * len(IDS), len(IDS))
    assert four.client.upcoming(QUEUE, span="2h", spans=1).counts == (len(IDS),)
    listed = list(four.client.iter_jobs(State.SCHEDULED))
    assert sorted(info.id for info in listed) == sorted(IDS)
    assert {info.queue for info in listed} == {QUEUE}
    page, seen = four.client.list_jobs(State.SCHEDULED, limit=5), list[str]()
    while True:
        assert len(page.jobs) <= 5
        seen += [info.id for info in page.jobs]
        if not page.cursor:
            break
        page = four.client.list_jobs(State.SCHEDULED, cursor=page.cursor, limit=5)
    assert sorted(seen) == sorted(IDS)
    assert [shard.scheduled for shard in four.client.queue_show(QUEUE).held] == held(four, "scheduled")


def test_failed_jobs_of_all_shards_are_found_retried_and_forgotten(four: Station) -> None:
    failed = [f"bad-{job_id}" for job_id in IDS]
    assert sorted(info.id for info in four.client.iter_failed(QUEUE)) == sorted(failed)
    assert len(four.client.recent_failures(QUEUE, limit=7)) == 7
    ref = four.client.retry(failed[0], queue=QUEUE)
    assert (ref.queue, ref.state) == (QUEUE, State.SCHEDULED)
    retried = [answer for answer in four.client.retry_failed(QUEUE) if answer.ref]
    assert len(retried) == len(IDS) - 1
    four.drain(mover=True)
    assert four.client.forget([*failed, "nobody"], queue=QUEUE) == [Answer.FORGOTTEN] * len(IDS) + [Answer.UNKNOWN]
    assert sum(held(four, "failed")) == 0


def test_a_client_that_knows_no_shards_finds_every_job(four: Station) -> None:
    for n, job_id in enumerate(IDS[:8]):
        fresh = Client(four.connector, four.options)
        match n % 4:
            case 0:
                assert fresh.cancel(job_id) is Answer.CANCELLED
            case 1:
                assert fresh.reschedule(job_id, delay="2h").queue == QUEUE
            case 2:
                assert fresh.run_now(job_id).state is State.READY
            case 3:
                info = fresh.get(job_id)
                assert info is not None
                assert info.queue == QUEUE
    assert four.client.cancel("nobody") is Answer.UNKNOWN
    with pytest.raises(JobNotFound):
        four.client.run_now("nobody")


def test_a_pause_and_a_lease_are_of_all_shards_and_of_those_that_join(station: Station) -> None:
    client = station.connector.commands()
    station.client.queue_set(QUEUE, lease="7s")
    station.client.pause(QUEUE)
    station.client.queue_set(QUEUE, shards=4)
    metas = [station.keys(shard).meta for shard in SHARDS]
    assert [client.hget(meta, "paused_until_ms") for meta in metas] == [b"0"] * 4
    assert [client.hget(meta, "lease_ms") for meta in metas] == [b"7000"] * 4
    station.client.resume(QUEUE)
    station.client.queue_set(QUEUE, lease="9s")
    assert [client.hget(meta, "paused_until_ms") for meta in metas] == [None] * 4
    assert [client.hget(meta, "lease_ms") for meta in metas] == [b"9000"] * 4
    station.client.pause(QUEUE)
    assert [client.hget(meta, "paused_until_ms") for meta in metas] == [b"0"] * 4


def test_clear_drops_what_waits_in_all_shards(four: Station) -> None:
    assert four.client.clear(QUEUE) == len(IDS)
    assert sum(held(four, "scheduled")) == 0


def test_a_unique_key_keeps_others_out_across_a_change_and_goes_with_no_id(station: Station) -> None:
    first = station.client.schedule("x", id="mine", unique="key", delay="1h")
    station.client.queue_set(QUEUE, shards=4)
    assert station.client.schedule("x", unique="key", delay="1h").id == first.id
    assert station.client.schedule("x", id="mine", delay="1h").outcome is Answer.KEPT
    with pytest.raises(InvalidInput, match="has an id of yours and a unique key"):
        station.client.schedule("x", id="other", unique="key-2", delay="1h")
    [view] = station.client.locks.all(QUEUE)
    assert (view.queue, view.owner) == (QUEUE, "mine")
    window = station.client.schedule("x", unique=Unique("w", until="window", window="1h"), delay="1h")
    station.client.queue_set(QUEUE, shards=2)
    again = station.client.schedule("x", unique=Unique("w", until="window", window="1h"), delay="1h")
    assert (again.id, again.outcome) == (window.id, Answer.KEPT)


# -- how a change goes on and ends -----------------------------------------------------------------------------------


def tend(station: Station, *, rest_ms: int = 0) -> None:
    """A janitor's tick in every shard there may be, by one that has just begun."""
    shards = RedisShards(Client(station.connector, station.options), rest_ms=rest_ms)
    for shard in SHARDS:
        shards.tend(shard)


def test_a_change_ends_when_nothing_lies_by_the_old_number_any_more(station: Station) -> None:
    station.client.schedule_many([{"name": "x", "id": job_id, "delay": "1h"} for job_id in IDS])
    station.client.queue_set(QUEUE, shards=4)
    tend(station)
    assert layout(station).endswith(":4<1")
    strays = [job_id for job_id in IDS if number_for(job_id, 4)]
    for job_id in strays[:-1]:
        station.client.cancel(job_id)
    tend(station)
    assert layout(station).endswith(":4<1"), "one is left"
    station.client.cancel(strays[-1])
    tend(station, rest_ms=3_600_000)
    assert layout(station).endswith(":4<1"), "it was made less than an hour ago"
    tend(station)
    assert [layout(station, shard).partition(":")[2] for shard in SHARDS] == ["4"] * 4
    assert sorted(info.id for info in station.client.iter_jobs(State.SCHEDULED)) == sorted(set(IDS) - set(strays))


def test_shards_that_are_left_over_are_forgotten_when_they_are_empty(four: Station) -> None:
    four.client.queue_set(QUEUE, shards=2)
    for job_id in IDS:
        four.client.cancel(job_id)
    tend(four)
    assert layout(four).endswith(":2<4<1"), "failed jobs lie there still"
    four.client.prune_failed(QUEUE, older="0s")
    tend(four)
    assert layout(four).endswith(":2")
    names = four.connector.commands().smembers(Globals("delayq").queues)
    assert names == {b"orders", b"orders#1"}
    assert four.client.schedule("x", id="job-0", delay="1h").outcome is Answer.CREATED
    assert [shard.name for shard in four.client.queue_show(QUEUE).held] == SHARDS[:2]


def test_a_window_of_a_unique_key_holds_a_change_open(station: Station) -> None:
    key = next(f"k{n}" for n in range(99) if _lies_elsewhere(station, f"k{n}"))
    assert key
    tend(station)
    assert layout(station).endswith(":4<1")
    station.connector.commands().delete(station.keys().of("unique"))
    tend(station)
    assert layout(station).endswith(":4")


def _lies_elsewhere(station: Station, key: str) -> bool:
    """Leave nothing but a window of that key in the first shard of 4; whether it belongs to another."""
    client = station.connector.commands()
    client.flushall()
    plain = Client(station.connector, station.options)
    plain.cancel(plain.schedule("x", unique=Unique(key, until="window", window="1h"), delay="1h").id)
    [name] = client.hkeys(station.keys().of("unique"))
    plain.queue_set(QUEUE, shards=4)
    return number_for(word(name).partition(".")[0], 4) != 0


def test_a_change_that_was_only_begun_is_made_by_a_janitor(station: Station) -> None:
    """Its maker died when the shards that join were ready and the first one knew nothing yet."""
    client = station.client
    client.run(client.verbs.register(QUEUE))
    begun = PLAIN.changed(4, 1_000)
    for shard in SHARDS[1:]:
        client.run(_told(client, shard, begun))
    assert client.schedule("x", id="a", delay="1h").outcome is Answer.CREATED
    assert layout(station) == "1"
    tend(station)
    assert [layout(station, shard).partition(":")[2] for shard in SHARDS] == ["4<1"] * 4
    assert client.schedule("x", id="a", delay="1h").outcome is Answer.KEPT


def _told(client: Client, shard: str, wanted: Layout):  # type: ignore[no-untyped-def]
    from delayq.redis.calls import inspect

    yield inspect.lay_out(client.verbs.shard(shard), wanted, inspect.NO_WORD)


def test_a_layout_that_the_first_shard_lost_is_written_back(four: Station) -> None:
    client = four.connector.commands()
    client.delete(four.keys().meta)
    tend(four)
    assert layout(four).partition(":")[2].startswith("4<1")
    assert sorted(info.id for info in Client(four.connector, four.options).iter_jobs(State.SCHEDULED)) == sorted(IDS)


def test_a_worker_that_runs_finds_new_shards(station: Station) -> None:
    ran = station.tally()

    def note(context: JobContext) -> None:
        ran.add((context.id, context.queue))

    station.handles("note", note)
    with station.working(mover=True):
        station.client.schedule("note", id="first")
        wait_until(lambda: ran["first", QUEUE], what="the first one ran")
        station.client.queue_set(QUEUE, shards=4)
        station.client.schedule_many([{"name": "note", "id": job_id} for job_id in IDS])
        wait_until(lambda: len(ran) == len(IDS) + 1, what="all ran")
    assert set(ran) == {("first", QUEUE), *((job_id, QUEUE) for job_id in IDS)}


@pytest.mark.parametrize("said", ["9:999999", "9999999999999999:3<x"])
def test_a_number_of_shards_that_cannot_be_read_is_told_at_once(station: Station, said: str) -> None:
    """The shard calls it newer than what the client knows, and would do so for ever."""
    station.client.schedule("x", id="there", delay="1h")
    station.connector.commands().hset(station.keys().meta, "shards", said)
    for delay in ("1h", "0s"):
        with pytest.raises(BackendDamaged, match="not a number of shards"):
            station.client.schedule("x", id="new", delay=delay)
    with pytest.raises(BackendDamaged, match="not a number of shards"):
        station.client.schedule_many([{"name": "x"}])
    station.connector.commands().hset(station.keys().meta, "shards", "1")
    assert station.client.schedule("x", id="new", delay="1h").outcome == "created"


@pytest.mark.parametrize("said", ["garbage", "", "9:999999"])
def test_nobody_changes_a_number_of_shards_that_cannot_be_read(station: Station, said: str) -> None:
    """By which numbers jobs may lie is not known then; the change would hide those in the other shards."""
    client = station.connector.commands()
    station.client.queue_set(QUEUE, shards=2)
    client.hset(station.keys().meta, "shards", said)
    with pytest.raises(BackendDamaged, match="not a number of shards"):
        station.client.queue_set(QUEUE, shards=4)
    with pytest.raises(BackendDamaged, match="not a number of shards"):
        station.client.queue_show(QUEUE)
    assert client.hget(station.keys().meta, "shards") == said.encode()
