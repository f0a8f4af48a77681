"""The whole life of jobs, as somebody who may do little lives it: every story once, each on an empty server.

The stories are tests of other suites, called by hand, and every command of the command line that asks a server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import redis

from delayq.core.signals import Fail
from delayq.core.states import State
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.jobs.current import make_manager, using_manager
from delayq.jobs.registry import using
from delayq.redis.observing import observe
from delayq.settings import Settings
from tests.integration.coordination import test_batches, test_chains, test_unique
from tests.integration.limits import test_places, test_rates
from tests.integration.worker import test_damage
from tests.support.station import QUEUE, Station
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until
from tests.support.whole_server import a_server

Commands = tuple[tuple[str, ...], ...]

WITH_STEPS: tuple[Callable[[Station, Steps], None], ...] = (
    test_batches.test_all_succeed,
    test_batches.test_a_failure_inside_reaches_the_outer_one,
    test_batches.test_retrying_what_failed_finishes_it_well,
    test_batches.test_a_member_may_add_more,
    test_chains.test_each_link_starts_when_the_one_before_has_succeeded,
    test_chains.test_a_link_whose_worker_vanishes_is_caught,
    test_chains.test_a_link_with_a_unique_key_waits_for_its_owner,
)
ALONE: tuple[Callable[[Station], None], ...] = (
    test_unique.test_a_second_one_is_told_who_owns_the_key,
    test_unique.test_the_last_of_many_dispatches_runs,
    test_unique.test_the_janitor_sweeps_windows_that_are_over,
    test_unique.test_a_job_that_ends_before_its_start_frees_it_too,
    test_places.test_one_at_a_time_for_each_key_unless_shared,
    test_places.test_a_place_is_free_as_soon_as_its_job_has_another_entry,
    test_rates.test_a_timeout_is_a_failure_of_what_hangs,
    test_damage.test_a_plain_xack_closes_the_job,
)


def live(url: str, admin: redis.Redis, inline: Callable[..., Any], *, briefly: bool = False) -> None:
    """All of it at `url`, or what may differ from server to server.

    `admin` may do anything, and empties the server between two stories; `inline` runs a command at `url`, and fails
    when it is refused.
    """
    stories: tuple[Callable[..., None], ...] = (
        BRIEFLY if briefly else (*WITH_STEPS, *ALONE, the_command_line(inline), a_server, damage)
    )
    for story in stories:
        admin.flushall()
        admin.script_flush()
        with ExitStack() as stack:
            station = stack.enter_context(Station(url))
            stack.enter_context(using(station.registry))
            manager = make_manager(Settings(url=url, queue=QUEUE))
            stack.enter_context(using_manager(manager))
            stack.callback(manager.close)
            args: tuple[Any, ...] = (station, Steps(station)) if story in WITH_STEPS else (station,)
            if story is damage:
                args = (station, admin)
            story(*args)
    admin.flushall()


def damage(station: Station, admin: redis.Redis) -> None:
    """What others broke is mended: a group, a payload, an entry and rows that are gone, garbage."""
    keys, driver = station.keys(), RedisStreams(station.connector, station.options)
    station.client.schedule_many([{"name": "n", "id": f"j{n}"} for n in range(4)])
    admin.xadd(keys.stream, {"garbage": "yes"})
    consumer = driver.consumer("dq:there:1:x", [QUEUE])
    consumer.fetch([], 2)
    consumer.announce({}, 5)
    consumer.renew(consumer.replay().deliveries)
    admin.xgroup_destroy(keys.stream, "delayq")
    admin.hdel(keys.of("jobs"), "j3")
    for _ in range(3):
        driver.tidy(QUEUE)
        driver.reclaim(QUEUE)
    consumer.replay()
    admin.delete(keys.stream)
    for _ in range(3):
        driver.tidy(QUEUE)
    station.client.schedule_many([{"name": "n", "id": f"again{n}"} for n in range(3)])
    page = station.client.list_jobs(State.READY, limit=1)
    station.client.list_jobs(State.READY, limit=1, cursor=page.cursor)
    station.client.schedule("n", id="later", delay="1h")
    scheduled = station.client.list_jobs(State.SCHEDULED, limit=1)
    station.client.list_jobs(State.SCHEDULED, limit=1, cursor=scheduled.cursor or f"{scheduled.jobs[0].due_ms} later")
    assert station.client.clear()
    consumer.close()


def _give_up() -> None:
    raise Fail("on purpose")


def the_command_line(inline: Callable[..., Any]) -> Callable[[Station], None]:
    """Every command that asks a server."""

    def story(station: Station) -> None:
        steps = Steps(station)
        for name in ("x", "n"):
            station.handles(name, _give_up)
        for words in PRODUCE:
            inline(*words)
        station.client.schedule("n", id="held", unique="key")
        pending = batch([steps("ok"), steps("bad", "fail", 9)], name="two").dispatch()
        chain(steps("a"), steps("b")).dispatch()
        with station.working(queues=QUEUES, mover=True):
            wait_until(lambda: station.client.stats(QUEUE)[0].failed >= 2, what="what fails has failed")
            inline("workers")
            inline("list", "--json")
        failed = [info.id for info in station.client.iter_jobs(State.FAILED)]
        for words in LOOK:
            inline(*words)
        seen = observe(station.client.connector, station.client.options)
        assert all(one.bytes for one in seen.queues)
        assert not seen.unseen
        inline("show", failed[0], "--queue", QUEUE)
        inline("failed", "show", failed[0], "--queue", QUEUE)
        inline("failed", "retry", failed[0], "--queue", QUEUE)
        inline("failed", "forget", failed[1], "--queue", QUEUE)
        inline("batch", "show", pending.id)
        inline("batch", "cancel", pending.id)
        for words in CHANGE:
            inline(*words)

    return story


BRIEFLY: tuple[Callable[..., None], ...] = (*WITH_STEPS[:1], *WITH_STEPS[-2:-1], *ALONE[:1], *ALONE[-1:], damage)
PRODUCE: Commands = (
    ("schedule", "x", "--in", "1h", "--id", "o1", "--queue", QUEUE, "--data", '{"a": 1}'),
    ("schedule", "x", "--in", "2h", "--id", "o1", "--queue", QUEUE, "--on-conflict", "replace"),
    ("schedule", "x", "--in", "3h", "--id", "o1", "--queue", QUEUE, "--on-conflict", "postpone"),
    ("schedule", "x", "--in", "3h", "--id", "o2", "--queue", QUEUE, "--retention", "1h"),
    ("reschedule", "o1", "--queue", QUEUE, "--in", "30m"),
    ("run-now", "o1", "--queue", QUEUE),
    ("cancel", "o2", "--queue", QUEUE),
)
LOOK: Commands = (
    ("list",), ("stats",), ("activity",), ("job-types",), ("upcoming", "--queue", QUEUE), ("failed", "list"),
    ("batch", "list"),
    ("lock", "list"), ("limit", "list"), ("audit",), ("top", "--once"), ("config", "show"), ("doctor",),
)  # fmt: skip
CHANGE: Commands = (
    ("queue", "set", QUEUE, "--lease", "10s"), ("pause", QUEUE), ("resume", QUEUE), ("pause", "--all"),
    ("resume", "--all"), ("maintenance", "on", "--for", "1m"), ("maintenance", "off"), ("restart",),
    ("failed", "prune", "--queue", QUEUE, "--older", "0s"), ("failed", "flush", "--queue", QUEUE, "--yes"),
    ("move", "--once"), ("clear", "--queue", QUEUE, "--yes"),
)  # fmt: skip
