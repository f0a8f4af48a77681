"""Job types: what rows add up to, and how true the percentiles are."""

from __future__ import annotations

import random
from bisect import bisect_left
from typing import Any

import pytest

from delayq.core.job_types import ORDERS, OTHERS, TIME_PARTS, TIMES_MS, JobType, joined, ordered, read_row


def ran(*times_ms: float, **counts: Any) -> JobType:
    parts = [0] * TIME_PARTS
    for ms in times_ms:
        parts[bisect_left(TIMES_MS, ms)] += 1
    return JobType(counts.pop("name", "x"), took_ms=sum(times_ms), times=tuple(parts), **counts)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("low", [0.13, 3.0, 700.0, 3_600_000.0])
def test_a_percentile_is_at_most_ten_percent_off(share: float, low: float) -> None:
    choose = random.Random(7)
    for count in (1, 2, 10, 1_000):
        times = sorted(low * choose.lognormvariate(1.0, 0.5) for _ in range(count))
        times = [min(max(ms, 0.13), 90_000_000.0) for ms in times]
        true = next(ms for n, ms in enumerate(times, 1) if n >= share * count)
        assert ran(*times).percentile(share) == pytest.approx(true, rel=0.1)


def test_what_is_shorter_or_longer_than_the_parts() -> None:
    assert (ran(0.0).percentile(0.5), ran(1e12).percentile(0.5)) == (TIMES_MS[0], TIMES_MS[-1])
    assert TIMES_MS[0] == 0.125
    assert TIMES_MS[-1] > 24 * 3_600_000
    assert ran().percentile(0.5) is None
    with pytest.raises(ValueError, match="share"):
        ran(1.0).percentile(0.0)


def test_the_failure_rate_leaves_out_what_neither_ended_well_nor_failed() -> None:
    assert ran(done=6, retried=1, failed=1, other=92).failure_rate == 0.25
    assert ran(other=1).failure_rate is None
    assert (ran(done=1, other=2).attempts, ran(2.0, 4.0).mean_ms, ran().mean_ms) == (3, 3.0, None)


def test_rows_of_one_name_are_added_up_over_hours_and_queues() -> None:
    row: dict[str, float] = {"at": 5, "done": 2, "released": 1, "failed": 1, "fenced": 9, "12": 3, "took_ms": 2.5}
    row |= {"snoozed": 1, "stopped": 1, "discarded": 1}
    others_row: dict[str, float] = {"at": 5, "done": 1}
    rows = [("orders", "close", row), ("mail", "close", row), ("mail", "", others_row)]
    close, others = joined(rows)
    assert (close.name, close.queues, close.done, close.retried, close.failed, close.other) == (
        "close", ("mail", "orders"), 4, 2, 2, 6,
    )  # fmt: skip
    assert (close.times[12], sum(close.times), close.took_ms) == (6, 6, 5.0)
    assert (others.name, others.attempts) == (OTHERS, 1)


def test_what_is_no_number_is_left_out() -> None:
    row: dict[str, Any] = {"done": "5", "failed": -1, "released": True, "12": [1], "119": 1, "120": 5}
    (found,) = joined([("q", "x", row)])
    assert (found.attempts, sum(found.times), found.times[119]) == (0, 1, 1)
    assert [read_row(raw) for raw in (b"", b"garbage", b"[1]", b'{"at":1}')] == [{}, {}, {}, {"at": 1}]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("attempts", "acb"), ("p50", "bca"), ("p99", "bca"), ("time", "bca"), ("failures", "cab"),
        ("failure-rate", "cab"),
    ],
)  # fmt: skip
def test_orders(by: str, names: str) -> None:
    types = [ran(1.0, name="a", done=9, failed=1), ran(50.0, name="b", done=1), ran(20.0, name="c", done=2, retried=2)]
    assert "".join(one.name for one in ordered(types, by)) == names
    assert by in ORDERS
