"""Spreads and spans: what is counted, added up and read from counts."""

from __future__ import annotations

import pytest

from delayq.core.activity import (
    BOUNDS_MS,
    DAY_MINUTES,
    MINUTE_MS,
    PARTS,
    Span,
    Spread,
    joined,
    part_of,
    row_of,
    span_of,
    spans_of,
)


def spread(*lengths: float) -> Spread:
    counts = [0] * PARTS
    for ms in lengths:
        counts[part_of(ms)] += 1
    return Spread(tuple(counts), sum(lengths))


def test_the_parts_are_19_and_rise() -> None:
    assert PARTS == 19
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))


@pytest.mark.parametrize(("ms", "part"), [(-3.0, 0), (0.0, 0), (0.5, 0), (0.51, 1), (1.0, 1), (7_200_000.0, 18)])
def test_a_length_belongs_to_the_part_that_ends_at_or_above_it(ms: float, part: int) -> None:
    assert part_of(ms) == part


def test_percentiles() -> None:
    assert Spread().percentile(0.5) is None
    assert Spread().mean_ms is None
    assert spread(*[15.0] * 10).percentile(0.5) == 15.0  # in the middle of 10 to 20
    assert spread(*[15.0] * 10).percentile(1.0) == 20.0
    assert spread(*[0.2] * 99, 400.0).percentile(0.99) == 0.5
    assert 200.0 < (spread(*[0.2] * 98, 400.0, 400.0).percentile(0.99) or 0.0) <= 500.0
    assert spread(9e9).percentile(0.5) == BOUNDS_MS[-1]
    assert spread(1.0, 3.0).mean_ms == 2.0
    with pytest.raises(ValueError, match="share"):
        spread(1.0).percentile(99)


def test_spreads_and_spans_add_up() -> None:
    both = spread(1.0, 30.0) + spread(30.0)
    assert (both.count, both.sum_ms) == (3, 61.0)
    assert both + Spread() == Spread() + both == both
    span = joined(7, [Span(1, done=2, late=spread(1.0)), Span(2, done=3, failed=1, took=spread(2.0))])
    assert span == Span(7, done=5, failed=1, late=spread(1.0), took=spread(2.0))


def test_a_row_becomes_a_span() -> None:
    row = row_of(
        b'{"minute":5,"acked":4,"failed":1,"late:0":2,"late:18":1,"late_ms":8.5,"took:2":3,"new":1,"x":"y"}', 5
    )
    span = span_of(3, [row])
    assert (span.done, span.failed, span.started, span.late.count, span.took.count) == (4, 1, 3, 3, 3)
    assert span.late.sum_ms == 8.5
    assert span_of(3, [row, {}]) == span
    assert span_of(3, [{}]) == span_of(3, []) == Span(3)


@pytest.mark.parametrize("raw", [b"", b"x", b"[]", b"5", b'{"minute":4,"acked":1}', b'{"acked":1}'])
def test_a_row_that_is_none_or_of_another_day_says_nothing(raw: bytes) -> None:
    assert row_of(raw, 5) == {}


def test_minutes_become_spans_and_the_last_one_has_begun() -> None:
    now_ms = 100 * MINUTE_MS + 59_999
    rows = {minute: [{"scheduled": minute}] for minute in (95, 96, 97, 98, 99, 100)}
    spans = list(spans_of(rows, now_ms, 2, 3))
    assert [span.start_ms // MINUTE_MS for span in spans] == [95, 97, 99]
    assert [span.scheduled for span in spans] == [95 + 96, 97 + 98, 99 + 100]
    assert DAY_MINUTES == 24 * 60
