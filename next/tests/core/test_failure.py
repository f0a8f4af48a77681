"""The record of a failure: cut to size, its history flat, readable whatever is there."""

import traceback
from pathlib import Path
from typing import Final

import msgspec
import pytest

from delayq.core import failure as failures
from delayq.core.failure import Failure


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(error: BaseException, depth: int = 0) -> BaseException:
    try:
        raise_at(error, depth)
    except BaseException as caught:
        return caught
    raise AssertionError


def raise_at(error: BaseException, depth: int) -> None:
    if depth:
        raise_at(error, depth - 1)
    raise error


def test_an_error_leaves_its_type_message_and_traceback() -> None:
    failure = failures.describe(raised(KeyError("order")), at_ms=5, attempt=2)
    assert (failure.type, failure.message, failure.at_ms, failure.attempt) == ("KeyError", "'order'", 5, 2)
    assert failure.traceback.startswith("Traceback (most recent call last)")
    assert failures.decode(failures.encode(failure)) == failure


def test_an_error_that_was_not_raised_has_no_traceback() -> None:
    assert failures.describe(ValueError("x")) == Failure("ValueError", "x")


def test_everything_is_cut_and_the_end_of_a_traceback_stays() -> None:
    error = raised(type("E" * 100_000, (Exception,), {})("m" * 100_000), depth=200)
    failure = failures.describe(error)
    assert failure.type == "E" * 200 + " … (100,000 characters)"
    assert failure.message == "m" * 4_000 + " … (100,000 characters)"
    assert len(failure.traceback) == 16_002
    assert failure.traceback.startswith("… ")
    assert failure.traceback.endswith("m\n")


@pytest.mark.parametrize(("depth", "frames"), [(0, 2), (17, 19), (18, 20), (19, 20), (200, 20)])
def test_a_log_line_has_the_last_frames_of_the_application(depth: int, frames: int) -> None:
    trace = failures.application_frames(raised(ValueError("x"), depth))
    shown = traceback.extract_tb(trace)
    assert (len(shown), shown[-1].name) == (frames, "raise_at")


def raised_in(file: Path, program: str, **names: object) -> BaseException:
    """Return the error of a program in a file, with a traceback that starts in this file."""
    try:
        exec(compile(program, str(file), "exec"), names)
    except ValueError as error:
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError


OWN_FILE: Final = Path(failures.__file__)


def test_an_error_of_delayq_itself_has_no_frames_of_the_application() -> None:
    assert failures.application_frames(ValueError("never raised")) is None
    assert failures.application_frames(raised_in(OWN_FILE, "raise ValueError")) is None


def test_a_recorded_traceback_begins_with_the_application_unless_all_frames_are_those_of_delayq() -> None:
    handler_failed = raised_in(OWN_FILE, "fail(ValueError(), 0)", fail=raise_at)
    trace = failures.describe(handler_failed).traceback
    assert (str(OWN_FILE) in trace, trace.count("in raise_at")) == (False, 1)
    assert str(OWN_FILE) in failures.describe(raised_in(OWN_FILE, "raise ValueError")).traceback
    neighbour = OWN_FILE.parents[2] / "delayq_shop" / "jobs.py"
    assert str(neighbour) in failures.describe(raised_in(neighbour, "fail(ValueError(), 0)", fail=raise_at)).traceback


def test_a_message_that_cannot_be_made_is_named() -> None:
    failure = failures.describe(raised(Unspeakable()))
    assert failure.message == "(no message: its __str__ raised RuntimeError)"


def test_half_of_a_surrogate_pair_is_written_as_an_escape() -> None:
    assert failures.describe(ValueError("a\ud800b")).message == "a\\ud800b"


def test_a_script_can_add_to_an_open_record() -> None:
    record = failures.encode_open(Failure("E", "m")) + b',"at_ms":7,"history":[]}'
    assert failures.decode(record) == Failure("E", "m", at_ms=7)


def test_a_nested_history_comes_back_flat_and_oldest_first() -> None:
    third = Failure("C", "3", history=[Failure("B", "2", history=[Failure("A", "1")])])
    last = failures.decode(failures.encode(Failure("D", "4", history=[third])))
    assert last is not None
    assert [(failure.type, failure.history) for failure in last.history] == [("A", []), ("B", []), ("C", [])]
    assert last.first.type == "A"
    assert failures.describe(ValueError("alone")).first.type == "ValueError"


@pytest.mark.parametrize("raw", [b"oops", b"[]", b'{"type":5}', b"\xff", b'{"type":"E"}'])
def test_what_is_no_record_is_shown_as_it_is(raw: bytes) -> None:
    assert failures.decode(raw) == Failure("unreadable", raw.decode("utf-8", "replace"))


def test_a_history_without_end_is_shown_cut() -> None:
    raw = b'{"type":"E","message":"m","history":[' * 100_000
    failure = failures.decode(raw)
    assert failure is not None
    assert (failure.type, len(failure.message)) == ("unreadable", 4_000 + len(f" … ({len(raw):,} characters)"))


def test_no_bytes_are_no_failure_and_unknown_members_are_passed_over() -> None:
    assert failures.decode(b"") is None
    assert failures.decode(b'{"type":"E","message":"m","host":"x"}') == Failure("E", "m")
    assert msgspec.json.decode(failures.encode(Failure("E", "m"))) == {"type": "E", "message": "m"}
