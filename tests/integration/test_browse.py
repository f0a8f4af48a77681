"""Pages of jobs over queues and shards: nothing twice, nothing skipped, whatever happens between two pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from delayq import DelayQ
from delayq.core.browsing import Found, Sought
from delayq.core.errors import InvalidInput
from delayq.core.states import State
from delayq.redis.browse import browse, count, matching
from tests.support.failing import fail_job, take

NEXT_YEAR = datetime.now(UTC).year + 1
DUE = f"{NEXT_YEAR}-06-01T00:00:00Z"
LATER = f"{NEXT_YEAR}-07-01T00:00:00Z"


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as client:
        yield client


def page(q: DelayQ, sought: Sought, cursor: str = "") -> Found:
    return q.run(browse(q.verbs, sought, cursor))


def ids(q: DelayQ, sought: Sought) -> list[str]:
    """The ids of all pages."""
    found, cursor = page(q, sought), None
    seen = [info.id for info in found.jobs]
    while found.cursor:
        assert found.cursor != cursor
        cursor = found.cursor
        found = page(q, sought, cursor)
        seen += [info.id for info in found.jobs]
    return seen


@pytest.mark.parametrize("newest", [False, True])
def test_equal_times_over_shards_and_queues_keep_their_order(q: DelayQ, newest: bool) -> None:
    q.queue_set("orders", shards=3)
    names = [f"id-{n:03}" for n in range(60)]
    q.schedule_many(
        [{"name": "x", "at": DUE, "id": name, "queue": ("orders", "mail")[n % 2]} for n, name in enumerate(names)]
    )
    sought = Sought(State.SCHEDULED, ("orders", "mail"), newest=newest, limit=7)
    assert ids(q, sought) == (names[::-1] if newest else names)
    assert q.run(count(q.verbs, sought)) == 60


def test_a_page_goes_on_behind_a_job_that_is_gone_or_moved(q: DelayQ) -> None:
    q.schedule_many([{"name": "x", "at": DUE, "id": name, "queue": "orders"} for name in "abcdef"])
    sought = Sought(State.SCHEDULED, ("orders",), limit=3)
    first = page(q, sought)
    assert [info.id for info in first.jobs] == ["a", "b", "c"]
    q.cancel("c", queue="orders")
    assert [info.id for info in page(q, sought, first.cursor).jobs] == ["d", "e", "f"]
    q.schedule("x", at=DUE, id="c", queue="orders")
    q.reschedule("c", queue="orders", at=LATER)
    assert [info.id for info in page(q, sought, first.cursor).jobs] == ["d", "e", "f"]


def test_what_fits_nothing_reads_a_bounded_number(q: DelayQ) -> None:
    q.schedule_many([{"name": "x", "delay": "1h", "queue": "orders"} for _ in range(1_200)])
    found = page(q, Sought(State.SCHEDULED, ("orders",), name="y", looks=500))
    assert (found.jobs, found.looked, bool(found.cursor)) == ((), 500, True)
    assert ids(q, Sought(State.SCHEDULED, ("orders",), name="y", looks=500)) == []


def test_failed_jobs_bring_their_errors(q: DelayQ) -> None:
    fail_job(q, "a", "first")
    fail_job(q, "b", "second", queue="mail", name="mail.send")
    sought = Sought(State.FAILED, ("orders", "mail"), newest=True)
    told = {info.id: (info.name, info.failure and info.failure.message) for info in page(q, sought).jobs}
    assert told == {"a": ("order.close", "first"), "b": ("mail.send", "second")}


def test_ready_and_running_jobs_come_queue_by_queue(q: DelayQ) -> None:
    for queue in ("a", "b", "c"):
        for n in range(3):
            q.schedule("x", delay="0s", id=f"{queue}{n}", queue=queue)
    take(q, "b0", "b")
    ready = Sought(State.READY, ("a", "b", "c"), limit=2)
    assert ids(q, ready) == ["a0", "a1", "a2", "b1", "b2", "c0", "c1", "c2"]
    assert ids(q, Sought(State.RESERVED, ("a", "b", "c"), limit=2)) == ["b0"]


def test_a_page_of_what_waits_in_a_stream_is_never_longer_than_asked(q: DelayQ) -> None:
    for n in range(12):
        q.schedule(("x", "y")[n % 2], delay="0s", id=f"{n:02}", queue="a")
    sought = Sought(State.READY, ("a",), name="y", limit=4)
    first = page(q, sought)
    assert [info.id for info in first.jobs] == ["01", "03", "05", "07"]
    assert [info.id for info in page(q, sought, first.cursor).jobs] == ["09", "11"]


def test_what_is_meant_is_counted_up_to_a_bound(q: DelayQ) -> None:
    q.schedule_many([{"name": ("x", "y")[n % 2], "at": DUE, "queue": ("a", "b")[n % 4 // 2]} for n in range(40)])
    sought = Sought(State.SCHEDULED, ("a", "b"))
    assert q.run(matching(q.verbs, sought, 1)) == (40, True)  # one question to Redis, whatever the bound
    assert q.run(matching(q.verbs, replace(sought, name="y"), 100)) == (20, True)
    assert q.run(matching(q.verbs, replace(sought, name="y"), 5)) == (5, False)
    assert q.run(matching(q.verbs, replace(sought, name="z"), 100)) == (0, True)


@pytest.mark.parametrize("cursor", ["x", "1", "1 a", "-1 a q", "12345678901234567890 a q"])
def test_what_is_no_cursor_is_refused(q: DelayQ, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="no place in a list"):
        page(q, Sought(State.SCHEDULED, ("orders",)), cursor)
