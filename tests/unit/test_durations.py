"""Durations: the table, the refusals with their reasons, and round trips."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.core.errors import InvalidDuration
from delayq.core.when import MAX_DURATION_MS, duration_ms, format_duration

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0s", 0),
        ("0ms", 0),
        ("PT0S", 0),
        ("500ms", 500),
        ("90s", 90 * SECOND),
        ("15m", 15 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("24h", DAY),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1w2d3h4m5s6ms", 9 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6),
        ("90m", 90 * MINUTE),
        ("1h90m", 150 * MINUTE),
        ("00015m", 15 * MINUTE),
        ("1h1.5m", HOUR + 90 * SECOND),
        ("0.1s", 100),
        ("1.001s", 1001),
        ("0.4ms", 1),
        ("0.5ms", 1),
        ("1.4999ms", 2),
        ("0.0005s", 1),
        ("1.9999s", 2000),
        ("0.33333333333333333333333333s", 334),
        ("0.1d", 8_640_000),
        ("PT15M", 15 * MINUTE),
        ("PT1H30M", 90 * MINUTE),
        ("PT1.5H", 90 * MINUTE),
        ("PT0.5S", 500),
        ("P2D", 2 * DAY),
        ("P1W", 7 * DAY),
        ("P1W1D", 8 * DAY),
        ("P1DT2H", 26 * HOUR),
        ("P1DT2H3M4.5S", 26 * HOUR + 3 * MINUTE + 4_500),
        ("3653d", MAX_DURATION_MS),
        ("87672h", MAX_DURATION_MS),
        ("521w", 3647 * DAY),
        ("9" * 11 + "ms", 99_999_999_999),
        ("0" * 62 + "5s", 5 * SECOND),
    ],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" ", "white space"),
        ("15 minuets", "white space"),
        ("15 m", "white space"),
        (" 15m", "white space"),
        ("15m\n", "white space"),
        ("15m\u00a0", "white space"),
        ("1h\n\n30m", "white space"),
        ("-5m", "sign"),
        ("+5m", "sign"),
        ("\u22125m", "sign"),
        ("PT-5M", "sign"),
        ("-PT5M", "sign"),
        ("1e-3s", "sign"),
        ("90", "no unit"),
        ("0", "no unit"),
        ("1.5", "no unit"),
        ("1e309", "no unit"),
        ("1h30", "no unit"),
        ("1:30", "no unit"),
        ("P1", "no unit"),
        ("1e309s", "no duration"),
        ("nan", "no duration"),
        ("NaN", "no duration"),
        ("nans", "no duration"),
        ("inf", "no duration"),
        ("infs", "no duration"),
        ("0x10s", "no duration"),
        ("1_000s", "no duration"),
        ("1,5h", "no duration"),
        ("PT1,5H", "no duration"),
        (".5h", "no duration"),
        ("5.h", "no duration"),
        ("1..5h", "no duration"),
        ("1.2.3s", "no duration"),
        ("m", "no duration"),
        ("h15", "no unit"),
        ("1h!!!5m", "no duration"),
        ("5us", "no duration"),
        ("5ns", "no duration"),
        ("5min", "no duration"),
        ("5µs", "beyond ASCII"),
        ("１５m", "beyond ASCII"),
        ("٣m", "beyond ASCII"),
        ("15ｍ", "beyond ASCII"),
        ("\ud800", "beyond ASCII"),
        ("P1Y", "months and years"),
        ("P1M", "months and years"),
        ("P1Y2M3DT4H", "months and years"),
        ("P1MT5M", "months and years"),
        ("1mo", "months and years"),
        ("2months", "months and years"),
        ("1y", "months and years"),
        ("3years", "months and years"),
        ("15M", "wrong case"),
        ("1h30M", "wrong case"),
        ("2D", "wrong case"),
        ("500MS", "wrong case"),
        ("pt15m", "wrong case"),
        ("30m1h", "large to small"),
        ("1s1s", "large to small"),
        ("5ms1s", "large to small"),
        ("1.5h30m", "last number"),
        ("P1.5DT1H", "last number"),
        ("P", "no duration"),
        ("PT", "no duration"),
        ("P1DT", "no duration"),
        ("P1H", "no duration"),
        ("PT1D", "no duration"),
        ("PT1M1H", "no duration"),
        ("PT5", "no unit"),
        ("3654d", "longer than 10 years"),
        ("3653d1ms", "longer than 10 years"),
        ("3653.1d", "longer than 10 years"),
        ("P3653DT0.001S", "longer than 10 years"),
        ("9" * 62 + "ms", "longer than 10 years"),
        ("0" * 64 + "s", "longer than 64 characters"),
        pytest.param("9" * 1_000_000, "longer than 64 characters", id="huge"),
    ],
)
def test_a_duration_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidDuration, match=why) as refused:
        duration_ms(text)
    said = str(refused.value)
    said.encode("utf-8")
    assert said.isprintable()
    assert len(said) < 300
    assert refused.value.hint


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (90, "90 is no duration: it has no unit"),
        (1.5, "no unit"),
        (float("nan"), "no unit"),
        (True, "no unit"),
        pytest.param(10**5000, "no unit", id="huge"),
        (None, "neither text nor a timedelta"),
        (b"15m", "neither text nor a timedelta"),
        (["15m"], "neither text nor a timedelta"),
    ],
)
def test_what_is_no_text_is_refused(value: object, why: str) -> None:
    with pytest.raises(InvalidDuration, match=why):
        duration_ms(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (timedelta(), 0),
        (timedelta(minutes=15), 15 * MINUTE),
        (timedelta(hours=24), DAY),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=500), 1),
        (timedelta(seconds=1, microseconds=1_500), 1_002),
        (timedelta(days=3653), MAX_DURATION_MS),
    ],
)
def test_a_timedelta_is_read(value: timedelta, ms: int) -> None:
    assert duration_ms(value) == ms


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (timedelta(microseconds=-1), "negative"),
        (timedelta(minutes=-15), "negative"),
        (timedelta.min, "negative"),
        (timedelta.max, "longer than 10 years"),
        (timedelta(days=3653, microseconds=1), "longer than 10 years"),
    ],
)
def test_a_timedelta_is_refused(value: timedelta, why: str) -> None:
    with pytest.raises(InvalidDuration, match=why):
        duration_ms(value)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (500, "500ms"),
        (1_000, "1s"),
        (1_500, "1.5s"),
        (1_050, "1.05s"),
        (1_001, "1.001s"),
        (15 * MINUTE, "15m"),
        (90 * MINUTE, "1h30m"),
        (2 * DAY, "2d"),
        (14 * DAY, "14d"),
        (DAY + 1, "1d1ms"),
        (61_250, "1m1.25s"),
        (MAX_DURATION_MS, "3653d"),
        (-1_500, "-1.5s"),
        (4_000 * DAY, "4000d"),
    ],
)
def test_a_duration_is_written_for_people(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@given(ms=st.integers(0, MAX_DURATION_MS) | st.integers(0, 10 * MINUTE))
@example(999)
@example(60_001)
def test_what_is_written_reads_back_exactly(ms: int) -> None:
    assert duration_ms(format_duration(ms)) == ms
    assert duration_ms(timedelta(milliseconds=ms)) == ms


@given(ms=st.integers(-MAX_DURATION_MS, -1))
def test_a_negative_one_is_written_and_not_read(ms: int) -> None:
    with pytest.raises(InvalidDuration, match="sign"):
        duration_ms(format_duration(ms))


UNITS = {"w": 7 * DAY, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 1}


@given(
    counts=st.dictionaries(st.sampled_from(list(UNITS)), st.integers(0, 300), min_size=1),
    fraction=st.text("0123456789", max_size=9),
)
def test_the_sum_is_exact_and_rounded_once(counts: dict[str, int], fraction: str) -> None:
    used = [unit for unit in UNITS if unit in counts]
    text = "".join(f"{counts[unit]}{unit}" for unit in used[:-1])
    last = f"{counts[used[-1]]}.{fraction}" if fraction else f"{counts[used[-1]]}"
    exact = sum((Fraction(counts[unit]) * UNITS[unit] for unit in used[:-1]), Fraction(last) * UNITS[used[-1]])
    got = duration_ms(f"{text}{last}{used[-1]}")
    assert 0 <= got - exact < 1  # up: nothing runs early


@given(text=st.text() | st.text("0123456789.PTWDHMSYwdhms -+\n１", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        ms = duration_ms(text)
    except InvalidDuration:
        return
    assert 0 <= ms <= MAX_DURATION_MS
    assert duration_ms(format_duration(ms)) == ms
