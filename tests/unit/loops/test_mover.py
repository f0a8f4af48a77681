"""When the mover looks at which queue. What a look does is tested on real servers."""

from __future__ import annotations

import logging

import pytest

from delayq.core.errors import BackendDamaged, BackendUnavailable, OutcomeUnknown
from delayq.drivers.base import Promotion
from delayq.loops.janitor import Janitor
from delayq.loops.mover import ROUTINE, Mover
from delayq.loops.served import Roll
from tests.support.fakes import Backend


def mover(backend: Backend, *queues: str) -> Mover:
    return Mover(backend, queues, backend.clock)


def test_the_first_turn_looks_at_every_queue() -> None:
    backend = Backend("a", "b")
    assert mover(backend).run_once() == 1.0
    assert backend.take_asked() == ["queues", "promote a", "promote b"]


def test_it_sleeps_until_the_next_due_time_or_a_second() -> None:
    backend = Backend("a", "b")
    backend.promotions = {"a": Promotion(0, 0, 0.25), "b": Promotion(0, 0, 3_600.0)}
    loop = mover(backend)
    assert loop.run_once() == 0.25
    backend.take_asked()
    backend.clock.now += 0.25
    loop.run_once()
    assert backend.take_asked() == ["promote a"], "the other's time has not come"
    backend.clock.now += 0.75
    loop.run_once()
    assert backend.take_asked() == ["queues", "promote a", "promote b"], "never longer than a second, whatever is due"


def test_a_full_batch_is_followed_by_the_next_at_once() -> None:
    backend = Backend("a")
    backend.promotions = {"a": Promotion(500, 0, 0.0)}
    loop = mover(backend)
    assert loop.run_once() == 0.0
    backend.take_asked()
    loop.run_once()
    assert backend.take_asked() == ["promote a"]


def test_one_busy_queue_does_not_starve_the_others() -> None:
    backend = Backend("a", "b")
    backend.promotions = {"a": Promotion(500, 0, 0.0), "b": Promotion(500, 0, 0.0)}
    loop = mover(backend)
    for _ in range(3):
        loop.run_once()
    assert backend.asked.count("promote a") == backend.asked.count("promote b") == 3


def test_a_wake_up_makes_its_queue_be_looked_at_next() -> None:
    backend = Backend("a", "b")
    loop = mover(backend)
    loop.run_once()
    backend.take_asked()
    backend.hints.given = [frozenset({"b"})]
    loop.sleep(1.0)
    loop.run_once()
    assert backend.take_asked() == ["promote b"]


def test_a_listener_that_may_have_missed_hints_makes_every_queue_be_looked_at() -> None:
    """Between the last look and its subscription, or while its connection was lost."""
    backend = Backend("a", "b")
    loop = mover(backend)
    loop.run_once()
    backend.take_asked()
    backend.hints.given = [None]
    loop.sleep(1.0)
    loop.run_once()
    assert backend.take_asked() == ["promote a", "promote b"]


def test_a_new_queue_is_found_by_its_wake_up_and_by_polling() -> None:
    backend = Backend("a")
    loop = mover(backend)
    loop.run_once()
    backend.hints.given = [frozenset({"new"})]
    loop.sleep(1.0)
    backend.take_asked()
    loop.run_once()
    assert backend.take_asked() == ["promote new"]
    backend.known = ["a", "other"]
    backend.clock.now += 1.0
    loop.run_once()
    assert "promote other" in backend.take_asked()


def test_while_it_hears_it_seldom_looks_and_seldom_asks_which_queues_there_are() -> None:
    backend = Backend("a")
    loop = mover(backend)
    backend.hints.listening = True
    for _ in range(10):
        loop.run_once()
        backend.clock.now += 1.0
    assert backend.take_asked() == ["queues", "promote a"] * 2, "every five seconds"
    backend.hints.listening = False
    for _ in range(3):
        loop.sleep(1.0)
        loop.run_once()
    assert backend.take_asked() == ["queues", "promote a"] * 3, "what it does not hear it has to ask for"


def test_a_due_time_that_is_near_is_looked_at_then_also_while_it_hears() -> None:
    backend = Backend("a")
    backend.hints.listening = True
    backend.promotions = {"a": Promotion(0, 0, 2.25)}
    assert mover(backend).run_once() == 2.25
    backend.promotions = {"a": Promotion(0, 0, 1.0)}
    assert mover(backend).run_once() == 1.0, "a paused queue, say"


def test_a_look_that_lies_far_ahead_comes_near_when_nothing_is_heard_any_more() -> None:
    backend = Backend("a")
    loop = mover(backend)
    backend.hints.listening = True
    assert loop.run_once() == 5.0
    backend.hints.listening = False
    loop.sleep(0.2)
    assert loop.run_once() == 1.0


def test_the_janitor_learns_of_a_new_queue_from_what_the_mover_heard() -> None:
    backend = Backend("a")
    roll = Roll(backend, backend.clock)
    loop = Mover(backend, (), backend.clock, roll=roll)
    janitor = Janitor(backend, clock=backend.clock, roll=roll)
    backend.hints.listening = True
    loop.run_once()
    janitor.run_once()
    assert backend.take_asked().count("queues") == 1, "one question for both"
    backend.known.append("new")
    backend.hints.given = [frozenset({"new"})]
    loop.sleep(1.0)
    backend.clock.now += 1.0
    janitor.run_once()
    assert backend.take_asked() == ["queues", "tidy new", "reclaim new"]


def test_it_keeps_to_the_queues_it_was_given() -> None:
    backend = Backend("a", "b")
    loop = mover(backend, "a")
    loop.run_once()
    backend.hints.given = [frozenset({"b"})]
    loop.sleep(1.0)
    loop.run_once()
    assert backend.take_asked() == ["queues", "promote a"]


def test_the_shards_of_the_queues_it_was_given_come_with_them() -> None:
    backend = Backend("a", "a#1", "b#1")
    loop = mover(backend, "a")
    loop.run_once()
    assert backend.take_asked() == ["queues", "promote a", "promote a#1"]
    backend.hints.given = [frozenset({"b#1", "a#2"})]
    loop.sleep(1.0)
    loop.run_once()
    assert backend.take_asked() == ["promote a#2"]


@pytest.mark.parametrize("name", ["", "a{b}", "x" * 200, "a b", "\x00"])
def test_a_hint_that_names_no_queue_is_nothing(name: str) -> None:
    """Anybody may write to the channel, and a promote makes keys."""
    backend = Backend()
    loop = mover(backend)
    loop.run_once()
    backend.take_asked()
    backend.hints.given = [frozenset({name})]
    loop.sleep(1.0)
    loop.run_once()
    assert backend.take_asked() == []


def test_a_damaged_queue_is_reported_and_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a", "b")
    backend.trouble = {"promote a": BackendDamaged("a holds a string")}
    loop = mover(backend)
    for _ in range(3):
        loop.run_once()
        backend.clock.now += 1.0
    assert backend.asked.count("promote a") == backend.asked.count("promote b") == 3
    assert "queue a" in caplog.text
    assert "a holds a string" in caplog.text


def test_a_surprise_in_one_queue_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a", "b")
    backend.trouble = {"promote a": KeyError(-9223372036854775808)}
    loop = mover(backend)
    for _ in range(3):
        loop.run_once()
        backend.clock.now += 1.0
    assert backend.asked.count("promote a") == backend.asked.count("promote b") == 3
    assert "queue a: unexpected KeyError" in caplog.text


def test_all_are_promoted_before_a_surprise_is_told() -> None:
    backend = Backend("a", "b")
    backend.trouble = {"promote a": KeyError(1)}
    with pytest.raises(KeyError):
        mover(backend).promote_all()
    assert "promote b" in backend.asked


@pytest.mark.parametrize("error", [BackendUnavailable(), OutcomeUnknown()])
def test_a_backend_that_is_away_ends_the_turn(error: Exception) -> None:
    backend = Backend("a", "b")
    backend.trouble = {"promote a": error}
    with pytest.raises(type(error)):
        mover(backend).run_once()
    assert "promote b" not in backend.asked


def apart() -> BackendUnavailable:
    """One node of a cluster cannot be reached."""
    error = BackendUnavailable("one node is away")
    error.apart = True
    return error


def test_a_part_that_is_away_keeps_no_other_queue_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a", "b")
    backend.trouble = {"promote a": apart()}
    loop = mover(backend)
    loop.run_once()
    assert "promote b" in backend.take_asked()
    assert "queue a: one node is away" in caplog.text
    backend.trouble = {"promote a": apart(), "promote b": apart()}
    backend.clock.now += 1.0
    with pytest.raises(BackendUnavailable):
        loop.run_once()


def test_however_many_parts_are_away_the_others_have_their_turn() -> None:
    """An error would make the loop wait, up to two seconds, also when nothing else was due in that turn."""
    backend = Backend("a", "b", "c", "d")
    backend.trouble = {f"promote {queue}": apart() for queue in "abc"}
    backend.promotions = {"d": Promotion(0, 0, 1.5)}
    backend.hints.listening = True
    loop = mover(backend)
    assert loop.run_once() == 1.0
    assert backend.take_asked() == ["queues", *(f"promote {queue}" for queue in "abcd")]
    backend.clock.now += 1.0
    assert loop.run_once() == 0.5, "d's time has not come, and it could be reached last time"


def test_a_part_that_went_away_with_its_queue_counts_no_more() -> None:
    backend = Backend("a", "b")
    backend.trouble = {"promote a": apart()}
    loop = mover(backend)
    loop.run_once()
    backend.known, backend.trouble = ["b"], {"promote b": apart()}
    backend.clock.now += 1.0
    with pytest.raises(BackendUnavailable):
        loop.run_once()


def test_a_lost_payload_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a")
    backend.promotions = {"a": Promotion(0, 3, None)}
    with caplog.at_level(logging.ERROR):
        mover(backend).run_once()
    assert "queue a: 3 jobs had lost their payload and were moved to failed" in caplog.text


def test_one_lost_payload_is_one_job(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend("a")
    backend.promotions = {"a": Promotion(0, 1, None)}
    with caplog.at_level(logging.ERROR):
        mover(backend).run_once()
    assert "queue a: 1 job had lost its payload and was moved to failed" in caplog.text


def test_it_stops_listening_when_it_ends() -> None:
    backend = Backend()
    loop = mover(backend)
    loop.close()
    assert backend.hints.closed


def test_thousands_of_queues_are_looked_at_in_turns_between_which_hints_are_heard() -> None:
    names = [f"q{number:04}" for number in range(2_000)]
    backend = Backend(*names)
    backend.hints.listening = True
    loop = mover(backend)
    turns = 1
    while loop.run_once() < 1.0:
        turns += 1
    asked = [line for line in backend.take_asked() if line.startswith("promote")]
    assert (turns, asked) == (10, [f"promote {name}" for name in names]), "each once"
    backend.hints.given = [frozenset({"q1500"})]
    backend.clock.now += 5.0
    loop.run_once()
    assert "promote q1500" not in backend.take_asked()
    loop.sleep(0.0)
    loop.run_once()
    assert backend.take_asked()[0] == "promote q1500"


def test_a_known_due_time_goes_before_routine_looks() -> None:
    names = [f"q{number:04}" for number in range(1_000)]
    backend = Backend(*names)
    backend.hints.listening = True
    backend.promotions = {"q0999": Promotion(0, 0, 4.9)}
    loop = mover(backend)
    while loop.run_once() < 1.0:
        pass
    backend.take_asked()
    backend.clock.now += 5.0
    loop.run_once()
    promoted = [line for line in backend.take_asked() if line.startswith("promote")]
    assert promoted[0] == "promote q0999"
    assert len(promoted) == 1 + ROUTINE
