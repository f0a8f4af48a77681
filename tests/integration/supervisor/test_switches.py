"""What holds for all workers: maintenance, a pause of everything, the call to restart; and gates."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from delayq.core.states import State
from tests.support.machine import wait_fairly
from tests.support.supervision import House
from tests.support.waiting import wait_until

SEEN_S = 2.5
TALKERS = {"more": ["tests.support.supervised_talkers"]}

pytestmark = pytest.mark.timed  # how soon a switch is seen is promised


def said(house: House) -> list[dict[str, Any]]:
    """What the workers say of themselves."""
    return [dict(one.about) for one in house.client.workers()]


def soon_gone(house: House, job_id: str) -> None:
    wait_fairly(lambda: house.state(job_id) is State.ABSENT, within=SEEN_S, what=f"{job_id} is gone")


def until_all_say(house: House, state: str, count: int = 1) -> None:
    wanted = [state] * count
    wait_until(lambda: [one["state"] for one in said(house)] == wanted, what=f"{count} say {state}")


def test_maintenance_lets_the_running_job_end(house: House) -> None:
    with house.open(processes=2):
        house.schedule("good", "first", seconds=1)
        house.until_started("first")
        house.client.start_maintenance(reason="new schema")
        until_all_say(house, "maintenance", 2)
        house.schedule("good", "next")
        house.until_gone("first")
        assert house.rows("end", "first")
        assert (house.state("next"), house.starts("next")) == (State.READY, [])
        house.client.end_maintenance()
        soon_gone(house, "next")
        until_all_say(house, "working", 2)


def test_force_works_all_the_same(house: House) -> None:
    house.client.start_maintenance()
    house.schedule("good", "g1")
    with house.open(force=True):
        house.until_gone("g1")
    assert [len(house.starts("g1")), house.counter("handed_back_total")] == [1, 0]


def test_force_does_not_override_a_pause_of_everything(house: House) -> None:
    house.client.pause_all(length="1h")
    house.schedule("good", "g1")
    with house.open(force=True):
        until_all_say(house, "paused")
        assert house.state("g1") is State.READY
        house.client.resume_all()
        soon_gone(house, "g1")


def test_a_pause_of_everything_holds_for_queues_that_come(house: House) -> None:
    house.client.pause_all()
    with house.open(queues=["new"]):
        until_all_say(house, "paused")
        house.client.schedule("good", id="g1", queue="new")
        house.client.resume_all()
        wait_fairly(lambda: house.starts("g1"), within=SEEN_S, what="it runs")


@pytest.mark.parametrize("config", [{}, {"processes": 2}, {"threads": 2}])
def test_it_leaves_after_its_job_and_the_next_one_stays(house: House, config: dict[str, Any]) -> None:
    with house.open(**config) as shop:
        house.schedule("good", "long", seconds=1.5)
        house.until_started("long")
        house.client.restart_workers()
        assert shop.ended() == 0
        assert shop.reason() == "restart"
    assert house.rows("end", "long"), "what ran was finished"
    assert house.state("long") is State.ABSENT
    house.schedule("good", "g1")
    with house.open(**config) as shop:
        house.until_gone("g1")
        until_all_say(house, "working", config.get("processes", 1))
        assert shop.alive()
        shop.signal(signal.SIGTERM)
        assert (shop.ended(), shop.reason()) == (0, "interrupted")


def test_an_idle_worker_leaves_at_once(house: House) -> None:
    with house.open(processes=2) as shop:
        until_all_say(house, "working", 2)
        house.client.restart_workers()
        assert shop.ended() == 0
        assert shop.took_s < SEEN_S + 1
        assert shop.reason() == "restart"
    wait_until(lambda: not house.client.workers(), what="nobody is announced any more")


def test_a_call_while_the_code_is_loaded_counts(house: House) -> None:
    """It came after the process began to load its code, and before it saw Redis for the first time."""
    with house.open(more=["tests.support.supervised_called_early"]) as shop:
        assert shop.ended() == 0
        assert shop.reason() == "restart"


def test_nothing_is_fetched_while_a_gate_is_closed(house: House) -> None:
    closed = house.ledger.with_name("closed")
    closed.touch()
    house.schedule("good", "g1")
    with house.open(**TALKERS) as shop:
        until_all_say(house, "gate closed")
        assert house.state("g1") is State.READY
        closed.unlink()
        soon_gone(house, "g1")
        # Longer, once it is let go, than the answer of a gate is believed.
        house.schedule("held", "long", seconds=0.5)
        house.until_started("long")
        closed.touch()
        house.schedule("good", "g2")
        house.let_go()
        house.until_gone("long")
        until_all_say(house, "gate closed")
        assert (house.state("g2"), house.starts("g2")) == (State.READY, [])
        assert "not_now is closed" in shop.said()
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0


def test_a_gate_that_fails_counts_as_closed(house: House) -> None:
    broken = house.ledger.with_name("broken")
    broken.touch()
    house.schedule("good", "g1")
    with house.open(**TALKERS) as shop:
        until_all_say(house, "gate closed")
        assert "the gate is broken" in shop.said()
        broken.unlink()
        soon_gone(house, "g1")


@pytest.mark.parametrize("config", [{"stop_when_empty": True}, {"once": True}])
def test_who_should_not_stay_leaves_a_closed_gate(house: House, config: dict[str, Any]) -> None:
    house.ledger.with_name("closed").touch()
    house.schedule("good", "g1")
    with house.open(**TALKERS, **config) as shop:
        assert shop.ended() == 0
    assert (house.state("g1"), house.starts("g1")) == (State.READY, [])
