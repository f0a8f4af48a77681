"""What somebody wrote into `meta` in place of a number is none: nobody stops for it, and the janitor mends a lease."""

from __future__ import annotations

import pytest

from delayq.core.followups import Word
from delayq.core.states import State
from delayq.redis import called_off, presence
from delayq.redis.calls import deliver, follow, inspect
from delayq.redis.calls.follow import Told
from tests.support.engine import OURS, Engine

NUMBERS = ("lease_ms", "paused_until_ms", "mover_tick", "reclaim_tick", "reclaim_hold")
NONE = ("abc", "", "-10", "1.5", "nan", "inf", "1" + "0" * 30, b"\xff\x00", "9" * 100_000)
LEASE = 30_000


@pytest.mark.parametrize("word", NONE, ids=lambda word: repr(word)[:12])
def test_what_is_no_number_stops_nobody(engine: Engine, word: str | bytes) -> None:
    engine.schedule([engine.job("later", "+1000")])
    engine.client.hset(engine.keys.meta, mapping=dict.fromkeys(NUMBERS, word))
    stats = engine.run(inspect.stats(engine.scope))
    assert (stats.lease_ms, stats.mover_tick_ms, stats.paused_until_ms) == (0, 0, None)
    (switch,), _ = presence.switches(engine.options.prefix, [engine.queue], engine.client)
    assert isinstance(switch, presence.Switch)
    assert switch.paused_ms is None
    (frame,) = presence.frames(engine.options.prefix, [engine.queue], 7_000, engine.client)
    assert frame.lease_ms == 7_000
    assert engine.run(inspect.configure(engine.scope, None)) == engine.options.lease_ms

    engine.schedule([engine.job("now", "+0")])
    engine.now += 1_000
    assert engine.run(deliver.promote(engine.scope)).wait_us != -3, "not paused"
    assert {engine.state("now"), engine.state("later")} == {State.READY}
    engine.read(OURS)
    assert engine.run(deliver.renew(engine.scope, OURS, [])).lease_ms == LEASE
    assert engine.run(deliver.reclaim(engine.scope)).lease_ms == LEASE
    engine.run(deliver.tidy(engine.scope))
    assert engine.rows("meta")["lease_ms"] == str(engine.options.lease_ms)


@pytest.mark.parametrize(("score", "due"), [("inf", 2**53 - 1), ("-inf", 1 - 2**53), ("1e300", 2**53 - 1)])
def test_a_time_beyond_all_times_is_shown_as_the_furthest(engine: Engine, score: str, due: int) -> None:
    engine.schedule([engine.job("later", "+1000")])
    engine.client.zadd(engine.keys.of("scheduled"), {"later": score})
    assert _due(engine) == due


def _due(engine: Engine) -> int | None:
    found = engine.run(inspect.get(engine.scope, "later"))
    assert found is not None
    return found.due_ms


@pytest.mark.parametrize("word", NONE, ids=lambda word: repr(word)[:12])
def test_a_batch_goes_on_with_what_can_be_read_of_it(engine: Engine, word: str | bytes) -> None:
    place = follow.place(engine.scope, "b")
    engine.run(follow.batch_open(place, b"{}", [("m", "orders")]))
    names = ("cancels", "cancelled_ms", "created_ms", "failed_round", "round", "told:progress", "told:cancel")
    engine.client.hset(place.keys.of("plan"), mapping=dict.fromkeys(names, word))
    assert called_off.holding(engine.client.execute_command(*called_off.in_force(place.keys)), 0) is False
    standing = engine.run(follow.batch_note(place, [Told("m", Word.DONE)], seal=True))
    assert standing is not None
    assert (standing.done, standing.round, standing.cancels, standing.cancelled_ms) == (1, 0, 0, None)
    assert "then" in standing.due
    assert follow.counted(b"orders x").retried == 0
