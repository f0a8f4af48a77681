"""Chains on a real server, run by a real worker that promotes and carries itself."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import ConfigError, Conflict, InvalidInput, JobContext, JobRef, dispatch
from delayq.core.states import State
from delayq.jobs.batch import batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.manager import Manager
from tests.support.station import QUEUE, Station
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def work(station: Station, **options: Any) -> Any:
    return station.working(queues=QUEUES, mover=True, **options)


def test_each_link_starts_when_the_one_before_has_succeeded(station: Station, steps: Steps) -> None:
    first = chain(
        steps("a", "fail first", 1), steps("b").on_queue("mails"), steps("c", "snooze", 2), steps("d")
    ).dispatch()
    assert isinstance(first, JobRef)
    with work(station):
        steps.until("d")
        steps.quiet()
    assert steps.ran == ["a", "a", "b", "c", "c", "c", "d"]


def test_a_list_is_a_chain_too(station: Station, steps: Steps) -> None:
    chain([steps("a"), steps("b")]).append([steps("c")]).prepend([steps("z")]).dispatch()
    with work(station):
        steps.until("c")
    assert steps.ran == ["z", "a", "b", "c"]


def test_a_link_goes_to_its_own_queue_or_the_chains(station: Station, steps: Steps) -> None:
    chain(steps("a"), steps("b", queue="parcels"), steps("c")).on_queue("mails").dispatch()
    with work(station):
        steps.until("c")
        steps.quiet()
    for counter in ("acked_total", "scheduled_total"):
        seen = {queue: station.client.stats(queue)[0].counters.get(counter) for queue in QUEUES}
        assert seen == {QUEUE: 0, "mails": 2, "parcels": 1}, counter


def test_each_link_counts_as_scheduled_once(station: Station, steps: Steps) -> None:
    chain(steps("a", "fail first", 1), steps("b"), steps("c")).dispatch()
    with work(station):
        steps.until("c")
        steps.quiet()
    counters = station.client.stats(QUEUE)[0].counters
    assert (counters["scheduled_total"], counters["acked_total"]) == (3, 3)


def test_a_failed_link_stops_the_chain_and_tells_who_catches(station: Station, steps: Steps) -> None:
    chain(steps("a"), steps("b", "give up", id="b-1"), steps("c")).catch(steps("caught").on_queue("mails")).dispatch()
    with work(station):
        steps.until("caught")
        steps.quiet()
    assert steps.ran == ["a", "b", "caught"]
    told = {name: value for name, value in steps.headers("caught").items() if name.startswith("delayq-failed-")}
    assert told == {
        "delayq-failed-id": "b-1",
        "delayq-failed-queue": QUEUE,
        "delayq-failed-error": "Fail",
        "delayq-failed-message": "b gives up",
    }
    assert station.state("b-1") is State.FAILED


def test_retrying_the_failed_link_takes_the_chain_up_again(station: Station, steps: Steps) -> None:
    chain(steps("a", "fail first", 1, id="a-1", tries=1), steps("b"), steps("c").on_queue("mails")).dispatch()
    with work(station):
        station.until("a-1", State.FAILED)
        assert steps.ran == ["a"]
        # The counts start anew, so that the second run is a first attempt again: it must not fail once more.
        raw = station.job("a-1").raw.replace(b'"times":1', b'"times":0')
        station.connector.commands().hset(station.keys().of("jobs"), "a-1", raw)
        station.client.retry("a-1", queue=QUEUE)
        steps.until("c")
    assert steps.ran == ["a", "a", "b", "c"]


def test_a_link_whose_worker_vanishes_is_caught(station: Station, steps: Steps) -> None:
    """reclaim and recover fail it, with no handler's word about it: the outbox hears of it all the same."""
    ref = chain(steps("a", id="a-1"), steps("b")).catch(steps("caught")).dispatch()
    assert isinstance(ref, JobRef)
    station.connector.commands().hset(station.keys().of("recoveries"), "a-1", station.options.max_recoveries)
    consumer = station.driver.consumer("dq:there:1:x", [QUEUE])
    (delivery,) = consumer.fetch([], 1).deliveries
    station.driver.steward([QUEUE]).recover([delivery])  # type: ignore[list-item]  # a claim is part of a delivery
    assert station.state("a-1") is State.FAILED
    with work(station):
        steps.until("caught")
        steps.quiet()
    assert steps.ran == ["caught"]
    assert steps.headers("caught")["delayq-failed-id"] == "a-1"


def test_a_cancelled_link_ends_its_chain_in_silence(station: Station, steps: Steps) -> None:
    chain(steps("a", id="a-1").delay("1h"), steps("b")).catch(steps("caught")).dispatch()
    assert station.client.cancel("a-1", queue=QUEUE) == "cancelled"
    with work(station):
        steps.quiet()
    assert steps.ran == []


def test_a_discarded_link_is_followed_by_the_next(station: Station, steps: Steps) -> None:
    """As Laravel's `delete` inside a handler."""
    chain(steps("a", "discard"), steps("b")).dispatch()
    with work(station):
        steps.until("b")
    assert steps.ran == ["a", "b"]


def test_delays_count_from_a_links_turn(station: Station, steps: Steps) -> None:
    chain(steps("a"), steps("b", id="b-1").delay("1h"), steps("c")).dispatch()
    before = station.client.control().now_ms
    with work(station):
        station.until("b-1", State.SCHEDULED)
    due_ms = station.job("b-1").due_ms
    assert due_ms is not None
    assert before <= due_ms - 3_600_000 <= station.client.control().now_ms
    assert steps.ran == ["a"]


def test_the_chains_delay_is_the_first_links(station: Station, steps: Steps) -> None:
    chain(steps("a", id="a-1"), steps("b")).delay("1h").dispatch()
    assert station.state("a-1") is State.SCHEDULED
    chain(steps("c", id="c-1").delay("2h"), steps("d")).delay("1h").dispatch()
    due = [station.job(name).due_ms for name in ("a-1", "c-1")]
    assert due[0] is not None
    assert due[1] is not None
    assert due[1] - due[0] == pytest.approx(3_600_000, abs=5_000), "its own delay goes before the chain's"


def test_a_running_link_may_change_what_follows(station: Station, steps: Steps) -> None:
    def grow(context: JobContext) -> None:
        assert context.chain.remaining == 1
        context.chain.prepend(steps("next"))
        context.chain.append([steps("last").on_queue("mails"), steps("very last")])

    station.handles("grow", grow)
    chain(named("grow"), steps("planned")).dispatch()
    with work(station):
        steps.until("very last")
    assert steps.ran == ["next", "planned", "last", "very last"]


def test_a_job_in_no_chain_may_begin_one(station: Station, steps: Steps) -> None:
    def begin(context: JobContext) -> None:
        context.chain.append(steps("after"))

    station.handles("alone", begin)
    dispatch("alone")
    with work(station):
        steps.until("after")


def test_what_a_failed_attempt_added_is_forgotten(station: Station, steps: Steps) -> None:
    def grow(context: JobContext) -> None:
        context.chain.prepend(steps(f"added by {context.attempt}"))
        if context.attempt == 1:
            raise ValueError

    station.handles("grow", grow)
    chain(named("grow"), steps("planned")).dispatch()
    with work(station):
        steps.until("planned")
    assert steps.ran == ["added by 2", "planned"]


def test_a_batch_in_a_chain_ends_before_it_goes_on(station: Station, steps: Steps) -> None:
    members = [steps(f"m{n}", queue=QUEUES[n % 3]) for n in range(6)]
    chain(steps("a"), batch(members, then=steps("then")), steps("z")).dispatch()
    with work(station):
        steps.until("z", "then")
        steps.quiet()
    assert steps.counts == dict.fromkeys(["a", "z", "then", *(f"m{n}" for n in range(6))], 1)
    assert steps.ran[0] == "a"
    assert steps.ran.index("z") > max(steps.ran.index(f"m{n}") for n in range(6))


def test_a_batch_with_a_failure_stops_the_chain(station: Station, steps: Steps) -> None:
    chain(batch([steps("m1"), steps("m2", "give up")]), steps("z")).catch(steps("caught")).dispatch()
    with work(station):
        steps.until("caught")
        steps.quiet()
    assert sorted(steps.ran) == ["caught", "m1", "m2"]


def test_a_cancelled_batch_stops_the_chain_in_silence(station: Station, steps: Steps) -> None:
    inner = batch([steps("m", delay="1h")], id="b", allow_failures=True, finally_=steps("finally"))
    chain(steps("a"), inner, steps("z")).catch(steps("caught")).dispatch()
    with work(station):
        wait_until(lambda: any(info.id == "b" for info in station.client.batches.list()), what="the batch has begun")
        station.client.batches.cancel("b")
        steps.until("finally")
        steps.quiet()
    assert steps.ran == ["a", "finally"]


def test_one_that_allows_failures_does_not(station: Station, steps: Steps) -> None:
    chain(batch([steps("m1"), steps("m2", "give up")]).allow_failures(), steps("z")).catch(steps("caught")).dispatch()
    with work(station):
        steps.until("z")
        steps.quiet()
    assert sorted(steps.ran) == ["m1", "m2", "z"]


def test_a_link_with_a_unique_key_waits_for_its_owner(station: Station, steps: Steps) -> None:
    """Laravel drops it in silence, and the rest of the chain with it."""
    owner = steps("owner", unique="k", id="owner-1").delay("1h")
    owner.dispatch()
    chain(steps("a"), steps("b", unique="k"), steps("c")).dispatch()
    with work(station):
        steps.until("a")
        station.until("owner-1", State.SCHEDULED)
        assert steps.ran == ["a"]
        station.client.cancel("owner-1", queue=QUEUE)
        steps.until("c")
    assert steps.ran == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda steps: chain(), "at least one job"),
        (lambda steps: chain(steps("a"), steps("b", at="2030-01-01T00:00:00Z")), "when its turn comes is not known"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    station: Station, steps: Steps, wrong: Any, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        wrong(steps).dispatch()
    assert station.client.queues() == []


def test_all_links_go_over_one_connection(station: Station, steps: Steps, manager: Manager) -> None:
    with pytest.raises(ConfigError, match="share one connection"):
        chain(steps("a"), steps("b", connection="null")).dispatch()
    assert station.client.queues() == []


async def test_it_may_be_awaited(station: Station, steps: Steps, manager: Manager) -> None:
    ref = await chain(steps("a"), steps("b")).adispatch()
    await manager.aclose()
    assert isinstance(ref, JobRef)
    with work(station):
        steps.until("b")


def test_on_a_sync_connection_it_runs_link_by_link(station: Station, steps: Steps) -> None:
    ref = chain(steps("a"), steps("b").delay("1h"), steps("c")).on_connection("sync").dispatch()
    assert isinstance(ref, JobRef)
    assert (ref.outcome, steps.ran) == ("done", ["a", "b", "c"])
    with pytest.raises(Exception, match="e gives up"):
        chain(steps("d"), steps("e", "give up"), steps("f")).catch(steps("g")).on_connection("sync").dispatch()
    assert steps.ran[3:] == ["d", "e", "g"]
    with pytest.raises(ConfigError, match="keeps no batches"):
        chain(steps("h"), batch([steps("i")])).on_connection("sync").dispatch()


def test_a_first_id_that_is_taken_is_refused(station: Station, steps: Steps) -> None:
    """Else the rest would be lost: the job that is there is followed by something else."""
    steps("other", id="mine", delay="1h").dispatch()
    with pytest.raises(Conflict, match="The job 'mine' in queue 'orders' exists"):
        chain(steps("a", id="mine"), steps("b")).dispatch()
    kept = chain(steps("a", id="mine", on_conflict="keep"), steps("b")).dispatch()
    assert isinstance(kept, JobRef)
    assert kept.outcome == "kept"
    chain(steps("c", id="c"), steps("d", id="c")).dispatch()  # free when its turn comes
    with work(station):
        steps.until("d")
    assert steps.ran == ["c", "d"]
