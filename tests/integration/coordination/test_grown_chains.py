"""A chain inside a batch that grows while it runs: new links are members before anything after them is told."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import InvalidInput, JobContext
from delayq.core import envelope as envelopes
from delayq.core.followups import Note, Word
from delayq.core.states import State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.coordinated import RunningChain
from delayq.jobs.coordination import ManagerCoordinator
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Dispatch, named
from delayq.jobs.links import NOWHERE, Builder
from delayq.jobs.plans import Element, Member
from delayq.jobs.unsent import include
from delayq.manager import Manager
from delayq.redis.calls import follow as calls
from tests.support.members import Flaky, Slow, finished, numbers, work
from tests.support.station import QUEUE, Station
from tests.support.steps import Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def growing(station: Station, name: str, *, first: list[Element] | None = None, last: list[Element]) -> Dispatch:
    """A job that puts these next and at the end."""

    def grow(context: JobContext) -> None:
        context.chain.prepend(*(first or []))
        context.chain.append(*last)

    station.handles(name, grow)
    return named(name)


def test_new_links_are_members_of_the_batch(station: Station, steps: Steps) -> None:
    first: list[Element] = [steps("here"), steps("there").on_queue("mails")]
    inner = batch([steps("in"), chain(steps("in 1"), steps("in 2"))], then=steps("inner then"))
    include([inner])  # the forked worker sends it, and not the test's process
    member = growing(station, "grow", first=first, last=[inner, steps("last")])
    alone = growing(station, "alone", last=[steps("after")])
    info = batch([chain(member, steps("planned")), alone], then=steps("then")).dispatch()
    assert info.total == 3
    with work(station):
        steps.until("then")
        steps.quiet()
    assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 8, 0, 0), "finished")
    ran = [name for name in steps.ran if name != "after" and not name.startswith("in")]
    assert ran == ["here", "there", "planned", "last", "then"]
    assert steps.counts == dict.fromkeys([*ran, "after", "in", "in 1", "in 2", "inner then"], 1)
    assert steps.headers("then")["delayq-batch-total"] == "8"


def test_a_chain_in_a_batch_in_a_chain_grows_and_the_outer_one_waits(station: Station, steps: Steps) -> None:
    inner = batch([chain(growing(station, "grow", first=[steps("new").on_queue("mails")], last=[]), steps("b"))])
    chain(steps("a"), inner, steps("z")).dispatch()
    with work(station):
        steps.until("z")
        steps.quiet()
    assert steps.ran == ["a", "new", "b", "z"]


def test_a_new_link_that_fails_skips_what_is_behind_it_and_a_retry_goes_on(station: Station, steps: Steps) -> None:
    flaky = Flaky(station)
    grows = growing(station, "grow", first=[flaky("bad").on_queue("mails"), steps("behind")], last=[])
    batch([chain(grows, steps("planned"))], id="b", then=steps("then"), catch=steps("catch")).dispatch()
    with work(station):
        assert numbers(finished("b")) == (0, 1, 1, 2)
        steps.until("catch")
        steps.quiet()
        assert station.client.batches.failed("b") == [("bad", "mails")]
        flaky.mend()
        assert station.client.batches.retry("b") == 1
        steps.until("then")
    assert steps.ran == ["catch", "behind", "planned", "then"]
    assert numbers(find_batch("b")) == (0, 4, 0, 0)


def test_what_a_member_of_a_cancelled_batch_adds_is_skipped_at_once(station: Station, steps: Steps) -> None:
    """It would be due in an hour, and nobody waits for that."""
    slow = Slow(station)

    def grow(context: JobContext) -> None:
        context.chain.prepend(steps("new", id="new").delay("1h").on_queue("mails"))
        slow.started.set()
        assert slow.go_on.wait(50)

    station.handles("grow", grow)
    batch([chain(named("grow"), steps("planned"))], id="b", finally_=steps("finally")).dispatch()
    with work(station):
        assert slow.started.wait(50)
        station.client.batches.cancel("b")
        slow.go_on.set()
        steps.until("finally")
        steps.quiet()
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 1, 0, 2), "cancelled")
    assert (steps.ran, station.state("new", "mails")) == (["finally"], State.ABSENT)


def test_a_link_that_was_retried_may_grow_its_chain(station: Station, steps: Steps) -> None:
    """The batch was cancelled by its failure; the new link starts, because the retry lifted that."""
    mended = station.flag()

    def grow(context: JobContext) -> None:
        context.chain.append(steps("new"))
        assert mended.is_set()

    station.handles("grow", grow, tries=1)
    batch([chain(named("grow").having(id="g"), steps("planned"))], id="b", then=steps("then")).dispatch()
    with work(station):
        assert numbers(finished("b")) == (0, 0, 1, 1)
        steps.quiet()
        mended.set()
        station.client.retry("g", queue=QUEUE)
        steps.until("then")
    assert (steps.ran, numbers(find_batch("b"))) == (["planned", "new", "then"], (0, 3, 0, 0))


def test_an_id_that_the_chain_has_already_is_refused(steps: Steps, manager: Manager) -> None:
    pending = batch([chain(steps("own", id="own"), steps("planned", id="planned"))], id="b")
    [head] = pending.plan(Builder(manager), NOWHERE, None).members
    running = RunningChain(envelopes.decode(head.job), ManagerCoordinator(current_manager))
    for taken in ("own", "planned"):
        with pytest.raises(InvalidInput, match=f"The id '{taken}' is given to two links of a chain in a batch"):
            running.append(steps("new", id=taken))
    assert (running.remaining, running.changed()) == (1, b"")


@pytest.mark.parametrize("how", ["prepended", "added"])
def test_a_link_that_has_another_members_id_is_passed_by(station: Station, steps: Steps, how: str) -> None:
    """That member is left alone, and what stands behind the link is waited for by nobody."""

    def grow(context: JobContext) -> None:
        if how == "prepended":
            context.chain.prepend(steps("other", id="x"))
        elif context.batch is not None:
            context.batch.add(chain(steps("other", id="x"), steps("behind")))

    station.handles("grow", grow)
    members: list[Member] = [steps("x", id="x", delay="1h"), chain(named("grow"), steps("planned"))]
    batch(members, id="b", finally_=steps("finally")).dispatch()
    with work(station):
        wait_until(lambda: find_batch("b").skipped == 1, what="what stands behind it is skipped")
        station.client.run_now("x", queue=QUEUE)
        steps.until("finally")
        steps.quiet()
    info = find_batch("b")
    assert (info.pending, info.failed, info.skipped) == (0, 0, 1)
    assert info.done == len(steps.ran)  # its own step that grows, and those that ran, but for `finally_`
    assert steps.counts["x"] == 1
    assert "other" not in steps.ran


def test_links_that_join_are_counted_once_and_with_the_end_that_brings_them(station: Station, steps: Steps) -> None:
    """Whoever cancels finds that end in an outbox, and hears of the new links with it."""
    note = calls.told_by(Note("b", [("own", Word.DONE)], joined=[("new", QUEUE), ("inner", "")]))
    batch([steps("own", id="own", delay="1h")], id="b").dispatch()
    place = calls.place(station.client.verbs.scope(None), "b")
    for _ in range(2):
        standing: Any = station.client.run(_one(calls.batch_note(place, note)))
        assert (standing.pending, standing.done, standing.finished_ms) == (2, 1, None)
    assert station.client.batches.pending("b") == [("inner", ""), ("new", QUEUE)]


def _one(call: Any) -> Any:
    return (yield call)


@pytest.mark.parametrize("stranger", [3, [3], chain(named("a")), named])
@pytest.mark.parametrize("where", ["prepend", "append"])
def test_what_is_neither_job_nor_batch_is_refused_in_a_sentence(where: str, stranger: Any) -> None:
    rest = RunningChain(coordinator=ManagerCoordinator(current_manager))
    with pytest.raises(InvalidInput, match="is no job"):
        getattr(rest, where)(stranger)
    assert rest.changed() == b""
