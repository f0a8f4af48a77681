"""Durations and points in time, as people write them."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from delayq.core import times
from delayq.core.errors import InvalidInput
from delayq.core.times import (
    Duration,
    Instant,
    duration_ms,
    format_duration,
    format_instant,
    instant_ms,
    rough_duration,
)

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
DAY = 86_400_000
BERLIN = "Europe/Berlin"
GAP = "2027-03-28 02:30"
FOLD = "2027-10-31 02:30"


def ms_of(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("1h0.5s", 3_600_500),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1w2d3h4m5s6ms", 9 * DAY + 11_045_006),
        ("0s", 0),
        ("0.0001s", 1),
        ("0.1ms", 1),
        ("PT15M", 900_000),
        ("P1DT12H", 36 * 3_600_000),
        ("P1W", 7 * DAY),
        ("PT0.25S", 250),
        ("3653d", 3653 * DAY),
        (timedelta(minutes=15), 900_000),
        (timedelta(microseconds=1), 1),
        (timedelta(0), 0),
    ],
)
def test_a_duration_is_read_and_rounded_up_to_milliseconds(written: Duration, ms: int) -> None:
    assert duration_ms(written) == ms


@pytest.mark.parametrize(
    "written",
    (
        *("", "15", "15 m", "-5s", "+5s", "soon", ".5s", "5.s", "1e3s", "\u0663s", "5s\n", "1month", "1y", "1.5h30m"),
        *("30m1h", "1h1h", "P", "PT", "P1M", "P1Y", "pt5m", "PT5M ", "P1D1W"),
    ),
)
def test_what_is_no_duration_is_refused_with_examples(written: str) -> None:
    with pytest.raises(InvalidInput, match=r"delay .* is not a duration\. Write 500ms, 90s, 15m") as refused:
        duration_ms(written)
    assert refused.value.field == "delay"


@pytest.mark.parametrize("written", [5, 5.0, True, None, b"5s", ["5s"]])
def test_a_bare_number_is_no_duration(written: object) -> None:
    with pytest.raises(InvalidInput, match=r"timeout .* is not a duration\. Use a timedelta or a text\. Write"):
        duration_ms(written, field="timeout")  # type: ignore[arg-type]


@pytest.mark.parametrize("written", ["3654d", "522w", "9" * 60 + "s", timedelta.max])
def test_a_duration_has_ten_years_at_most(written: Duration) -> None:
    with pytest.raises(InvalidInput, match=r"is longer than 10 years\. Use at most 3653d\."):
        duration_ms(written)


def test_a_negative_timedelta_is_refused() -> None:
    with pytest.raises(InvalidInput, match="delay -1 day, 23:59:59 is negative"):
        duration_ms(timedelta(seconds=-1))


@pytest.mark.parametrize("text", ["0s", "500ms", "1.5s", "15m", "1h30m", "2d", "1d1h1m1.001s"])
def test_a_duration_for_people_reads_back_equal(text: str) -> None:
    assert format_duration(duration_ms(text)) == text


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("2027-06-01T15:00:00Z", "2027-06-01T15:00:00+00:00"),
        ("2027-06-01t15:00z", "2027-06-01T15:00:00+00:00"),
        ("2027-06-01 16:00:00.25+01:00", "2027-06-01T15:00:00.250+00:00"),
        ("2027-06-01T00:30:00-23:59", "2027-06-02T00:29:00+00:00"),
        ("2027-06-01T15:00:00.0001Z", "2027-06-01T15:00:00.001+00:00"),
        ("2027-06-01T15:00:00.9999Z", "2027-06-01T15:00:01+00:00"),
        (datetime(2027, 6, 1, 15, microsecond=1, tzinfo=UTC), "2027-06-01T15:00:00.001+00:00"),
        (datetime(2027, 6, 1, 15, tzinfo=timezone(timedelta(hours=5, minutes=45))), "2027-06-01T09:15:00+00:00"),
        (datetime(2027, 6, 1, 15, tzinfo=ZoneInfo(BERLIN)), "2027-06-01T13:00:00+00:00"),
    ],
)
def test_a_time_with_an_offset_is_read_and_rounded_up(written: Instant, same: str) -> None:
    assert instant_ms(written, now_ms=NOW) == ms_of(same)


@pytest.mark.parametrize("written", ["2027-06-01 15:00", datetime(2027, 6, 1, 15)])
def test_a_local_time_needs_its_zone(written: Instant) -> None:
    assert instant_ms(written, tz=BERLIN, now_ms=NOW) == ms_of("2027-06-01T13:00:00+00:00")
    with pytest.raises(InvalidInput, match=r"has no offset, so its time zone is not known\. Add Z or an offset"):
        instant_ms(written, now_ms=NOW)
    with pytest.raises(InvalidInput, match=r"Add Z or an offset such as \+01:00\.$"):  # only `at` has a time zone
        instant_ms(written, now_ms=NOW, field="deadline")


@pytest.mark.parametrize("written", ["2027-06-01T15:00Z", datetime(2027, 6, 1, 15, tzinfo=UTC)])
def test_a_time_with_an_offset_takes_no_other_zone(written: Instant) -> None:
    with pytest.raises(InvalidInput, match="has its own offset") as refused:
        instant_ms(written, tz=BERLIN, now_ms=NOW)
    assert refused.value.field == "tz"


@pytest.mark.parametrize(
    "written",
    [
        "tomorrow",
        "2027-06-01",
        "20270601T150000Z",
        "2027-06-01T15Z",
        "2027-06-01T15:00+1:00",
        "2027-06-01T15:00+01:60",
        "2027-06-01T15:00+24:00",
        "1800000000000",
        "2027-06-01T15:00:00." + "0" * 60 + "Z",
        1_800_000_000_000,
        None,
    ],
)
def test_what_is_no_time_is_refused_with_examples(written: Instant) -> None:
    with pytest.raises(InvalidInput, match=r"is not a point in time\. Write 2026-11-21T15:00:00Z or"):
        instant_ms(written, now_ms=NOW)


@pytest.mark.parametrize("written", ["2027-02-29T15:00Z", "2027-13-01T15:00Z", "2027-06-01T25:00Z"])
def test_a_day_that_no_calendar_has_is_refused(written: str) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        instant_ms(written, now_ms=NOW)


@pytest.mark.parametrize("fold", [None, 0, 1])
def test_a_time_in_the_gap_of_a_change_is_refused(fold: int | None) -> None:
    with pytest.raises(InvalidInput, match=r"does not exist in Europe/Berlin, because the clocks are put forward\."):
        instant_ms(GAP, tz=BERLIN, fold=fold, now_ms=NOW)


def test_a_time_that_happens_twice_needs_fold() -> None:
    with pytest.raises(InvalidInput, match=r"occurs twice in Europe/Berlin.* Choose one with fold") as refused:
        instant_ms(FOLD, tz=BERLIN, now_ms=NOW)
    assert refused.value.field == "fold"
    assert instant_ms(FOLD, tz=BERLIN, fold=0, now_ms=NOW) == ms_of("2027-10-31T00:30:00+00:00")
    assert instant_ms(FOLD, tz=BERLIN, fold=1, now_ms=NOW) == ms_of("2027-10-31T01:30:00+00:00")


def test_a_change_of_half_an_hour_has_a_gap_too() -> None:
    with pytest.raises(InvalidInput, match="does not exist in Australia/Lord_Howe"):
        instant_ms("2027-10-03 02:15", tz="Australia/Lord_Howe", now_ms=NOW)


def test_a_datetime_says_its_fold_itself() -> None:
    twice = datetime(2027, 10, 31, 2, 30, tzinfo=ZoneInfo(BERLIN))
    assert instant_ms(twice, now_ms=NOW) == ms_of("2027-10-31T00:30:00+00:00")
    assert instant_ms(twice.replace(fold=1), now_ms=NOW) == ms_of("2027-10-31T01:30:00+00:00")


def test_fold_is_0_or_1() -> None:
    with pytest.raises(InvalidInput, match=r"fold is 2\. Use 0 for the first or 1 for the second\."):
        instant_ms(FOLD, tz=BERLIN, fold=2, now_ms=NOW)


def test_a_time_has_ten_years_at_most_and_may_be_past() -> None:
    assert instant_ms("2037-01-14T08:00Z", now_ms=NOW) == ms_of("2037-01-14T08:00:00+00:00")
    with pytest.raises(InvalidInput, match="is more than 10 years ahead"):
        instant_ms("2037-01-16T08:00Z", now_ms=NOW)
    assert instant_ms("1999-01-01T00:00Z", now_ms=NOW) == ms_of("1999-01-01T00:00:00+00:00")
    assert instant_ms("0001-01-01T00:00+23:00", now_ms=NOW) == 0


@pytest.mark.parametrize("tz", ["Europe/Atlantis", "Europe", "", "../etc/passwd", "/etc/localtime", "CEST", 5])
def test_an_unknown_zone_is_refused_by_name(tz: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not known\. Use an IANA name such as Europe/Berlin\.") as refused:
        instant_ms("2027-06-01 15:00", tz=tz, now_ms=NOW)
    assert refused.value.field == "tz"


def test_a_machine_without_zones_is_told_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> ZoneInfo:
        raise KeyError(name)

    monkeypatch.setattr(times, "ZoneInfo", not_found)
    monkeypatch.setattr(times, "available_timezones", set)
    with pytest.raises(InvalidInput, match=r"has no time zone database\. Install one: pip install tzdata"):
        instant_ms("2027-06-01 15:00", tz=BERLIN, now_ms=NOW)


def test_an_instant_for_people_is_utc_with_milliseconds() -> None:
    assert format_instant(1_795_791_800_516) == "2026-11-27T15:03:20.516Z"
    assert format_instant(-1) == "1969-12-31T23:59:59.999Z"
    assert format_instant(2**53 - 1) == "no date (9.0072e+15 ms)"
    assert format_instant(float("inf")) == "no date (inf ms)"


def test_a_rough_duration_leaves_out_what_says_nothing() -> None:
    exact = ("0s", "999ms", "1s999ms", "14m38s727ms", "23h59m59s", "2d5h3m", "1129d15h10m27s")
    rough = [rough_duration(duration_ms(text)) for text in exact]
    assert rough == ["0s", "999ms", "1s", "14m38s", "23h59m", "2d5h", "1129d15h"]
