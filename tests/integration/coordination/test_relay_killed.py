"""A relay that is killed at every point of its work: what it carried runs once, whoever goes on where it stopped.

Killed before a command is killed after the one in front of it. So each story is told again and again, and the relay is
killed before its first command, its second one … until there is one that it does not need any more. What it had
carried by then runs and is forgotten before anybody goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.core.errors import BackendUnavailable
from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.jobs.plans import Member
from delayq.redis.connect import Connector
from tests.support.by_hand import World, called, step
from tests.support.station import Station
from tests.support.steps import QUEUES

pytestmark = pytest.mark.usefixtures("manager")
MOST = 120


class Dying(Connector):
    """Carries `left` commands; the next one never leaves, and so for ever."""

    def __init__(self, url: str, left: int) -> None:
        super().__init__(url)
        self.left = left

    @property
    def dead(self) -> bool:
        return self.left < 0

    def call(self, do: Callable[[Any], Any], *, safe: bool, reads: bool = False, hasty: bool = False) -> Any:
        self.left -= 1
        if self.dead:
            raise BackendUnavailable("the relay is dead")
        return super().call(do, safe=safe, reads=reads, hasty=hasty)


def until_it_dies(world: World, commands: int) -> bool:
    """Work, and let one relay carry that is killed after so many commands; whether it was."""
    connector = Dying(world.station.url, commands)
    relay = world.relay(connector)
    try:
        while world.work() or world.carry(relay):
            pass
    except BackendUnavailable:
        world.work()
    finally:
        connector.close()
    return connector.dead


def a_chain() -> list[str]:
    names = [f"c{n}" for n in range(5)]
    chain([step(name, QUEUES[n % 3]) for n, name in enumerate(names)]).catch(step("caught")).dispatch()
    return names


def a_batch_in_a_chain() -> list[str]:
    members = [step(f"m{n}", QUEUES[n]) for n in range(3)]
    inner = batch(members, before=step("before", QUEUES[1]), **called())
    chain(step("a"), inner, step("z", QUEUES[1])).dispatch()
    return ["a", "before", "m0", "m1", "m2", "then", "finally_", "z"]


def a_chain_that_grows_in_a_batch() -> list[str]:
    batch([chain(step("grow"), step("b", QUEUES[1]))], **called()).dispatch()
    return ["grow", "new", "in", "b", "then", "finally_"]


def a_failure_that_cancels() -> list[str]:
    waits = batch([step("never", QUEUES[2], delay="500w")], **called("inner "))
    chain(batch([step("bad"), step("waits", QUEUES[1], delay="500w"), waits], **called()), step("z")).catch(
        step("caught", QUEUES[2])
    ).dispatch()
    return ["bad", "catch", "finally_", "inner finally_", "caught"]


def a_failure_that_is_allowed() -> list[str]:
    members: list[Member] = [chain(step("a"), step("bad 1", QUEUES[1]), step("behind")), step("bad 2", QUEUES[2])]
    chain(batch(members, allow_failures=True, **called()), step("z")).catch(step("caught")).dispatch()
    return ["a", "bad 1", "bad 2", "catch", "finally_", "z"]


STORIES = (
    a_chain,
    a_batch_in_a_chain,
    a_chain_that_grows_in_a_batch,
    a_failure_that_cancels,
    a_failure_that_is_allowed,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whatever_it_carried_runs_once(station: Station, story: Callable[[], list[str]]) -> None:
    for commands in range(MOST):
        world = World(station)
        once = dict.fromkeys(story(), 1)
        died = until_it_dies(world, commands)
        world.to_the_end()
        assert world.ran == once, commands
        assert all(info.finished_ms for info in station.client.batches.list()), commands
        if not died:
            break
    assert 10 <= commands < MOST - 1, "the relay has some points to die at, and all were tried"
