"""The hint to workers that switches may have changed: the queue's name, or '' for what holds for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq.core.shards import PLAIN
from delayq.redis.calls import inspect, operate
from delayq.redis.calls.inspect import LaidOut
from delayq.redis.calls.operate import END, UNTIL_ENDED, Switch
from tests.support.engine import START, Engine
from tests.support.listener import Listener, listening

NOTHING = LaidOut(PLAIN, "", "")


@pytest.fixture
def ear(engine: Engine) -> Iterator[Listener]:
    with listening(engine, engine.scope.switch) as listener:
        yield listener


def test_a_pause_and_its_end_are_told(engine: Engine, ear: Listener) -> None:
    assert ear.heard(inspect.pause(engine.scope, 0)) == ["orders"]
    assert ear.heard(inspect.pause(engine.scope, 60_000)) == ["orders"]
    assert ear.heard(inspect.resume(engine.scope)) == ["orders"]


@pytest.mark.parametrize("what", list(Switch))
def test_what_holds_for_all_is_told_without_a_name(engine: Engine, ear: Listener, what: Switch) -> None:
    assert ear.heard(operate.switch(engine.scope, what, UNTIL_ENDED)) == [""]
    assert ear.heard(operate.control(engine.scope)) == [], "only a look"
    assert ear.heard(operate.switch(engine.scope, what, END)) == [""]
    assert ear.heard(operate.restart(engine.scope)) == [""]


def test_a_layout_is_told_where_it_is_taken(engine: Engine, ear: Listener) -> None:
    wanted = PLAIN.changed(2, START)
    assert ear.heard(inspect.lay_out(engine.scope, wanted, NOTHING)) == ["orders"]
    assert ear.heard(inspect.lay_out(engine.scope, wanted, NOTHING)) == [], "known already"


def test_a_lease_is_told(engine: Engine, ear: Listener) -> None:
    assert ear.heard(inspect.configure(engine.scope, 5_000)) == ["orders"]


def test_a_channel_that_may_not_be_used_keeps_nobody_from_pausing(engine: Engine) -> None:
    """Before this channel was, permissions named the others."""
    engine.client.acl_setuser("narrow", enabled=True, nopass=True, commands=["+@all"], keys=["*"], reset_channels=True)
    try:
        with engine.client.client() as narrow:
            narrow.execute_command("AUTH", "narrow", "")
            stopped = inspect.pause(engine.scope, 0)
            assert narrow.eval(stopped.script.text, len(stopped.keys), *stopped.keys, *stopped.args) == 0
    finally:
        engine.client.acl_deluser("narrow")
    assert engine.rows("meta")["paused_until_ms"] == "0"
