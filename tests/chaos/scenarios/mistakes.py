"""What operators do by mistake. Where the information is still there, everything runs; where not, nothing else suffers.

Some jobs wait, some are due, some run, some have failed once, while it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.redis.keys import GROUP, Keys
from tests.chaos.engine import Lot, Tally
from tests.chaos.world import client_of, crew, server
from tests.support.chaos_rig import QUEUE
from tests.support.rule_one import broken
from tests.support.servers import connect
from tests.support.snapshot import word
from tests.support.waiting import wait_until

KEYS = Keys("delayq", QUEUE)
HEALED_S = 60.0

Mistake = Callable[[Any], None]


def mistakes(lot: Lot) -> Tally:
    """`units` of them, one after another, on one server with one worker."""
    rand, tally = lot.rand, Tally()
    with (
        server() as one,
        crew(lot, one.url, lease_ms=1_000, tidy_every_ms=300) as members,
        client_of(members) as client,
        connect(one.url) as plain,
    ):
        members.hire()
        for n in range(lot.units):
            name, mistake = rand.choice(list(MISTAKES.items()))
            delays = ("0s", "0s", "100ms", "700ms", "1200ms")
            ids = [f"x{n}-{k}" for k in range(15)]
            specs = [
                {"name": "shaky" if k % 5 == 0 else "note", "id": job_id, "delay": delays[k % 5], "data": {"ms": 20}}
                for k, job_id in enumerate(ids)
            ]
            client.schedule_many(specs)
            mistake(plain)
            wait_until(partial(_over, plain), timeout=HEALED_S, what=f"the queue is sound again after {name}")
            ended = set(members.ledger.jobs("end"))
            gone = [job for job in ids if job not in ended]
            stubs = {word(job) for job in plain.zrange(KEYS.of("failed"), 0, -1)}
            if name in TAKES_JOBS:
                tally.add(jobs_taken_from_every_key=len(gone))
            else:
                assert not gone, f"{name}: {gone} never ended, {sorted(stubs)} failed"
            for job in stubs:
                client.forget(job, queue=QUEUE)
            tally.add(**{name: 1})
    return tally


def _over(plain: Any) -> bool:
    """Whether nothing waits or runs, and nothing is wrong."""
    if plain.zcard(KEYS.of("scheduled")) or plain.hlen(KEYS.of("entries")) or plain.xlen(KEYS.stream):
        return False
    return broken(plain, KEYS) == []


def deleted(name: str) -> Mistake:
    """DEL of one key."""
    return lambda plain: plain.delete(KEYS.of(name))


def trimmed(plain: Any) -> None:
    """XTRIM MAXLEN 0."""
    plain.xtrim(KEYS.stream, maxlen=0, approximate=False)


def group_destroyed(plain: Any) -> None:
    """XGROUP DESTROY."""
    if plain.exists(KEYS.stream):
        plain.xgroup_destroy(KEYS.stream, GROUP)


def consumers_deleted(plain: Any) -> None:
    """XGROUP DELCONSUMER for all of them, whatever they hold."""
    if plain.exists(KEYS.stream) and plain.xinfo_groups(KEYS.stream):
        for row in plain.xinfo_consumers(KEYS.stream, GROUP):
            plain.xgroup_delconsumer(KEYS.stream, GROUP, row["name"])


def wrong_type(plain: Any) -> None:
    """A string where the stream was, which is then deleted."""
    plain.set(KEYS.stream, "oops")
    plain.delete(KEYS.stream)


def set_moved(plain: Any) -> None:
    """A string where the schedule was, which is then deleted."""
    plain.set(KEYS.of("scheduled"), "oops")
    plain.delete(KEYS.of("scheduled"))


def payloads_removed(plain: Any) -> None:
    """HDEL of some payloads."""
    names = plain.hkeys(KEYS.of("jobs"))[:5]
    if names:
        plain.hdel(KEYS.of("jobs"), *names)


def flushed(plain: Any) -> None:
    """FLUSHALL."""
    plain.flushall()


MISTAKES: dict[str, Mistake] = {
    "DEL_stream": lambda plain: plain.delete(KEYS.stream),
    "DEL_scheduled": deleted("scheduled"),
    "DEL_entries": deleted("entries"),
    "DEL_meta": deleted("meta"),
    "XTRIM": trimmed,
    "XGROUP_DESTROY": group_destroyed,
    "DELCONSUMER": consumers_deleted,
    "wrong_type_of_the_stream": wrong_type,
    "wrong_type_of_scheduled": set_moved,
    "payloads_removed": payloads_removed,
    "DEL_jobs": deleted("jobs"),
    "FLUSHALL": flushed,
}
TAKES_JOBS = {"payloads_removed", "DEL_jobs", "FLUSHALL"}
