"""When the janitor does what. What its ticks do is tested on real servers."""

from __future__ import annotations

import logging

import pytest

from delayq.core.errors import BackendDamaged, BackendUnavailable, OutcomeUnknown
from delayq.drivers.base import Tidied
from delayq.loops.janitor import Janitor
from tests.support.fakes import Backend


def janitor(backend: Backend, *queues: str) -> Janitor:
    return Janitor(backend, queues, tidy_every_s=10.0, clock=backend.clock)


def ticks(backend: Backend, loop: Janitor, seconds: float) -> list[str]:
    """What is asked in so many seconds, when the loop sleeps as long as it is told."""
    backend.take_asked()
    end = backend.clock.now + seconds
    while backend.clock.now < end:
        backend.clock.now += max(0.01, loop.run_once())
    return backend.take_asked()


def test_the_first_turn_registers_tidies_and_reclaims() -> None:
    backend = Backend("a")
    assert janitor(backend).run_once() == 1.0
    assert backend.asked == ["relist", "queues", "register a", "tidy a", "reclaim a"]


def test_it_tidies_every_tick_and_reclaims_every_third_of_a_short_lease() -> None:
    backend = Backend()
    backend.leases = {"a": 6.0}
    loop = janitor(backend, "a")
    loop.run_once()
    asked = ticks(backend, loop, 59.5)
    assert asked.count("tidy a") == 5
    assert 28 <= asked.count("reclaim a") <= 30


def test_a_long_lease_is_reclaimed_with_every_tick() -> None:
    backend = Backend()
    backend.leases = {"a": 600.0}
    loop = janitor(backend, "a")
    loop.run_once()
    asked = ticks(backend, loop, 59.5)
    assert asked.count("reclaim a") == asked.count("tidy a") == 5


def test_queues_are_registered_every_minute_for_their_names_may_be_lost() -> None:
    backend = Backend()
    loop = janitor(backend, "a", "b")
    assert ticks(backend, loop, 119.5).count("register a b") == 2


@pytest.mark.parametrize(("pages", "steps"), [(1, 1), (3, 3)])
def test_queues_that_are_not_on_the_list_are_looked_for_at_the_start_and_hourly(pages: int, steps: int) -> None:
    backend = Backend("a")
    backend.pages = pages
    loop = janitor(backend)
    assert ticks(backend, loop, 3_590.0).count("relist") == steps
    assert ticks(backend, loop, 60.0).count("relist") == 1


def test_such_a_step_that_fails_is_tried_again_after_a_minute() -> None:
    backend = Backend("a")
    backend.trouble["relist"] = BackendDamaged("the key delayq:queues is no set")
    asked = ticks(backend, janitor(backend), 119.5)
    assert (asked.count("relist"), asked.count("tidy a")) == (2, 12)


def test_a_janitor_of_named_queues_looks_for_no_others() -> None:
    backend = Backend("a")
    assert "relist" not in ticks(backend, janitor(backend, "a"), 10.0)


def test_an_early_look_costs_no_request() -> None:
    """The loop cuts its sleep into pieces so that it can stop."""
    backend = Backend("a")
    loop = janitor(backend)
    loop.run_once()
    backend.take_asked()
    for _ in range(4):
        backend.clock.now += 0.2
        loop.run_once()
    assert backend.take_asked() == []


def test_a_damaged_queue_keeps_no_other_from_its_tick(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.trouble = {"tidy a": BackendDamaged("a holds a string")}
    loop = janitor(backend, "a", "b")
    loop.run_once()
    assert backend.take_asked() == ["queues", "register a b", "tidy a", "tidy b", "reclaim b"]
    assert "queue a: a holds a string" in caplog.text
    assert ticks(backend, loop, 3.5).count("tidy a") == 3, "looked at every second until it is whole again"
    backend.trouble.clear()
    assert "reclaim a" in ticks(backend, loop, 1.5)


def test_a_surprise_in_one_queue_keeps_no_other_from_its_tick(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.trouble = {"tidy a": OverflowError("int too large")}
    janitor(backend, "a", "b").run_once()
    assert backend.take_asked() == ["queues", "register a b", "tidy a", "tidy b", "reclaim b"]
    assert "queue a: unexpected OverflowError" in caplog.text


def test_names_that_cannot_be_registered_keep_no_queue_from_its_tick(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.trouble = {"register a": BackendDamaged("delayq:queues is a string")}
    loop = janitor(backend, "a")
    loop.run_once()
    assert backend.asked == ["queues", "register a", "tidy a", "reclaim a"]
    assert "delayq:queues is a string" in caplog.text


def test_names_that_cannot_be_read_keep_no_named_queue_from_its_tick(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a", "a#1", "b#1")
    loop = janitor(backend, "a")
    loop.run_once()
    assert "tidy a#1" in backend.take_asked()
    backend.trouble = {"queues": BackendDamaged("delayq:queues is a string")}
    asked = ticks(backend, loop, 11.0)
    assert {"tidy a", "tidy a#1"} <= set(asked)
    assert not any("b#1" in what for what in asked)
    assert "delayq:queues is a string" in caplog.text


@pytest.mark.parametrize("error", [BackendUnavailable(), OutcomeUnknown()])
def test_an_outage_ends_the_turn_and_costs_no_tick(error: Exception) -> None:
    backend = Backend()
    loop = janitor(backend, "a", "b")
    backend.trouble = {"tidy a": error, "reclaim b": error}
    with pytest.raises(type(error)):
        loop.run_once()
    assert "tidy b" not in backend.asked
    backend.trouble = {"reclaim b": error}
    with pytest.raises(type(error)):
        loop.run_once()
    backend.trouble.clear()
    backend.take_asked()
    loop.run_once()
    assert backend.take_asked() == ["reclaim b"], "what was done is not done again, what was not is done at once"


def test_a_part_that_is_away_keeps_no_other_queue_from_its_tick(caplog: pytest.LogCaptureFixture) -> None:
    error = BackendUnavailable("one node of a cluster is away")
    error.apart = True
    backend = Backend()
    backend.trouble = {"tidy a": error}
    janitor(backend, "a", "b").run_once()
    assert backend.take_asked() == ["queues", "register a b", "tidy a", "tidy b", "reclaim b"]
    assert "queue a: one node of a cluster is away" in caplog.text


def test_what_it_found_is_said_and_quiet_work_is_not(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a")
    backend.found = Tidied(closed=5, pruned=7, retired=1)
    with caplog.at_level(logging.WARNING):
        janitor(backend).run_once()
    assert caplog.text == ""
    backend.found = Tidied(redelivered=2, mended=1, unhealed=1)
    with caplog.at_level(logging.WARNING):
        janitor(backend).run_once()
    assert "queue a: redelivered 2, mended 1, unhealed 1" in caplog.text
