"""A cancel and a retry of one batch, each stopped between any two of its commands, or killed there.

Which of them wins is a matter of who knew of whom. Whoever does: the batch ends, and its figures are those of what ran.
`DELAYQ_CHAOS=full` stops both, at any two places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import pytest

from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.jobs.plans import Member
from delayq.redis.batch_verbs import BatchVerbs
from tests.support.by_hand import World, called, step
from tests.support.interleave import commands
from tests.support.members import numbers
from tests.support.station import Station
from tests.support.steps import QUEUES

pytestmark = pytest.mark.usefixtures("manager")
FULL = os.environ.get("DELAYQ_CHAOS") == "full"
FAR = 1_000
OWN = ("bad", "behind", "a", "b", "c")
LATER_MS = 600 * 7 * 86_400_000


class Race:
    """A batch of which one has failed, and the others wait; all of them can be done from now on."""

    def __init__(self, station: Station, *, allow: bool) -> None:
        self.world = World(station)
        self.allow = allow
        inner = batch([step("in", QUEUES[1], delay="500w")])
        waits = chain(step("a", delay="500w"), step("b", QUEUES[1]), step("c", QUEUES[2]))
        members: list[Member] = [chain(step("bad"), step("behind", QUEUES[2])), waits, inner]
        batch(members, id="b", allow_failures=allow, **called()).dispatch()
        self.world.to_the_end()
        self.world.mended = True

    def run(self, verb: str) -> Iterator[None]:
        """That verb, command by command."""
        station = self.world.station
        return commands(station.connector.commands(), getattr(BatchVerbs(station.client.verbs), verb)("b"))

    def end(self) -> tuple[int, int, int, int]:
        """When all is due and done, everything is as it must be."""
        world, station = self.world, self.world.station
        assert station.now_ms is not None
        station.client.batches.get("b")  # somebody looks, should the one who was to tell all that is due be dead
        station.now_ms += LATER_MS
        world.to_the_end()
        info = station.client.batches.get("b")
        well = sum(world.well[name] for name in OWN)
        assert (info.pending, info.finished_ms is None) == (0, False), info
        assert info.done == well + world.well["in"], (info, world.well)
        assert max(world.well[name] for name in (*OWN, "in", "then", "catch")) <= 1
        assert world.well["then"] == (info.done == info.total)
        return numbers(info)


def raced(station: Station, first: str, second: str, stops: tuple[int, int], *, allow: bool, kill: bool) -> bool:
    """One goes so far, then the other; then both to their ends, or the first is dead. Whether there were so many."""
    race = Race(station, allow=allow)
    one, other = race.run(first), race.run(second)
    there = len(list(islice(one, stops[0]))) == stops[0]
    there = (len(list(islice(other, stops[1]))) == stops[1] or stops[1] == FAR) and there
    for rest in (other,) if kill else (one, other):
        for _ in rest:
            pass
    failed = race.end()[2]
    if failed:
        assert (kill, first) == (True, "retry"), "only a retry that was killed leaves what failed"
        race.world.station.client.batches.retry("b")
        failed = race.end()[2]
    assert failed == 0
    return there


@pytest.mark.parametrize("allow", [True, False], ids=["failures allowed", "cancelled by a failure"])
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", ["cancel", "retry"])
def test_the_batch_ends_and_counts_what_ran(station: Station, first: str, kill: bool, allow: bool) -> None:
    second = "retry" if first == "cancel" else "cancel"
    for at in range(100):
        for then in range(100) if FULL and not kill else (FAR,):
            if not raced(station, first, second, (at, then), allow=allow, kill=kill):
                break
        else:
            continue
        if then in (0, FAR):
            break
    assert 0 < at < 99, "all places were tried"


def test_one_after_the_other_the_later_one_wins(station: Station) -> None:
    for verbs, expected in ((["cancel", "retry"], (0, 2, 0, 4)), (["retry", "cancel"], (0, 0, 0, 6))):
        race = Race(station, allow=True)
        for verb in verbs:
            for _ in race.run(verb):
                pass
        assert race.end() == expected
