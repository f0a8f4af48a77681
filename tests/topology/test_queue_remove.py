"""archive and queue remove on a cluster, where the shards of one queue lie on all nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from random import Random

import pytest

from delayq.core.errors import QueueInUse, QueueNotFound
from delayq.core.options import Options
from delayq.core.shards import number_for, shard_of
from delayq.core.states import Answer, State
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis import whole
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.servers import connect
from tests.support.snapshot import word
from tests.support.station import QUEUE, Station
from tests.support.topologies import Group, Kind
from tests.support.waiting import wait_until

SHARDS, ROUNDS, EACH = 6, 40, 6
NAMES = [shard_of(QUEUE, number) for number in range(SHARDS)]
IN_EACH = [next(f"j{n}" for n in count() if number_for(f"j{n}", SHARDS) == number) for number in range(SHARDS)]
"""A job's id for each shard."""


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER


@pytest.fixture
def spread(station: Station) -> Station:
    station.client.queue_set(QUEUE, shards=SHARDS)
    return station


@contextmanager
def another(url: str) -> Iterator[Client]:
    """A client that knows nothing of the queue yet."""
    with closing(Connector(url)) as connector:
        yield Client(connector, Options(queue=QUEUE))


def left(group: Group) -> dict[str, set[str]]:
    """The keys of the queue on each node, but for answers kept for a resend, which expire."""
    found = {}
    for server in group.primaries():
        with connect(server.url) as plain:
            keys = {word(name) for name in plain.scan_iter(match=f"delayq:{{{QUEUE}*", count=1000)}
        found[server.url] = {name for name in keys if ":once:" not in name}
    return found


def tidy(url: str) -> None:
    """A janitor's turn over everything on the list."""
    with closing(Connector(url)) as connector:
        driver = RedisStreams(connector, Options())
        for name in driver.queues():
            driver.tidy(name)


def test_the_shards_lie_on_all_nodes(group: Group) -> None:
    assert {group.owner(name).pid for name in NAMES} == {server.pid for server in group.primaries()}


@pytest.mark.parametrize("number", range(SHARDS))
def test_a_job_in_any_shard_keeps_the_queue_and_all_its_keys(spread: Station, group: Group, number: int) -> None:
    job_id, client = IN_EACH[number], spread.client
    client.schedule("note", id=job_id, delay="1h")
    before = left(group)
    assert all(before.values())
    with pytest.raises(QueueInUse, match="1 scheduled"):
        client.queue_remove(QUEUE)
    assert left(group) == before
    assert client.archive(job_id) is Answer.ARCHIVED
    with pytest.raises(QueueInUse, match="1 failed"):
        client.queue_remove(QUEUE)
    assert client.retry(job_id).outcome is Answer.SCHEDULED
    assert client.cancel(job_id) is Answer.CANCELLED
    client.queue_remove(QUEUE)
    assert not any(left(group).values())


def test_a_removed_queue_leaves_no_key_on_any_node(spread: Station, group: Group) -> None:
    client = spread.client
    spread.handles("good", lambda: {"ok": True}, retention="1h")
    spread.handles("bad", lambda: 1 / 0, tries=2, backoff="1ms")
    client.schedule_many([{"name": "good", "id": job_id, "tags": ["t"]} for job_id in IN_EACH])
    client.schedule_many([{"name": "bad", "id": f"bad-{job_id}"} for job_id in IN_EACH])
    client.schedule_many([{"name": "good", "unique": f"u-{job_id}", "delay": "1h"} for job_id in IN_EACH])
    client.pause(QUEUE)
    client.resume(QUEUE)
    with spread.working(mover=True):
        wait_until(lambda: (client.stats(QUEUE)[0].completed, client.stats(QUEUE)[0].failed) == (SHARDS, SHARDS))
    assert all(left(group).values())
    client.clear(QUEUE)
    for state in (State.FAILED, State.COMPLETED):
        client.forget([info.id for info in client.iter_jobs(state, queue=QUEUE)], queue=QUEUE)
    client.queue_remove(QUEUE)
    assert left(group) == {server.url: set() for server in group.primaries()}
    assert client.queues() == []


def test_a_producer_with_the_old_layout_loses_nothing(spread: Station) -> None:
    """Its jobs go where the old layout puts them; a janitor tells the others, and a worker runs all of them."""
    ran = spread.tally()
    spread.handles("note", lambda tag: ran.add(tag))  # noqa: PLW0108  (a handler takes its arguments by name)
    old = spread.client
    old.cancel(old.schedule("note", delay="1h").id)  # knows the layout, and has registered the queue
    with another(spread.url) as remover, another(spread.url) as newer:
        remover.queue_remove(QUEUE)
        assert old.schedule("note", {"tag": "old"}, id=IN_EACH[3], delay="1s").outcome is Answer.CREATED
        assert old.queues() == [QUEUE]
        newer.schedule("note", {"tag": "new"}, id="new", delay="1s")
        tidy(spread.url)
        assert {info.id for info in newer.iter_jobs(State.SCHEDULED)} == {IN_EACH[3], "new"}
        with spread.working(mover=True):
            wait_until(lambda: sum(ran.values()) == 2, what="both have run")
            old.schedule_many([{"name": "note", "data": {"tag": "old"}, "id": f"o{n}"} for n in range(20)])
            newer.schedule_many([{"name": "note", "data": {"tag": "new"}, "id": f"n{n}"} for n in range(20)])
            wait_until(lambda: sum(ran.values()) == 42, what="all have run")
    assert dict(ran.items()) == {"old": 21, "new": 21}


def test_a_worker_with_the_old_layout_makes_the_queue_anew(spread: Station) -> None:
    """It was there when the queue was removed, as when its announcement had expired."""
    ran = spread.tally()
    spread.handles("note", lambda: ran.add("ran"))
    spread.client.schedule("note", id=IN_EACH[2])
    with spread.working(mover=True), another(spread.url) as remover:
        wait_until(lambda: ran["ran"] == 1, what="it works")
        wait_until(lambda: spread.client.get(IN_EACH[2]) is None, what="the job is over")
        remover.run(whole.remove(remover.verbs, QUEUE, ()))
        for n, producer in enumerate((spread.client, remover)):
            for job_id in IN_EACH:
                producer.schedule("note", id=f"{job_id}-{n}")
        wait_until(lambda: ran["ran"] == 1 + 2 * SHARDS, timeout=60, what="all have run")


def removals(client: Client, threads: list[threading.Thread]) -> list[str]:
    """Remove again and again while the producers live; how each went."""
    ends = []
    while any(thread.is_alive() for thread in threads):
        try:
            client.queue_remove(QUEUE)
            ends.append("removed")
        except (QueueInUse, QueueNotFound) as error:
            ends.append(type(error).__name__)
    return ends


def test_schedules_that_race_with_removals_lose_nothing(spread: Station, group: Group) -> None:
    """In each round two producers, of which one knows the old layout, schedule while another client removes."""
    old, rand, ends = spread.client, Random(1), list[str]()
    began = time.monotonic()
    old.queue_remove(QUEUE)
    longest_s = 2 * (time.monotonic() - began)
    for round_number in range(ROUNDS):
        if "removed" not in ends:
            longest_s *= 1.1  # the producers come so early that every removal meets a job
        accepted = list[str]()
        old.queue_set(QUEUE, shards=SHARDS)
        with another(spread.url) as newer, another(spread.url) as remover:

            def produce(client: Client, name: str, after_s: float) -> None:
                time.sleep(after_s)  # no synchronisation: so that it meets another command of the removal each time
                for n in range(EACH):
                    accepted.append(client.schedule("note", id=f"r{round_number}-{name}-{n}", delay="1h").id)  # noqa: B023

            threads = [
                threading.Thread(target=produce, args=(client, name, rand.uniform(0.0, longest_s)))
                for client, name in ((old, "old"), (newer, "new"))
            ]
            for thread in threads:
                thread.start()
            ends += removals(remover, threads)
            for thread in threads:
                thread.join()
            assert len(accepted) == 2 * EACH
            tidy(spread.url)
            with another(spread.url) as fresh:
                found = {info.id for info in fresh.iter_jobs(State.SCHEDULED)}
                assert found == set(accepted), f"round {round_number}"
                assert fresh.clear(QUEUE) == 2 * EACH
                fresh.queue_remove(QUEUE)
            assert not any(left(group).values())
    assert {"removed", "QueueInUse"} <= set(ends)
