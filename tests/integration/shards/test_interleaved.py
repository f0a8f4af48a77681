"""Schedules and cancels of the same ids by several clients, while 1 shard becomes 4 and 4 become 2.

Every command of every client is one step, in an order drawn by a seed; whoever changes the shards is killed after each
of its commands in turn. What must hold, whatever the order:

    after each step   an id lies in one shard at most, and so does a unique key
    at the end        an id lies there when it was created once oftener than cancelled, and else nowhere
    each answer       `unknown` was true at some moment while it was asked for
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
import redis

from delayq.core.options import Options
from delayq.core.shards import Layout, shard_of
from delayq.core.spec import JobSpec
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.redis import resharding
from delayq.redis.keys import Keys
from delayq.redis.verbs import Verbs
from tests.support.interleave import Loom

QUEUE, IDS, CLIENTS = "orders", 6, 4
SHARDS = [shard_of(QUEUE, number) for number in range(4)]
CONFLICTS = [OnConflict.KEEP, OnConflict.REPLACE, OnConflict.POSTPONE, OnConflict.ERROR]
# Commands of a first change: register, configure, time, look, names, 3 join, 3 tidied, it, names, 4 told; and its end.
CHANGE = 18
# More commands than a change has: nobody is killed.
NEVER = 1_000
# The change is made, and whoever makes it dies before, or while, all shards are told; or tells them.
TOLD_NOBODY = (5, 6, 7, 8, NEVER)


@dataclass(slots=True)
class World:
    """What lies where, seen after each step; and what was answered."""

    client: redis.Redis
    steps: int = 0
    absent_at: dict[str, int] = field(default_factory=dict)
    created: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    lied: list[str] = field(default_factory=list)

    def check(self) -> None:
        """After each step."""
        self.steps += 1
        lie, keys = self.where("jobs"), self.where("unique")
        assert all(count == 1 for count in lie.values()), f"an id in two shards: {lie}"
        assert all(count == 1 for count in keys.values()), f"a unique key in two shards: {keys}"
        self.absent_at.update(
            dict.fromkeys((job_id for job_id in map(name, range(IDS)) if not lie[job_id]), self.steps)
        )

    def where(self, role: str) -> Counter[str]:
        """How many shards have each id (or unique key)."""
        pipe = self.client.pipeline(transaction=False)
        for shard in SHARDS:
            pipe.hkeys(Keys("delayq", shard).of(role))
        return Counter(row.decode() for rows in pipe.execute() for row in rows)

    def scheduled(self, ref: JobRef | None, error: BaseException | None) -> None:
        if ref is not None:
            self.created[ref.id] += ref.outcome is Answer.CREATED

    def ended(self, job_id: str, answer: Answer, since: int) -> None:
        self.cancelled[job_id] += answer is Answer.CANCELLED
        if answer is Answer.UNKNOWN and self.absent_at.get(job_id, 0) < since:
            self.lied.append(f"{job_id} was called unknown and was there all the time")


def name(number: int) -> str:
    return f"job-{number}"


@dataclass(slots=True)
class Clients:
    """Several clients, each with what it knows of the layout, and a thing to do for whichever is idle."""

    world: World
    loom: Loom
    rand: Random
    verbs: list[Verbs]

    def act(self, times: int) -> None:
        for _ in range(times):
            verbs, job_id = self.rand.choice(self.verbs), name(self.rand.randrange(IDS))
            match self.rand.randrange(5):
                case 0 | 1:
                    spec = JobSpec(name="x", id=job_id, delay="1h", queue=QUEUE)
                    self.loom.start(verbs.schedule(spec, self.rand.choice(CONFLICTS)), self.world.scheduled)
                case 2:
                    spec = JobSpec(name="x", unique=job_id, delay="1h", queue=QUEUE)
                    self.loom.start(verbs.schedule(spec, OnConflict.KEEP), self.world.scheduled)
                case 3:
                    self.cancel(verbs, job_id)
                case 4:
                    specs = [JobSpec(name="x", id=name(n), delay="1h", queue=QUEUE) for n in range(IDS)]
                    self.loom.start(verbs.schedule_many(specs, OnConflict.KEEP), self._all)

    def cancel(self, verbs: Verbs, job_id: str) -> None:
        since = self.world.steps
        flow = verbs.cancel(job_id, QUEUE, running=False)
        self.loom.start(flow, lambda answer, error: self.world.ended(job_id, answer, since))

    def _all(self, refs: Any, error: BaseException | None) -> None:
        for ref in refs or ():
            self.world.scheduled(ref, None)


def play(client: redis.Redis, seed: int, killed_after: int) -> World:
    """One run: the change to 4 is killed after so many commands, that to 2 at a draw; a janitor ends it."""
    rand, world = Random(seed), World(client)
    loom = Loom(client, rand, world.check)
    options = Options(queue=QUEUE)
    clients = Clients(world, loom, rand, [Verbs(options) for _ in range(CLIENTS)])
    clients.act(8)
    loom.run()
    clients.act(8)
    loom.start(resharding.change(Verbs(options), QUEUE, 4), most=killed_after)
    clients.act(8)
    loom.run()
    clients.act(8)
    loom.start(resharding.change(Verbs(options), QUEUE, 2), raise_it, most=rand.choice(TOLD_NOBODY))
    clients.act(16)
    loom.run()
    clients.act(8)
    loom.run()
    janitor = Verbs(options)
    clients.act(6)
    loom.start(tend(janitor))
    loom.run()
    return world


def raise_it(_: object, error: BaseException | None) -> None:
    if error is not None:
        raise error


def tend(verbs: Verbs) -> Any:
    layout: Layout = yield from verbs.layouts.read(QUEUE)
    yield from resharding.spread(verbs, QUEUE, layout)


@pytest.mark.parametrize("killed_after", [*range(CHANGE), NEVER])
def test_no_order_of_commands_makes_an_id_twice_or_loses_one(redis_client: redis.Redis, killed_after: int) -> None:
    for seed in range(2):
        redis_client.flushall()
        world = play(redis_client, 1_000 * killed_after + seed, killed_after)
        lie = world.where("jobs")
        assert world.lied == []
        for job_id in map(name, range(IDS)):
            assert world.created[job_id] - world.cancelled[job_id] == lie[job_id], job_id
        assert sum(lie.values()) > 0


def test_a_change_has_as_many_commands_as_it_is_killed_after(redis_client: redis.Redis) -> None:
    """So that the test above kills it after each."""
    steps = World(redis_client)
    loom = Loom(redis_client, Random(1), steps.check)
    loom.start(resharding.change(Verbs(Options(queue=QUEUE)), QUEUE, 4), raise_it)
    loom.run()
    assert steps.steps == CHANGE
