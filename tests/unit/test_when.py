"""Points in time: the table, every kind of clock change, and round trips."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.core.errors import InvalidTime
from delayq.core.when import MAX_DURATION_MS, format_instant, instant_ms

DAY = 86_400_000


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, ms: int = 0) -> int:
    """Epoch milliseconds of a UTC date, by the calendar module."""
    return calendar.timegm((year, month, day, hour, minute, second)) * 1000 + ms


# 20,778 days of 86,400 s since 1970 (56 years, 14 leap days, 324 days into 2026), and 15 h.
NOW = (20_778 * 86_400 + 15 * 3_600) * 1_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T15:00:00Z", NOW),
        ("2026-11-21T15:00:00.000Z", NOW),
        ("2026-11-21t15:00:00z", NOW),
        ("2026-11-21 15:00:00Z", NOW),
        ("2026-11-21T15:00Z", NOW),
        ("2026-11-21T16:00:00+01:00", NOW),
        ("2026-11-21T15:00:00-00:00", NOW),
        ("2026-11-21T20:45:00+05:45", NOW),
        ("2026-11-22T05:00:00+14:00", NOW),
        ("2026-11-21T03:00:00-12:00", NOW),
        ("2026-11-22T14:59:00+23:59", NOW),
        ("2026-11-21T15:00:00.5Z", NOW + 500),
        ("2026-11-21T15:00:00.1234Z", NOW + 124),
        ("2026-11-21T15:00:00.1235Z", NOW + 124),
        ("2026-11-21T15:00:00.9995Z", NOW + 1_000),
        ("2026-11-21T15:00:00.000000000000000000000000000001Z", NOW + 1),
        ("2028-02-29T00:00:00Z", utc(2028, 2, 29)),
        ("2036-11-21T15:00:00Z", NOW + 3653 * DAY),
        ("2026-11-21T14:59:59Z", NOW - 1_000),
        ("2000-01-01T00:00:00Z", utc(2000, 1, 1)),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_an_instant_is_read(text: str, ms: int) -> None:
    assert instant_ms(text, now_ms=NOW) == ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no point in time"),
        ("now", "no point in time"),
        ("tomorrow", "no point in time"),
        ("1795273200", "no point in time"),
        ("2026-11-21", "no point in time"),
        ("15:00", "no point in time"),
        ("20261121T150000Z", "no point in time"),
        ("2026-W47-6T15:00:00Z", "no point in time"),
        ("2026-325T15:00:00Z", "no point in time"),
        ("26-11-21T15:00:00Z", "no point in time"),
        ("2026-11-21T15Z", "no point in time"),
        ("2026-11-21T15:00:00.Z", "no point in time"),
        ("2026-11-21T15:00:00,5Z", "no point in time"),
        ("2026-11-21x15:00:00Z", "no point in time"),
        ("2026-11-21T15:00:00 Z", "no point in time"),
        ("2026-11-21T15:00:00+1:00", "no point in time"),
        ("2026-11-21T15:00:00+0100", "no point in time"),
        ("2026-11-21T15:00:00+01:00:30", "no point in time"),
        ("2026-11-21T15:00:00[Europe/Berlin]", "no point in time"),
        (" 2026-11-21T15:00:00Z", "no point in time"),
        ("2026-11-21T15:00:00Z\n", "no point in time"),
        ("２０２６-11-21T15:00:00Z", "no point in time"),
        ("2026-11-21T15:00:00." + "0" * 60 + "Z", "no point in time"),
        ("-2026-11-21T15:00:00Z", "no point in time"),
        ("\ud800", "no point in time"),
        ("2026-11-21T15:00:00+24:00", "impossible offset"),
        ("2026-11-21T15:00:00+01:60", "impossible offset"),
        ("0000-01-01T00:00:00Z", "does not exist"),
        ("2026-02-29T00:00:00Z", "does not exist"),
        ("2026-13-01T00:00:00Z", "does not exist"),
        ("2026-11-31T00:00:00Z", "does not exist"),
        ("2026-11-21T24:00:00Z", "does not exist"),
        ("2026-11-21T15:60:00Z", "does not exist"),
        ("2026-12-31T23:59:60Z", "does not exist"),
        ("2026-11-21T15:00:00", "no offset"),
        ("2036-11-21T15:00:00.001Z", "more than 10 years"),
        ("9999-12-31T23:59:59-23:59", "more than 10 years"),
    ],
)
def test_an_instant_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidTime, match=why) as refused:
        instant_ms(text, now_ms=NOW)
    str(refused.value).encode("utf-8")
    assert refused.value.hint


GAPS = [
    ("Europe/Berlin", "2026-03-29T02:00:00"),
    ("Europe/Berlin", "2026-03-29T02:30:00"),
    ("Europe/Berlin", "2026-03-29T02:59:59.999"),
    ("Europe/Berlin", "2036-03-30T02:30:00"),  # ten years on, by the zone's rule
    ("Europe/London", "2026-03-29T01:30:00"),
    ("Europe/Dublin", "2026-03-29T01:30:00"),  # where winter is the exception, and has the negative DST
    ("America/New_York", "2026-03-08T02:30:00"),
    ("America/Havana", "2026-03-08T00:30:00"),  # at midnight
    ("Australia/Lord_Howe", "2026-10-04T02:15:00"),  # half an hour
    ("Pacific/Chatham", "2026-09-27T03:00:00"),  # from 02:45
    ("Antarctica/Troll", "2026-03-29T02:59:00"),  # two hours
    ("America/Caracas", "2016-05-01T02:45:00"),  # the offset itself changed
    ("Asia/Pyongyang", "2018-05-04T23:45:00"),
    ("Pacific/Apia", "2011-12-30T00:00:00"),  # a whole day, over the date line
    ("Pacific/Apia", "2011-12-30T12:00:00"),
    ("Pacific/Fakaofo", "2011-12-30T23:59:59"),
]


@pytest.mark.parametrize(("zone", "text"), GAPS)
@pytest.mark.parametrize("fold", [None, 0, 1])
def test_a_time_the_clocks_skip_is_refused_also_when_past(zone: str, text: str, fold: int | None) -> None:
    with pytest.raises(InvalidTime, match="does not exist in"):
        instant_ms(text, now_ms=NOW, tz=zone, fold=fold)
    with pytest.raises(InvalidTime, match="does not exist in"):
        instant_ms(datetime.fromisoformat(text), now_ms=NOW, tz=zone, fold=fold)
    with pytest.raises(InvalidTime, match="does not exist in"):
        instant_ms(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)), now_ms=NOW, fold=fold)


FOLDS = [
    # zone, wall clock, the first and the second instant that show it
    ("Europe/Berlin", "2026-10-25T02:00:00", utc(2026, 10, 25, 0), utc(2026, 10, 25, 1)),
    ("Europe/Berlin", "2026-10-25T02:59:59", utc(2026, 10, 25, 0, 59, 59), utc(2026, 10, 25, 1, 59, 59)),
    ("Europe/Berlin", "2026-10-25T02:30:00.25", utc(2026, 10, 25, 0, 30, 0, 250), utc(2026, 10, 25, 1, 30, 0, 250)),
    ("Europe/Dublin", "2026-10-25T01:30:00", utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 1, 30)),
    ("America/New_York", "2026-11-01T01:30:00", utc(2026, 11, 1, 5, 30), utc(2026, 11, 1, 6, 30)),
    ("Australia/Lord_Howe", "2026-04-05T01:45:00", utc(2026, 4, 4, 14, 45), utc(2026, 4, 4, 15, 15)),
    ("Pacific/Chatham", "2026-04-05T03:00:00", utc(2026, 4, 4, 13, 15), utc(2026, 4, 4, 14, 15)),
    ("Antarctica/Troll", "2026-10-25T01:30:00", utc(2026, 10, 24, 23, 30), utc(2026, 10, 25, 1, 30)),
    ("Europe/Moscow", "2014-10-26T01:30:00", utc(2014, 10, 25, 21, 30), utc(2014, 10, 25, 22, 30)),
]


@pytest.mark.parametrize(("zone", "text", "first", "second"), FOLDS)
def test_a_time_the_clocks_show_twice_needs_a_fold(zone: str, text: str, first: int, second: int) -> None:
    with pytest.raises(InvalidTime, match="happens twice in"):
        instant_ms(text, now_ms=NOW, tz=zone)
    assert instant_ms(text, now_ms=NOW, tz=zone, fold=0) == first
    assert instant_ms(text, now_ms=NOW, tz=zone, fold=1) == second
    # An aware datetime says it itself, unless told otherwise.
    aware = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
    assert instant_ms(aware, now_ms=NOW) == first
    assert instant_ms(aware.replace(fold=1), now_ms=NOW) == second
    assert instant_ms(aware.replace(fold=1), now_ms=NOW, fold=0) == first


@pytest.mark.parametrize(
    ("zone", "text", "ms"),
    [
        ("Europe/Berlin", "2026-11-21T16:00:00", NOW),
        ("UTC", "2026-11-21T15:00:00", NOW),
        ("Asia/Kathmandu", "2026-11-21T20:45:00", NOW),
        ("Europe/Berlin", "2026-03-29T01:59:59.999", utc(2026, 3, 29, 0, 59, 59, 999)),
        ("Europe/Berlin", "2026-03-29T01:59:59.9999", utc(2026, 3, 29, 1)),
        ("Europe/Berlin", "2026-03-29T03:00:00", utc(2026, 3, 29, 1)),
        ("Europe/Berlin", "2026-10-25T01:59:59", utc(2026, 10, 24, 23, 59, 59)),
        ("Europe/Berlin", "2026-10-25T03:00:00", utc(2026, 10, 25, 2)),
        ("Australia/Lord_Howe", "2026-10-04T02:30:00", utc(2026, 10, 3, 15, 30)),
        ("Pacific/Apia", "2011-12-29T23:59:59", utc(2011, 12, 30, 9, 59, 59)),
        ("Pacific/Apia", "2011-12-31T00:00:00", utc(2011, 12, 30, 10)),
        ("Pacific/Kiritimati", "2026-11-22T05:00:00", NOW),
    ],
)
@pytest.mark.parametrize("fold", [None, 0, 1])
def test_a_wall_clock_time_is_read_in_its_zone(zone: str, text: str, ms: int, fold: int | None) -> None:
    assert instant_ms(text, now_ms=NOW, tz=zone, fold=fold) == ms


@pytest.mark.parametrize(
    "zone",
    [
        "", " ", "Europe", "Europe/", "/Europe/Berlin", "Europe/Atlantis", "Mars/Olympus", "+01:00", "../UTC",
        "Europe/../UTC", "right/UTC", "posix/UTC", "zone.tab", "tzdata.zi", "leapseconds",
        "UTC\n", "U\x00TC", "Ｕ", "\ud800", "x" * 500, 5, ZoneInfo("UTC"),
    ],
)  # fmt: skip
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidTime, match="no time zone known here"):
        instant_ms("2026-11-21T15:00:00", now_ms=NOW, tz=zone)


def test_an_offset_and_a_zone_exclude_each_other() -> None:
    for value in ("2026-11-21T16:00:00+01:00", datetime(2026, 11, 21, 15, tzinfo=UTC)):
        with pytest.raises(InvalidTime, match="own offset"):
            instant_ms(value, now_ms=NOW, tz="Europe/Berlin")


@pytest.mark.parametrize("fold", [2, -1, "0", 0.5])
def test_a_fold_is_0_or_1(fold: int) -> None:
    with pytest.raises(InvalidTime, match="no fold"):
        instant_ms("2026-10-25T02:30:00", now_ms=NOW, tz="Europe/Berlin", fold=fold)


class NoOffset(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> None:
        return None


def test_datetimes() -> None:
    naive = datetime(2026, 11, 21, 16)  # noqa: DTZ001  (naive on purpose)
    assert instant_ms(naive, now_ms=NOW, tz="Europe/Berlin") == NOW
    assert instant_ms(naive.replace(tzinfo=NoOffset()), now_ms=NOW, tz="Europe/Berlin") == NOW
    assert instant_ms(naive.replace(tzinfo=timezone(timedelta(hours=1))), now_ms=NOW) == NOW
    assert instant_ms(datetime(2026, 11, 21, 15, 0, 0, 1, tzinfo=UTC), now_ms=NOW) == NOW + 1
    assert instant_ms(datetime(2026, 11, 21, 15, 0, 0, 1000, tzinfo=UTC), now_ms=NOW) == NOW + 1
    assert instant_ms(datetime.min.replace(tzinfo=timezone(timedelta(hours=23))), now_ms=NOW) == 0
    for refused in (naive, naive.replace(tzinfo=NoOffset())):
        with pytest.raises(InvalidTime, match="no offset"):
            instant_ms(refused, now_ms=NOW)
    with pytest.raises(InvalidTime, match="more than 10 years"):
        instant_ms(datetime.max, now_ms=NOW, tz="America/New_York")  # noqa: DTZ901
    # A naive datetime's own fold is its default, so it decides nothing.
    with pytest.raises(InvalidTime, match="happens twice"):
        instant_ms(datetime(2026, 10, 25, 2, 30, fold=1), now_ms=NOW, tz="Europe/Berlin")  # noqa: DTZ001


@pytest.mark.parametrize("value", [None, 1_795_273_200, 1.5, b"2026-11-21T15:00:00Z", date(2026, 11, 21)])
def test_what_is_neither_text_nor_a_datetime_is_refused(value: object) -> None:
    with pytest.raises(InvalidTime, match="neither text nor a datetime"):
        instant_ms(value, now_ms=NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (NOW, "2026-11-21T15:00:00.000Z"),
        (NOW + 7, "2026-11-21T15:00:00.007Z"),
        (float(NOW), "2026-11-21T15:00:00.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_800_000, "no date (253402300800000 ms)"),
        (-62_135_596_800_001, "no date (-62135596800001 ms)"),
        pytest.param(10**5000, "no date (a number of 16,610 bits ms)", id="huge"),
        (float("inf"), "no date (inf ms)"),
        (float("-inf"), "no date (-inf ms)"),
        (float("nan"), "no date (nan ms)"),
        (1.7e308, "no date (1.7e+308 ms)"),
    ],
)
def test_an_instant_is_written(ms: float, text: str) -> None:
    assert format_instant(ms) == text


@given(ahead=st.integers(0, MAX_DURATION_MS), now=st.integers(0, NOW))
def test_what_is_written_reads_back_exactly(ahead: int, now: int) -> None:
    assert instant_ms(format_instant(now + ahead), now_ms=now) == now + ahead


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Tehran"]


@given(ms=st.integers(utc(1980, 1, 1), NOW + 9 * 365 * DAY), zone=st.sampled_from(ZONES))
@example(utc(2026, 10, 25, 1, 30), "Europe/Berlin")
@example(utc(2026, 4, 4, 15, 15), "Australia/Lord_Howe")
def test_every_instant_has_a_wall_clock_time_that_leads_back_to_it(ms: int, zone: str) -> None:
    there = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    there = there.astimezone(ZoneInfo(zone))
    assert instant_ms(there, now_ms=NOW) == ms
    assert instant_ms(there.replace(tzinfo=None).isoformat(), now_ms=NOW, tz=zone, fold=there.fold) == ms


@given(text=st.text() | st.text("0123456789-+:.TtZz ", max_size=30), zone=st.none() | st.sampled_from(ZONES))
def test_any_text_is_read_or_refused(text: str, zone: str | None) -> None:
    try:
        ms = instant_ms(text, now_ms=NOW, tz=zone)
    except InvalidTime:
        return
    assert 0 <= ms <= NOW + MAX_DURATION_MS
