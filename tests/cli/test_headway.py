"""How far a long command is: said every five seconds, with what is left where that is known."""

from __future__ import annotations

from delayq.cli.headway import Headway


def told(total: int, times: list[float]) -> list[str]:
    """What is said while steps end at these times."""
    clock, said = iter([0.0, *times]), list[str]()
    headway = Headway(said.append, total, lambda: next(clock))
    for _ in times:
        headway.step()
    return said


def test_short_commands_say_nothing() -> None:
    assert told(3, [1.0, 2.0, 4.9]) == []


def test_what_is_left_is_guessed_from_what_was() -> None:
    assert told(100, [1.0, 5.0, 9.9, 10.0]) == ["2 of 100 done; about 4m 5s left.", "4 of 100 done; about 4m left."]


def test_without_a_total_it_only_counts() -> None:
    assert told(0, [5.0, 10.0]) == ["1 done so far.", "2 done so far."]


def test_a_total_that_was_too_low_is_not_shown() -> None:
    assert told(1, [5.0, 10.0]) == ["1 done so far.", "2 done so far."]
