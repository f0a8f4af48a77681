"""The record of a failure: what it keeps, and that no error is too strange for it."""

from __future__ import annotations

import msgspec
import pytest

from delayq.core import failure as failures
from delayq.core.failure import MAX_HISTORY, MAX_MESSAGE, MAX_TRACEBACK, MAX_TYPE, Failure


def raised(error: BaseException) -> BaseException:
    """The error with a traceback, as a handler leaves it."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001  (any error at all is what is described here)
        return caught


def told(error: BaseException) -> Failure:
    """What is left of an error after a trip through Redis."""
    decoded = failures.decode(failures.encode(failures.describe(error, at_ms=5, attempt=2)))
    assert decoded is not None
    return decoded


def test_type_message_time_attempt_and_where_it_was_raised() -> None:
    failure = told(raised(ValueError("no such order")))
    assert (failure.type, failure.message, failure.at_ms, failure.attempt) == ("ValueError", "no such order", 5, 2)
    assert "test_failure.py" in failure.traceback
    assert failure.traceback.endswith("ValueError: no such order\n")


def test_causes_are_told() -> None:
    def work() -> None:
        try:
            raise KeyError("rate")
        except KeyError as error:
            raise ValueError("no price") from error

    with pytest.raises(ValueError, match="no price") as caught:
        work()
    assert "KeyError: 'rate'" in told(caught.value).traceback


def test_notes_are_told() -> None:
    error = ValueError("x")
    error.add_note("the backoff failed too")
    assert "the backoff failed too" in told(raised(error)).traceback


def test_an_error_that_was_never_raised_has_no_traceback() -> None:
    assert told(ValueError("x")).traceback == ""


def test_a_huge_message_is_cut() -> None:
    failure = told(raised(ValueError("x" * 5_000_000)))
    assert failure.message.startswith("x" * MAX_MESSAGE)
    assert failure.message.endswith("(5,000,000 characters)")
    assert len(failure.message) < MAX_MESSAGE + 50
    assert len(failure.traceback) <= MAX_TRACEBACK + 2


def test_a_deep_traceback_keeps_its_end() -> None:
    def down(levels: int) -> None:
        if levels == 0:
            raise ValueError("at the bottom")
        down(levels - 1)

    with pytest.raises(ValueError, match="at the bottom") as caught:
        down(300)
    failure = told(caught.value)
    assert failure.traceback.endswith("ValueError: at the bottom\n")
    assert len(failure.traceback) <= MAX_TRACEBACK + 2


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\x00", "\x1b[31m", "🦄"])
def test_any_text_survives_as_something_utf8_can_carry(text: str) -> None:
    failure = told(raised(ValueError(text)))
    failure.message.encode("utf-8")
    if "\ud800" not in text and "\udfff" not in text:
        assert failure.message == text


def test_an_error_whose_message_cannot_be_made() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    failure = told(raised(Broken()))
    assert failure.type == "Broken"
    assert "RuntimeError" in failure.message


def test_an_error_that_breaks_its_own_traceback() -> None:
    class Odd(Exception):
        @property
        def __notes__(self) -> list[str]:  # type: ignore[override]
            raise RuntimeError("no notes")

        @property
        def __cause__(self) -> None:  # type: ignore[override]
            raise RuntimeError("no cause")

    failure = told(raised(Odd("but a message")))
    assert failure.message == "but a message"


# -- history ---------------------------------------------------------------------------------------------------------


def fail_times(count: int) -> Failure:
    failure: Failure | None = None
    for n in range(1, count + 1):
        now = failures.describe(raised(ValueError(f"attempt {n}")), at_ms=n, attempt=n)
        failure = failures.decode(failures.encode(failures.after(failure, now)))
    assert failure is not None
    return failure


def test_history_is_in_order_and_the_first_keeps_its_traceback() -> None:
    failure = fail_times(4)
    assert failure.message == "attempt 4"
    assert failure.traceback
    assert [past.message for past in failure.history] == ["attempt 1", "attempt 2", "attempt 3"]
    assert [bool(past.traceback) for past in failure.history] == [True, False, False]
    assert all(past.history == [] for past in failure.history)


def test_history_is_bounded_and_never_loses_the_first() -> None:
    failure = fail_times(500)
    assert len(failure.history) == MAX_HISTORY
    assert failure.history[0].message == "attempt 1"
    assert failure.history[0].traceback
    assert [past.attempt for past in failure.history[1:]] == list(range(491, 500))
    assert len(failures.encode(failure)) < 3 * MAX_TRACEBACK + MAX_HISTORY * (MAX_MESSAGE + 200)


def test_what_scripts_nest_is_read_flat() -> None:
    """`reclaim` never decodes: it writes the record before it into `history` as it stands."""
    before = failures.encode(fail_times(3))
    nested = b'{"type":"WorkerVanished","message":"m","at_ms":9,"history":[' + before + b"]}"
    failure = failures.decode(nested)
    assert failure is not None
    assert failure.type == "WorkerVanished"
    assert [past.message for past in failure.history] == ["attempt 1", "attempt 2", "attempt 3"]
    once_more = failures.after(failure, Failure(type="E", message="after"))
    assert [past.message for past in once_more.history][-1] == "m"


@pytest.mark.parametrize(
    "raw", [b"not json", b"\xff\xfe", b"[1]", b'{"type":1}', b"[" * 100_000, b'{"history":[' * 50_000]
)
def test_what_is_no_record_is_shown_and_never_raises(raw: bytes) -> None:
    failure = failures.decode(raw)
    assert failure is not None
    assert failure.type == "unreadable"
    assert len(failure.message) < MAX_MESSAGE + 50
    assert msgspec.json.decode(failures.encode(failure))["type"] == "unreadable"


def test_no_record_is_none() -> None:
    assert failures.decode(b"") is None


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, ValueError])
def test_an_error_that_cannot_say_its_message_tears_nobody_out(raised: type[BaseException]) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise raised

    failure = failures.describe(Mute())
    assert (failure.type, failure.message) == ("Mute", f"(its message could not be made: {raised.__name__})")


def test_the_name_of_a_type_is_cut() -> None:
    """A class made with `type()` may have a name of any length."""
    long = type("E" * 100_000, (Exception,), {})
    assert len(failures.describe(long("no")).type) <= MAX_TYPE + 100
