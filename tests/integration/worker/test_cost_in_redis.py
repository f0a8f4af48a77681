"""What one job costs the server: the commands it runs, those that scripts call included.

One `EVALSHA` may hide hundreds of them, and each is a part of the single core that a queue has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import redis

from delayq.core.outcome import DONE
from delayq.drivers.base import Settlement
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.keys import Keys
from delayq.redis.send import through
from tests.integration.worker.test_cost_of_a_job import instructions
from tests.support.station import QUEUE, Station

JOBS = 200
A_HANDFUL = 40
"""What a call may ask for itself, however many jobs it is for."""
FUTURE_MS = 4_000_000_000_000
DATA = {"order_id": 42}


@contextmanager
def executed(client: redis.Redis) -> Iterator[Counter[str]]:
    """The commands that the server ran during the block, by name, as it counts them itself."""
    found: Counter[str] = Counter()
    before = _counts(client)
    yield found
    found += _counts(client) - before
    del found["info"]


def _counts(client: redis.Redis) -> Counter[str]:
    rows = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in rows.items()})


def test_a_lone_job_takes_eight_commands(station: Station, redis_client: redis.Redis) -> None:
    """Its script, the time, the queue's settings, its head, is it there?, two writes, a count."""
    for _ in range(2):  # the script and the queue become known
        station.client.schedule("note", DATA, delay="1h")
    with executed(redis_client) as run:
        for _ in range(JOBS):
            station.client.schedule("note", DATA, delay="1h")
    assert run.total() <= 8 * JOBS + A_HANDFUL, run
    with instructions() as python:
        for _ in range(JOBS):
            station.client.schedule("note", DATA, delay="1h")
    assert python.total() <= 1_150 * JOBS, python


def test_many_plain_jobs_take_no_command_each(station: Station, redis_client: redis.Redis) -> None:
    jobs = [{"name": "note", "data": DATA, "delay": "1h"} for _ in range(JOBS)]
    for _ in range(2):
        station.client.schedule_many(jobs[:1])
    with executed(redis_client) as run:
        station.client.schedule_many(jobs)
    assert run.total() <= A_HANDFUL, run


def test_a_job_that_falls_due_takes_one_command_and_a_part(station: Station, redis_client: redis.Redis) -> None:
    """Its entry in the stream; envelopes are read sixteen at a time."""
    _promoted(station)  # it makes the stream
    with executed(redis_client) as run:
        _promoted(station)
    # The jobs are scheduled within the block too, by one call.
    assert run.total() <= JOBS + JOBS // 16 + 2 * A_HANDFUL, run


def _promoted(station: Station) -> None:
    station.client.schedule_many([{"name": "note", "data": DATA, "delay": "1h"} for _ in range(JOBS)])
    call = deliver.promote(Scope(station.options, QUEUE, FUTURE_MS))
    assert through(station.connector, call).moved == JOBS


def test_a_batch_read_and_settled_takes_no_command_for_each_job(station: Station, redis_client: redis.Redis) -> None:
    station.client.schedule_many([{"name": "note", "data": DATA} for _ in range(4 * JOBS)])
    with closing(station.driver.consumer("dq:host:1:a1", [QUEUE])) as consumer:
        first = consumer.fetch([], JOBS)
        known = consumer.fetch([Settlement(one, DONE) for one in first.deliveries], JOBS)
        assert known.later is not None
        known.later()  # all scripts are known, and nothing is under way
        settlements = [Settlement(one, DONE) for one in known.deliveries]
        with executed(redis_client) as run:
            counted = consumer.fetch(settlements, JOBS)
            assert counted.later is not None
            counted.later()
        assert len(counted.deliveries) == JOBS
        assert redis_client.hlen(Keys(station.options.prefix, QUEUE).of("jobs")) == 2 * JOBS, "settled"
        assert run.total() <= A_HANDFUL, run
        settlements = [Settlement(one, DONE) for one in counted.deliveries]
        with instructions() as python:
            last = consumer.fetch(settlements, JOBS)
            assert last.later is not None
            last.later()
        assert len(last.deliveries) == JOBS
    assert python.total() <= 200 * JOBS, python
