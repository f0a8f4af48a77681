"""limit list, show, free; audit."""

from __future__ import annotations

import asyncio

import pytest

from delayq import AsyncDelayQ, DelayQ
from delayq.core.limiting import Acquire, Admit, LineUp, Place, Report, Verdict, Who
from delayq.core.rate_limit import RateLimit
from delayq.drivers.redis_limits import RedisLimits
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.keys import Globals, LimitKeys
from tests.cli.conftest import Inline

NOT_FOUND, USAGE = 3, 2


@pytest.fixture
def holder(q: DelayQ) -> Who:
    """Jobs that hold places, wait, are counted; and a circuit that is open. The holder of the one place of `api`."""
    q.schedule("act", id="holder")
    consumer = RedisStreams(q.connector, q.options).consumer("dq:test:1:a", ("default",))
    [delivery] = consumer.fetch((), 1).deliveries
    who, other = Who(delivery.queue, delivery.id, delivery.entry), Who("default", "other", "1-1")
    limits = RedisLimits(q.connector, q.options)
    assert limits.ask(Acquire(who, Place("api", "", 1))).taken
    assert limits.ask(Acquire(other, Place("api", "k", 2))).taken
    assert limits.ask(LineUp(other, Place("api", "", 1))) is False
    rates = (RateLimit.per_minute(2).by("a"), RateLimit.sliding(1, "1h").by("a"))
    assert limits.ask(Admit(who, "sms", rates)).passed
    assert not limits.ask(Admit(other, "sms", rates)).passed
    assert limits.ask(Report(who, "bank", "host", Verdict.FAILED, 1, 600_000))
    return who


@pytest.mark.usefixtures("holder")
def test_every_limit_is_listed_with_its_keys(inline: Inline) -> None:
    shown = inline.ok("limit", "list").lines
    words = [line.split() for line in shown]
    assert words[0] == ["limit", "key", "kind", "used", "waiting", "free"]
    assert ["api", "places", "1", "of", "1", "1", "when", "one", "ends"] in words
    assert ["api", "k", "places", "1", "of", "2", "0", "now"] in words
    assert any(line[:8] == ["sms", "a", "window", "1", "of", "2", "in", "1m"] for line in words)
    assert any(line[:10] == ["sms", "a#2", "sliding", "1", "of", "1", "in", "1h", "1", "in"] for line in words)
    limits = {one["limit"]: one for one in inline.ok("limit", "list", "--json").documents}
    assert list(limits) == ["api", "sms"], "only what was asked is known by name"
    [place] = [one for one in limits["api"]["places"] if not one["key"]]
    assert (place["limit"], place["held"], place["waiting"]) == (1, 1, 1)
    assert limits["sms"]["waiting_turns"] == 1


@pytest.mark.usefixtures("holder")
def test_one_that_somebody_wrote_over_hides_no_other(
    inline: Inline, q: DelayQ, caplog: pytest.LogCaptureFixture
) -> None:
    where = Globals(q.options.prefix).limits
    server = q.connector.commands()
    server.sadd(where, "\x1b[31mno name", "aaa")
    server.set(LimitKeys(q.options.prefix, "aaa").of("places"), "no zset")
    assert [one["limit"] for one in inline.ok("limit", "list", "--json").documents] == ["api", "sms"]
    told = [record.getMessage() for record in caplog.records if "is left out: it cannot be read" in record.getMessage()]
    assert len(told) == 2
    assert not any("\x1b" in line for line in told)
    server.delete(LimitKeys(q.options.prefix, "aaa").of("places"))


def test_a_holder_that_is_no_delivery_is_gone_and_can_be_freed(inline: Inline, holder: Who, q: DelayQ) -> None:
    """Somebody else wrote it there: it keeps no job from its place, and no limit from being looked at."""
    strangers = ("no delivery at all", "alone", "a}b id 1-1", "default  1-1")
    where = LimitKeys(q.options.prefix, "api").of_key("holders", "k")
    q.connector.commands().zadd(where, dict.fromkeys(strangers, 1))
    assert "no delivery at all" in inline.ok("limit", "show", "api").out
    shown = inline.ok("limit", "show", "api", "--json").json
    places = {place["key"]: place for place in shown["places"]}
    assert {one["id"] for one in places["k"]["holders"] if not one["live"]} >= {"no delivery at all", "alone"}
    freed = inline.ok("limit", "free", "api", "--key", "k", "--holder", "alone", "--reason", "no job", "--json").json
    assert len(freed["holders"]) == 1
    assert RedisLimits(q.connector, q.options).ask(Acquire(holder, Place("api", "k", 2))).taken
    assert not q.connector.commands().zscore(where, "no delivery at all")


def test_show_says_who_holds_a_place_and_whether_it_still_is_there(inline: Inline, holder: Who) -> None:
    shown = inline.ok("limit", "show", "api").out
    assert "holder  default" in shown.replace("   ", "  ")
    view = inline.ok("limit", "show", "api", "--json").json
    holders = {one["id"]: one for place in view["places"] for one in place["holders"]}
    assert (holders["holder"]["entry"], holders["holder"]["live"]) == (holder.entry, True)
    assert holders["other"]["live"] is False
    assert "other" in next(line for line in inline.ok("limit", "show", "api").lines if line.endswith("gone"))
    assert inline.ok("limit", "show", "bank", "--json").json["circuits"][0]["state"] == "open"


def test_a_place_is_freed_by_hand_with_a_reason(inline: Inline, holder: Who, q: DelayQ) -> None:
    done = inline.ok("limit", "free", "api", "--holder", "holder", "--reason", "the host is gone")
    assert done.out == "default holder\n"
    assert done.err == "Freed: 1 place. It is on record: delayq audit.\n"
    assert [place.key for place in q.limits.get("api").places] == ["k"]
    [deed] = inline.ok("audit", "--json").documents
    assert (deed["what"], deed["on"], deed["detail"], deed["reason"]) == (
        "limit free",
        "api",
        "holder",
        "the host is gone",
    )
    assert "@" in deed["who"]
    assert "the host is gone" in inline.ok("audit").out
    assert holder.id == "holder"


@pytest.mark.usefixtures("holder")
def test_a_rate_and_a_circuit_are_set_to_nothing(inline: Inline, q: DelayQ) -> None:
    freed = inline.ok("limit", "free", "sms", "--key", "a", "--reason", "wrong rate", "--json").json
    assert (freed["rate"], freed["circuit"], freed["holders"]) == (True, False, [])
    assert q.limits.get("sms").rates == ()
    assert "the circuit" in inline.ok("limit", "free", "bank", "--key", "host", "--reason", "it is back").err
    assert [entry.target for entry in q.audit_log.last()] == ["bank host", "sms a"]


def test_a_limit_of_which_nothing_is_kept_is_not_there(inline: Inline) -> None:
    done = inline("limit", "show", "nope")

    assert (done.code, done.out) == (NOT_FOUND, "")
    assert "Nothing is kept for the limit 'nope'." in done.err


@pytest.mark.usefixtures("holder")
def test_what_is_not_there_is_not_freed_and_not_on_record(inline: Inline, q: DelayQ) -> None:
    missing = inline("limit", "free", "api", "--holder", "nobody", "--reason", "x")
    assert (missing.code, missing.out) == (NOT_FOUND, "")
    assert "The job 'nobody' holds no place of the limit api." in missing.err
    unknown = inline("limit", "free", "api", "--key", "z", "--reason", "x")
    assert (unknown.code, "Known keys: '', 'k'." in unknown.err) == (NOT_FOUND, True)
    assert inline("limit", "free", "api", "--reason", " ").code == USAGE
    assert inline("limit", "free", "a b", "--reason", "x").code == USAGE
    assert q.audit_log.last() == []


def test_a_refusal_names_a_few_keys_and_each_in_short(inline: Inline, q: DelayQ) -> None:
    limits = RedisLimits(q.connector, q.options)
    for number in range(12):
        who = Who("default", f"job-{number}", f"{number + 1}-1")
        assert limits.ask(Acquire(who, Place("api", f"{number:02}" + "k" * 100_000, 1))).taken
    unknown = inline("limit", "free", "api", "--key", "z" * 100_000, "--reason", "x")
    assert (unknown.code, "and 2 more" in unknown.err, len(unknown.err) < 2_000) == (NOT_FOUND, True, True)


def test_the_async_shell_sees_the_same(redis_url: str, holder: Who, q: DelayQ) -> None:
    async def both() -> None:
        async with AsyncDelayQ(redis_url) as aq:
            assert await aq.limits.get("api") == q.limits.get("api")
            assert [view.name for view in await aq.limits.all()] == ["api", "sms"]
            assert (await aq.limits.free("api", holder=holder.id, reason="async")).holders == ("default holder",)
            assert [entry.reason for entry in await aq.audit_log.last(1)] == ["async"]

    asyncio.run(both())
