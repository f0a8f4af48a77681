"""Chains and batches in each other, and workers, relays, retries and cancels side by side, command by command.

Each actor may be killed before any of its commands. At the end everything is let go well, and then must hold:

    each step      ran well once at most, and never again after that; a link only after the one before it
    each batch     has ended; its figures are those of what ran; `then` was sent once, if all succeeded, and else not
    each callback  without retries exactly once; `finally_` after the last member has ended
    each chain     told of each failure of its links, once

`DELAYQ_CHAOS=full` plays a thousand.
"""

from __future__ import annotations

import os
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from delayq.core.batches import BatchInfo
from delayq.manager import Manager
from delayq.redis.verbs import Flow
from tests.support.coordinated_story import Made, Story, World
from tests.support.interleave import Loom
from tests.support.station import Station
from tests.support.steps import QUEUES

SEEDS = 1_000 if os.environ.get("DELAYQ_CHAOS") == "full" else 10
ACTS, MOST_AT_ONCE = 160, 5


class Play:
    """One run. Without `retries` nobody retries anything before all has come to rest."""

    def __init__(self, client: Any, manager: Manager, seed: int) -> None:
        self.rand = Random(seed)
        self.retries = seed % 2 == 1
        self.story = Story(self.rand, manager)
        self.world = World(client, self.rand, self.story)
        self.loom = Loom(client, self.rand, self.world.check)
        self.tops = [f"b{n}" for n in range(2)]
        self.plans = [self.story.plan(self.story.batch(name, 2)) for name in self.tops]
        self.heads = [self.story.head(self.story.chain(f"c{n}", 1), f"c{n}") for n in range(2)]

    def chaos(self) -> None:
        """Everybody at once, and some are killed."""
        for queue in QUEUES:
            self.loom.start(self.world.prepare(queue))
        self.loom.run()
        for plan in self.plans:
            self.start(self.world.batches.open(plan))
        for head in self.heads:
            self.start(self.world.follow.send([head]))
        for _ in range(ACTS):
            while self.loom.busy >= MOST_AT_ONCE or (self.loom.busy and self.rand.random() < 0.3):
                self.loom.step()
            self.world.now += self.rand.choice((0, 100, 3_000))
            self.act()
        self.loom.run()

    def start(self, flow: Flow[object]) -> None:
        """With the others; one in six is killed early."""
        self.loom.start(flow, most=self.rand.randint(0, 14) if self.rand.random() < 0.16 else -1)

    def act(self) -> None:
        world, queue = self.world, self.rand.choice(QUEUES)
        drawn = self.rand.random()
        if drawn < 0.5:
            self.start(world.worker(queue))
        elif drawn < 0.78:
            self.start(world.relay(queue))
        elif drawn < 0.82:
            self.start(world.janitor(self.loom.busy > 0))
        elif drawn < 0.86:
            self.start(world.batches.get(self.rand.choice(list(self.story.batches))))
        elif drawn < 0.89:
            self.start(world.batches.cancel(self.rand.choice(list(self.story.batches))))
        elif drawn < 0.91 and (jobs := world.steps_waiting()):
            self.start(world.by_hand.cancel(*self.rand.choice(jobs), running=False))
        elif self.retries and drawn < 0.96:
            self.start(world.batches.retry(self.rand.choice(list(self.story.batches))))
        elif self.retries and (jobs := world.waiting()):
            self.start(world.by_hand.retry(*self.rand.choice(jobs)))

    def rest(self) -> None:
        """Nobody is killed any more; until nothing is left to do. What was begun is begun to the end."""
        for plan in self.plans:
            self.loom.start(self.world.batches.open(plan))
        for head in self.heads:
            self.loom.start(self.world.follow.send([head]))
        self.loom.run()
        for _ in range(400):
            self.world.now += 6_000
            self.loom.start(self.world.janitor(alive=False))
            self.loom.run()
            if self.world.quiet():
                return
            for queue in QUEUES:
                self.loom.start(self.world.worker(queue))
                self.loom.start(self.world.relay(queue))
            self.loom.run()
        raise AssertionError("it does not come to rest")

    def mend(self) -> None:
        """Nothing breaks any more, and all that failed is retried."""
        self.world.breaks = 0.0
        for _ in range(12):
            for top in self.tops:
                self.loom.start(self.world.batches.retry(top))
            self.loom.run()
            for job, queue in self.world.waiting():
                self.loom.start(self.world.by_hand.retry(job, queue))
            self.rest()
            if not self.world.waiting():
                return
        raise AssertionError(f"some stay failed: {self.world.waiting()}")

    def standing(self) -> dict[str, BatchInfo]:
        """The batches there are."""
        found: dict[str, BatchInfo] = {}

        def then(info: BatchInfo | None, _: BaseException | None) -> None:
            if info is not None:
                found[info.id] = info

        for name in self.story.batches:
            self.loom.start(self.world.batches.get(name), then)
        self.loom.run()
        return found


def each_callback_is_sent_once(play: Play) -> None:
    """Before anything was retried."""
    world = play.world
    for name, info in play.standing().items():
        made = play.story.batches[name]
        own = sum(len(world.ended(step, "failed")) for step in made.own)
        below = sum(len(world.ended(step, "failed")) for step in made.below)
        caught, last = len(world.ended(f"{name}:catch", "done")), len(world.ended(f"{name}:finally_", "done"))
        assert info.finished_ms is not None, f"{name} has not ended: {info}"
        assert last == 1, f"finally_ of {name}: {last} times"
        assert caught == 1 if own else caught <= (1 if below else 0), f"catch of {name}: {caught}, {own} failed"


def all_is_as_it_must_be(play: Play) -> None:
    """At the end, when all that failed has been retried and nothing breaks any more."""
    world, standing = play.world, play.standing()
    for name, runs in world.runs.items():
        well = [n for n, run in enumerate(runs) if run.how == "done"]
        assert len(well) <= 1 or ":" in name, f"{name} ran well {len(well)} times"
        assert not well or ":" in name or well[0] == len(runs) - 1, f"{name} ran again after it had ended well"
    for order in play.story.orders:
        the_order_was_kept(play, order)
    for name, links in play.story.caught:
        failures = sum(len(world.ended(link, "failed")) for link in links)
        told = len(world.ended(name, "done"))
        assert told >= failures, f"{name} was told of {told}, and {failures} links have failed"
        assert told == failures or _has_batch(play, name), f"{name} was told of {told}, {failures} links have failed"
    for top in play.tops:
        assert top in standing
    for name, info in standing.items():
        it_counts_what_ran(play, play.story.batches[name], info)


def _has_batch(play: Play, caught: str) -> bool:
    """Whether a batch is a link of that chain: it tells of its own failures too."""
    path = caught.removesuffix(":caught")
    return any(name.startswith(f"{path}.") for name in play.story.batches)


def the_order_was_kept(play: Play, order: list[str]) -> None:
    """No link began before the one in front of it had ended well."""
    for before, after in pairwise(order):
        if before in play.story.batches or after not in play.world.runs:
            continue
        well = play.world.ended(before, "done")
        assert well, f"{after} ran, and {before} in front of it never ended well"
        assert well[0].ended <= play.world.runs[after][0].began, f"{after} began before {before} had ended"


def it_counts_what_ran(play: Play, made: Made, info: BatchInfo) -> None:
    world, name = play.world, made.id
    assert (info.pending, info.failed) == (0, 0), f"{name}: {info}"
    assert info.finished_ms is not None
    ran = sum(1 for step in made.own if world.ended(step, "done"))
    assert ran <= info.done <= ran + len(made.inner), f"{name} counts {info.done}, {ran} have run: {info}"
    sure = len(made.steps) + len(made.inner)
    assert sure <= info.total <= sure + len(made.perhaps), f"{name}: {info}, {made.steps}, perhaps {made.perhaps}"
    then = len(world.ended(f"{name}:then", "done"))
    assert then == (1 if info.done == info.total else 0), f"then of {name}: {then} times; {info}"
    last = max((run.began for run in world.ended(f"{name}:finally_", "done")), default=-1)
    ends = [run.ended for step in made.waited_for for run in world.runs.get(step, ()) if run.how in ("done", "failed")]
    assert last > max(ends, default=-2), f"something of {name} ran after its last finally_"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_order_and_no_death_breaks_a_story(station: Station, manager: Manager, seed: int) -> None:
    play = Play(station.connector.commands(), manager, seed)
    play.chaos()
    play.rest()
    if not play.retries:
        each_callback_is_sent_once(play)
    play.mend()
    all_is_as_it_must_be(play)
