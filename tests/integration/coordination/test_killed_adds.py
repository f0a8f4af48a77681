"""`context.batch.add`, killed before each of its commands in turn, and never done again: the batch ends all the same.

What it had begun to add is added by a relay, or nothing of it is known to the batch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import JobContext
from delayq.core.errors import Conflict
from delayq.core.followups import Link
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.links import Builder, Where
from delayq.jobs.member_ids import Ids
from delayq.jobs.plans import Member, links_of
from delayq.manager import Manager
from delayq.redis.batch_verbs import BatchVerbs
from delayq.redis.send import send
from delayq.redis.verbs import Flow
from tests.support.members import finished, numbers, work
from tests.support.station import Station
from tests.support.steps import QUEUES, Steps

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def some(steps: Steps, name: str) -> list[Member]:
    """Members of every kind: four in the batch, and one in the inner one."""
    return [
        steps(f"{name}.a"),
        chain(steps(f"{name}.b"), steps(f"{name}.c").on_queue("mails")),
        batch([steps(f"{name}.d")], id=f"{name}.inner"),
    ]


def added(manager: Manager, members: list[Member], batch_id: str) -> list[Link]:
    """As they travel when a job of that batch adds them."""
    return links_of(members, Builder(manager), Where(queue=QUEUES[2]), batch_id, Ids(f"{batch_id}.job").at("add0"))


def killed(flow: Flow[Any], before: int) -> Flow[bool]:
    """A verb whose process is killed before that call; whether it had one."""
    answer: Any = None
    for _ in range(before):
        try:
            answer = yield flow.send(answer)
        except StopIteration:
            return False
    flow.close()
    return True


def outboxes(station: Station) -> Iterator[int]:
    return (station.connector.commands().xlen(station.keys(queue).of("outbox")) for queue in QUEUES)


def test_an_add_that_is_killed_anywhere_and_never_done_again_leaves_a_batch_that_ends(
    station: Station, steps: Steps, manager: Manager
) -> None:
    names: list[str] = []
    verbs, cut = BatchVerbs(station.client.verbs), True
    while cut:
        name = f"b{len(names)}"
        batch([steps(name)], id=name, finally_=steps(f"{name}.finally")).dispatch()
        members = added(manager, some(steps, name), name)
        cut = station.client.run(killed(verbs.add(name, members), len(names)))
        names.append(name)
    assert len(names) > 8, "it has more commands than that"
    with work(station):
        whole = [name for name in names if numbers(finished(name)) == (0, 5, 0, 0)]
        steps.quiet()
    alone = [name for name in names if name not in whole]
    assert {numbers(find_batch(name)) for name in alone} == {(0, 1, 0, 0)}
    assert alone == names[: len(alone)], "what was begun was done, and what was not begun was not"
    assert set(steps.counts.values()) == {1}
    assert len(steps.counts) == 2 * len(names) + 4 * len(whole)


def test_an_add_that_is_refused_leaves_nothing_behind(station: Station, steps: Steps, manager: Manager) -> None:
    batch([steps("a", delay="1h")], id="b").dispatch()
    station.client.batches.cancel("b")
    members = added(manager, some(steps, "b"), "b")
    with work(station):
        steps.quiet()
    with pytest.raises(Conflict, match="has finished"):
        station.client.batches.add("b", members)
    assert (sum(outboxes(station)), numbers(find_batch("b"))) == (0, (0, 0, 0, 1))


def test_a_job_whose_process_is_killed_at_each_command_of_its_add(station: Station, steps: Steps) -> None:
    """The next attempt adds nothing."""
    kills = 7
    started = station.tape()

    def add(context: JobContext, before: int) -> None:
        assert context.batch is not None
        first = before not in started[:]
        started.append(before)
        if not first:
            return
        sent = 0

        def counted(*given: Any, **named: Any) -> Any:
            nonlocal sent
            sent += 1
            if sent > before:
                os.kill(os.getpid(), signal.SIGKILL)
            return send(*given, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("delayq.redis.driving.send", counted)
            context.batch.add(*some(steps, f"k{before}"))

    station.handles("add", add)
    names = [f"k{before}" for before in range(kills)]
    for before, name in enumerate(names):
        batch([named("add", {"before": before})], id=name, then=steps(f"{name}.then")).dispatch()
    with work(station):
        ends = {numbers(finished(name)) for name in names}
        steps.quiet()
    assert sorted(started[:]) == sorted([*range(kills)] * 2), "each was killed once"
    assert ends <= {(0, 1, 0, 0), (0, 5, 0, 0)}
    assert (0, 5, 0, 0) in ends
    assert set(steps.counts.values()) == {1}
