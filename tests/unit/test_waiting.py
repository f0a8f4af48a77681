"""The one way tests wait."""

from __future__ import annotations

import time

import pytest

from tests.support.waiting import wait_until


def test_the_answer_comes_back() -> None:
    answers = iter([None, 0, "", "there"])
    assert wait_until(lambda: next(answers)) == "there"


def test_a_true_condition_is_not_waited_for() -> None:
    started = time.monotonic()
    assert wait_until(lambda: True, timeout=30)
    assert time.monotonic() - started < 5


def test_the_failure_names_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"the worker to stop: not within 0\.02 s; the last answer was \[\]"):
        wait_until(list, timeout=0.02, what="the worker to stop")


def test_an_answer_that_is_late_still_counts() -> None:
    """The deadline passes while the predicate itself runs; it is asked once more."""
    answers = iter([False, True])

    def slow() -> bool:
        time.sleep(0.02)
        return next(answers)

    assert wait_until(slow, timeout=0.01)


def test_an_error_of_the_predicate_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0)
