"""What a worker counts in shared memory."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from delayq.core.activity import Spread
from delayq.core.errors import BackendFull, OutcomeUnknown
from delayq.drivers.base import Measures
from delayq.worker.meter import OUTCOMES, UNKNOWN, Measured, Meter, by_queue, measures
from delayq.worker.slots import Slots, Word
from delayq.worker.tallying import AT_ONCE, EVERY_S, Tallying

DONE, FAILED, FENCED = (OUTCOMES.index(word) for word in ("done", "failed", "fenced"))


def meter() -> Meter:
    slots = Slots(["orders", "mail"], 1)
    slots.floats[Word.CLOCK_MS] = 1_000.0
    made = Meter(["orders", "mail"], ["close", "send"])
    made.tell_time(slots.floats)
    return made


def only(counted: Meter) -> Measured:
    (row,) = counted.rows()
    return row


def test_an_attempt_by_queue_job_and_outcome() -> None:
    counted = meter()
    place = counted.began("orders", "close", 10.0, 10_985)  # 11,000 by the server: 15 ms late
    counted.done(place, 0.4)
    row = only(counted)
    assert (row.queue, row.job, row.late.count, row.late.sum_ms) == ("orders", "close", 1, 15.0)
    assert row.ended[DONE] == 1
    assert row.took[DONE] == Spread((1, *[0] * 18), 0.4)
    assert sum(row.ended) == 1


def test_an_end_without_a_start_has_no_length() -> None:
    counted = meter()
    counted.ended(counted.place("mail", "send"), "failed", None)
    row = only(counted)
    assert (row.queue, row.ended[FAILED], row.took[FAILED].count) == ("mail", 1, 0)


def test_a_fenced_attempt_is_counted_once_and_no_count_goes_down_once_it_was_read() -> None:
    counted = meter()
    place = counted.place("orders", "close")
    counted.done(place, 1.0)
    counted.fenced(place, "done")
    assert (only(counted).ended[DONE], only(counted).ended[FENCED]) == (0, 1)
    counted.done(place, 1.0)
    assert only(counted).ended[DONE] == 1
    counted.fenced(place, "done")
    assert (only(counted).ended[DONE], only(counted).ended[FENCED]) == (1, 2)
    counted.done(place, 1.0)
    assert (only(counted).ended[DONE], only(counted).took[DONE].count) == (1, 3)
    counted.fenced(place, "")
    assert (only(counted).ended[DONE], only(counted).ended[FENCED]) == (1, 3)


def test_shards_are_their_queue_and_jobs_that_nobody_registered_are_unknown() -> None:
    counted = meter()
    for shard, job in (("orders", "close"), ("orders#3", "close"), ("orders", "job-1"), ("orders", "job-2")):
        counted.done(counted.place(shard, job), 1.0)
    assert [(row.queue, row.job, row.ended[DONE]) for row in counted.rows()] == [
        ("orders", "close", 2),
        ("orders", UNKNOWN, 2),
    ]


def test_more_jobs_than_rows_end_up_as_unknown_and_none_is_lost() -> None:
    names = [f"job-{n}" for n in range(2_000)]
    counted = Meter(["orders", "mail"], names)
    for queue in ("orders", "mail"):
        for name in names:
            counted.done(counted.place(queue, name), 1.0)
    rows = list(counted.rows())
    assert sum(row.ended[DONE] for row in rows) == 4_000
    assert {row.queue for row in rows if row.job == UNKNOWN} == {"orders", "mail"}
    assert len({(row.queue, row.job) for row in rows}) == len(rows)


def test_what_a_process_counted_outlives_it_and_its_successor_goes_on() -> None:
    counted = meter()
    for _ in range(2):
        child = os.fork()
        if not child:
            counted.done(counted.place("orders", "close"), 1.0)
            os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
    assert only(counted).ended[DONE] == 2


def test_what_came_in_between() -> None:
    counted = meter()
    place = counted.began("orders", "close", 10.0, 10_985)
    before = by_queue(counted.rows())["orders"]
    assert measures(before, before) == {}
    counted.began("orders", "close", 10.0, 10_985)
    counted.ended(place, "released", 3.0)
    assert measures(before, by_queue(counted.rows())["orders"]) == {
        "late:5": 1, "late_ms": 15.0, "took:3": 1, "took_ms": 3.0,
    }  # fmt: skip


class Told:
    """A steward that only counts; `fails` is raised once."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Measures]] = []
        self.fails: Exception | None = None

    def tally(self, measured: Mapping[str, Measures]) -> frozenset[str]:
        self.calls.append(dict(measured))
        if self.fails is not None:
            fails, self.fails = self.fails, None
            raise fails
        return frozenset()


@pytest.fixture
def told() -> Told:
    return Told()


def test_the_backend_is_told_now_and_then_and_only_of_news(told: Told) -> None:
    now = [0.0]
    counted = meter()
    tallying = Tallying([counted, meter()], told, lambda: now[0])  # type: ignore[arg-type]  # only `tally` is called
    counted.done(counted.place("orders", "close"), 1.0)
    tallying.step()
    assert told.calls == []
    for now[0] in (EVERY_S, 2 * EVERY_S, 3 * EVERY_S):
        tallying.step()
    of_close = {"done": 1, "12": 1, "took_ms": 1.0}  # 0.125 * 2 ** (12 / 4) = 1 ms
    assert told.calls == [{"orders": Measures({"took:1": 1, "took_ms": 1.0}, {"close": of_close})}]
    counted.done(counted.place("mail", "send"), 1.0)
    tallying.step(at_once=True)
    assert told.calls[1:] == [{"mail": Measures({"took:1": 1, "took_ms": 1.0}, {"send": of_close})}]


@pytest.mark.parametrize(("error", "again"), [(BackendFull("full"), True), (OutcomeUnknown("lost"), False)])
def test_what_was_refused_is_told_again_and_what_may_have_been_counted_is_not(
    told: Told, error: Exception, *, again: bool
) -> None:
    counted = meter()
    tallying = Tallying([counted], told)  # type: ignore[arg-type]
    counted.done(counted.place("orders", "close"), 1.0)
    told.fails = error
    tallying.step(at_once=True)
    tallying.step(at_once=True)
    assert len(told.calls) == 1 + again


def test_all_children_together_and_each_attempt_once(told: Told) -> None:
    children = [meter(), meter()]
    tallying = Tallying(children, told)  # type: ignore[arg-type]
    for n, outcome in enumerate(("done", "released", "failed")):
        child = children[n % 2]
        child.ended(child.place("orders", "close"), outcome, 1.0)
    children[0].ended(children[0].place("orders", "close"), "failed", None)
    tallying.step(at_once=True)
    children[1].ended(children[1].place("orders", "close"), "failed", None)
    tallying.step(at_once=True)
    first, second = (call["orders"] for call in told.calls)
    assert first.job_types == {"close": {"done": 1, "released": 1, "failed": 2, "12": 3, "took_ms": 3.0}}
    assert second == Measures({}, {"close": {"failed": 1}})


def test_one_call_tells_of_fifty_names_and_all_are_told(told: Told) -> None:
    names = [f"job-{n}" for n in range(2 * AT_ONCE + 20)]
    counted = Meter(["orders"], names)
    for name in names:
        counted.done(counted.place("orders", name), 1.0)
    tallying = Tallying([counted], told)  # type: ignore[arg-type]
    told.fails = BackendFull("full")
    tallying.step(at_once=True)
    tallying.step(at_once=True)
    calls = [call["orders"] for call in told.calls]
    assert [len(call.job_types) for call in calls] == [AT_ONCE, AT_ONCE, 20, AT_ONCE]  # the refused ones again
    assert {name for call in calls[1:] for name in call.job_types} == set(names)
    assert [bool(call.queue) for call in calls] == [True, False, False, True]
