"""control: what holds for all workers, for a time or until it is ended."""

from __future__ import annotations

from delayq.core.control import Control
from delayq.redis.calls import operate
from delayq.redis.calls.operate import END, UNTIL_ENDED, Switch
from tests.support.engine import START, Engine

KEY = "delayq:control"


def test_nothing_holds_at_first(each_engine: Engine) -> None:
    assert each_engine.unchanged(operate.control(each_engine.scope)) == Control(START)


def test_a_pause_of_everything_for_a_time(each_engine: Engine) -> None:
    engine = each_engine
    found, names = engine.changes(operate.switch(engine.scope, Switch.PAUSE, 5_000))
    assert (found, names) == (Control(START, paused_until_ms=START + 5_000), {KEY})
    assert found.held_by() == found.held_by(force=True) == "paused"
    engine.now += 4_999
    assert engine.unchanged(operate.control(engine.scope)).paused
    engine.now += 1
    assert engine.unchanged(operate.control(engine.scope)) == Control(engine.now)


def test_a_pause_until_it_is_ended(engine: Engine) -> None:
    assert engine.run(operate.switch(engine.scope, Switch.PAUSE, UNTIL_ENDED)).paused_until_ms == 0
    engine.now += 10**12
    assert engine.run(operate.control(engine.scope)).paused
    assert engine.run(operate.switch(engine.scope, Switch.PAUSE, END)) == Control(engine.now)
    assert engine.key_names() == set()


def test_maintenance_has_a_reason_and_a_beginning(each_engine: Engine) -> None:
    engine = each_engine
    first = engine.run(operate.switch(engine.scope, Switch.MAINTENANCE, UNTIL_ENDED, "größer"))
    assert first == Control(START, None, 0, START, None, "größer")
    assert (first.held_by(), first.held_by(force=True)) == ("maintenance", "")
    engine.now += 10
    longer = engine.run(operate.switch(engine.scope, Switch.MAINTENANCE, 500, "still"))
    assert longer == Control(START + 10, None, START + 510, START, None, "still"), "it began with the first call"
    engine.now += 600
    assert engine.run(operate.control(engine.scope)) == Control(engine.now), "a reason without maintenance is none"
    again = engine.run(operate.switch(engine.scope, Switch.MAINTENANCE, 500))
    assert (again.maintenance_since_ms, again.reason) == (engine.now, "")
    assert engine.run(operate.switch(engine.scope, Switch.MAINTENANCE, END)) == Control(engine.now)


def test_a_pause_and_maintenance_know_nothing_of_each_other(engine: Engine) -> None:
    engine.run(operate.switch(engine.scope, Switch.MAINTENANCE, UNTIL_ENDED, "why"))
    engine.run(operate.switch(engine.scope, Switch.PAUSE, 100))
    after = engine.run(operate.switch(engine.scope, Switch.PAUSE, END))
    assert (after.paused, after.maintenance, after.reason) == (False, True, "why")


def test_restart_tells_when_it_was_called(each_engine: Engine) -> None:
    engine = each_engine
    assert engine.run(operate.restart(engine.scope)) == Control(START, restart_ms=START)
    engine.now += 7
    assert engine.run(operate.control(engine.scope)).restart_ms == START
    assert engine.run(operate.restart(engine.scope)).restart_ms == START + 7
    assert engine.unchanged(operate.restart(engine.scope)).restart_ms == START + 7


def test_a_clock_that_went_back_hides_no_restart(engine: Engine) -> None:
    engine.run(operate.restart(engine.scope))
    engine.now -= 60_000
    assert engine.run(operate.restart(engine.scope)).restart_ms == START + 1


def test_a_full_server_can_be_stopped_and_started(each_engine: Engine) -> None:
    engine = each_engine
    with engine.full():
        assert engine.run(operate.switch(engine.scope, Switch.PAUSE, UNTIL_ENDED)).paused
        assert engine.run(operate.switch(engine.scope, Switch.MAINTENANCE, 7, "full")).maintenance
        assert engine.run(operate.restart(engine.scope)).restart_ms == START
        assert not engine.run(operate.switch(engine.scope, Switch.PAUSE, END)).paused
