"""What unique and debounced jobs are called: which keys are the same, which never are, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from delayq.core import envelope as envelopes
from delayq.core.debounce import Debounce, Quiet
from delayq.core.errors import InvalidDuration, InvalidInput
from delayq.core.options import Options
from delayq.core.spec import JobSpec, Prepared, prepare
from delayq.core.states import OnConflict
from delayq.core.unique import Unique, Until, again_of, key_text, unique_digest, until_of, wire, word_of

NOW = 1_800_000_000_000
DATA = {"order_id": 42, "by": "ann"}


def prepared(on_conflict: OnConflict = OnConflict.KEEP, **spec: Any) -> Prepared:
    return prepare(JobSpec(**{"name": "order.close", "data": DATA, **spec}), Options(), NOW, on_conflict)


def lock(unique: str | Unique, name: str = "order.close", data: Any = DATA) -> str:
    return wire(unique, name, data)


def test_a_text_is_a_key_that_all_jobs_share() -> None:
    assert lock("invoice:42") == lock("invoice:42", "other") == unique_digest("invoice:42")
    assert lock("invoice:42") != lock("invoice:43")


def test_any_other_key_belongs_to_the_name_of_its_job() -> None:
    by_text = Unique(key="invoice:42")
    assert lock(by_text) == lock(by_text, data=None)
    assert len({lock(by_text), lock(by_text, "other"), lock("invoice:42")}) == 3
    assert lock(Unique()) != lock(Unique(), "other")


def test_all_fields_or_some_in_any_order() -> None:
    assert lock(Unique()) == lock(Unique(), data={"by": "ann", "order_id": 42})
    assert lock(Unique()) != lock(Unique(), data={"by": "bob", "order_id": 42})
    by_order = Unique(key=["order_id"])
    assert lock(by_order) == lock(by_order, data={"by": "bob", "order_id": 42})
    assert lock(by_order) != lock(by_order, data={"by": "ann", "order_id": 43})
    assert lock(by_order) == lock(by_order, data=b'{"order_id": 42}')


def test_a_function_is_given_the_job_or_its_fields() -> None:
    by_function = Unique(key=lambda job: f"{job['order_id']}")
    assert lock(by_function) == lock(Unique(key="42"))
    assert key_text(str, DATA, subject=7) == "7"
    with pytest.raises(InvalidInput, match="answered 7"):
        key_text(lambda job: job, DATA, subject=7)


def test_what_frees_it_is_told_by_its_end() -> None:
    done, start = lock(Unique()), lock(Unique(until="start"))
    window = lock(Unique(until=Until.WINDOW, window="1h"))
    assert [until_of(one) for one in (done, start, window)] == list(Until)
    assert start == f"{done}.start", "for the same key, one lock"
    assert window.endswith(".3600000")
    assert not window.startswith(done), "windows never meet other locks"


def test_what_schedule_and_retry_are_told_of_it() -> None:
    assert [word_of(one) for one in (None, "d", "d.start", "d.1000")] == ["", "d", "d", "d.1000"]
    assert [again_of(one) for one in (None, "d", "d.start", "d.1000")] == ["", "d", "", ""]


def test_the_envelope_carries_the_lock() -> None:
    job = prepared(unique=Unique(until="start"))
    assert envelopes.decode(job.envelope).unique == f"{job.digest}.start"
    plain = prepared()
    assert (plain.digest, envelopes.decode(plain.envelope).unique) == ("", None)


@pytest.mark.parametrize(
    "given",
    [
        {"key": ""},
        {"key": []},
        {"key": [""]},
        {"until": "tomorrow"},
        {"until": "window"},
        {"window": "1h"},
        {"until": "start", "window": "1h"},
        {"until": "window", "window": "0s"},
    ],
)
def test_what_says_nothing_is_refused_where_it_is_written(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Unique(**given)


def test_fields_that_are_not_there() -> None:
    with pytest.raises(InvalidInput, match="no member 'user'"):
        lock(Unique(key=["user"]))
    with pytest.raises(InvalidInput, match="no member 'user'"):
        lock(Unique(key=["user"]), data=[1])


@pytest.mark.parametrize("on_conflict", OnConflict)
def test_a_window_cannot_follow_another_payload_or_time(on_conflict: OnConflict) -> None:
    window = Unique(until="window", window="1m")
    if on_conflict in (OnConflict.KEEP, OnConflict.ERROR):
        assert prepared(on_conflict, unique=window).digest.endswith(".60000")
    else:
        with pytest.raises(InvalidInput, match=f"unique for a window.*{on_conflict}"):
            prepared(on_conflict, unique=window)
    assert prepared(on_conflict, unique=Unique()).digest


def test_debounce() -> None:
    job = prepared(debounce=Debounce("30s", max_wait="5m", key=["order_id"]))
    assert (job.quiet, envelopes.decode(job.envelope).unique) == (Quiet(30_000, 300_000), f"{job.digest}.start")
    assert job.digest != prepared(unique=Unique(key=["order_id"])).digest
    assert prepared(debounce=Debounce("30s")).digest == prepared(debounce=Debounce("1m"), data=None).digest
    assert prepared(debounce=Debounce("30s", key=None)).digest != prepared(debounce=Debounce("30s")).digest
    assert Debounce("30s").quiet == Quiet(30_000, 0)


@pytest.mark.parametrize("other", [{"unique": "k"}, {"delay": "1s"}, {"at": "2027-01-15T09:00:00Z"}])
def test_a_debounced_job_has_no_time_or_key_of_its_own(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"is debounced and has {next(iter(other))}= too"):
        prepared(debounce=Debounce("30s"), **other)
    with pytest.raises(InvalidInput, match="on_conflict has nothing to say"):
        prepared(OnConflict.REPLACE, debounce=Debounce("30s"))


@pytest.mark.parametrize("given", [{"wait": "0s"}, {"wait": "5m", "max_wait": "30s"}, {"wait": "1s", "key": []}])
def test_a_debounce_that_does_not_wait(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Debounce(**given)
    with pytest.raises(InvalidDuration):
        Debounce("soon")


def test_both_are_plain_values() -> None:
    assert dataclasses.replace(Unique(key=["a"]), key="b") == Unique(key="b")
    assert dataclasses.replace(Debounce("1s"), key="b") == Debounce("1s", key="b")
