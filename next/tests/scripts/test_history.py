"""A failure keeps those before it: in release and fail whatever the worker writes, and in failures of delayq itself."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.queue import FAILURE, NOW, QueueOnServer

MESSAGE = 'says ,"history":[] ] } [ {'
FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "no history": json.dumps,
    "empty history": lambda failure: json.dumps({**failure, "history": []}, separators=(",", ":")),
    "history with blanks": lambda failure: json.dumps({**failure, "history": []}, indent=1),
    "history in front": lambda failure: json.dumps({"history": [], **failure}),
}
MOST = 10
"""The failures of a record: the last one and nine before it."""


def attempt(queue: QueueOnServer, number: int, form: str, *, is_last: bool = False) -> None:
    (job,) = queue.read()
    failure = FORMS[form]({"type": "E", "message": MESSAGE, "attempt": number}).encode()
    if is_last:
        queue.fail(job, failure=failure)
    else:
        queue.release(job, 0, failure=failure)
        queue.promote()


def attempts(queue: QueueOnServer) -> list[int | None]:
    json.loads(queue.rows("errors")["job"])  # it is JSON for every reader
    failure = queue.failure_of("job")
    assert {one.message for one in (*failure.history, failure)} == {MESSAGE}
    return [one.attempt for one in (*failure.history, failure)]


@pytest.mark.parametrize("form", FORMS)
def test_the_first_failures_and_the_last_one_are_kept(queue: QueueOnServer, form: str) -> None:
    queue.schedule("job")
    for number in range(1, 4):
        attempt(queue, number, form)
    assert attempts(queue) == [1, 2, 3]
    for number in range(4, 13):
        attempt(queue, number, form)
    attempt(queue, 13, form, is_last=True)
    assert attempts(queue) == [*range(1, MOST), 13]


@pytest.mark.parametrize("failure", ["{}", "no JSON", '"text"', "[1]", '{"type":"E","history":[{"type":"Own"}]}'])
def test_a_failure_that_takes_no_history_is_written_as_it_is(queue: QueueOnServer, failure: str) -> None:
    queue.schedule("job")
    attempt(queue, 1, "no history")
    queue.fail(queue.read()[0], failure=failure.encode())
    assert queue.rows("errors") == {"job": failure}


def _archive(queue: QueueOnServer) -> None:
    queue.archive("job", token="archive")


def _reclaim(queue: QueueOnServer) -> None:
    queue.promote(now=NOW + 1)
    queue.read()
    queue.trust_leases()
    queue.rest("job")
    assert queue.reclaim(max_recoveries=0).failed == 1


def _recover(queue: QueueOnServer) -> None:
    queue.promote(now=NOW + 1)
    assert queue.recover(*queue.read(), max_recoveries=0) == [2]


def _promote_without_payload(queue: QueueOnServer) -> None:
    queue.server.hdel(queue.key("jobs"), "job")
    assert queue.promote(now=NOW + 1).lost == 1


def _mend_without_payload(queue: QueueOnServer) -> None:
    queue.server.hdel(queue.key("jobs"), "job")
    assert queue.mend("job") == ["lost"]


GIVE_UP: dict[str, Callable[[QueueOnServer], None]] = {
    "archive": _archive,
    "reclaim": _reclaim,
    "recover": _recover,
    "promote": _promote_without_payload,
    "mend": _mend_without_payload,
}


@pytest.mark.parametrize("way", GIVE_UP)
def test_a_failure_of_delayq_keeps_the_failures_before(queue: QueueOnServer, way: str) -> None:
    queue.schedule("job", "+1")
    queue.server.hset(queue.key("errors"), "job", FAILURE)
    GIVE_UP[way](queue)
    assert [failure.message for failure in queue.failure_of("job").history] == ["m"]


@pytest.mark.parametrize("way", GIVE_UP)
def test_what_is_no_failure_is_not_taken_along(queue: QueueOnServer, way: str) -> None:
    queue.schedule("job", "+1")
    queue.server.hset(queue.key("errors"), "job", '"text"')
    GIVE_UP[way](queue)
    assert queue.failure_of("job").history == []


@pytest.mark.parametrize("way", ["archive", "recover"])
def test_a_job_given_up_again_and_again_keeps_its_first_failure(queue: QueueOnServer, way: str) -> None:
    queue.put("job", "failed")
    for number in range(2 * MOST):
        queue.retry("job")
        if way == "archive":
            queue.archive("job", token=str(number))
        else:
            _recover(queue)
    history = queue.failure_of("job").history
    assert (history[0].message, len(history)) == ("m", MOST - 1)
