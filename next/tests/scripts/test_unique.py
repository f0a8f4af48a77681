"""Unique keys: which job owns one, and what frees it.

A key is a digest; with a window, `digest.window_ms`, it is freed by time alone.
"""

from collections.abc import Callable
from typing import Literal

import pytest

from delayq.core.states import State
from tests.support.queue import HOUR, NOW, QueueOnServer, new_job

MINUTE = 60_000
WINDOW = f"digest.{MINUTE}"


def schedule(queue: QueueOnServer, id: str, lock: str, word: str = "kept") -> tuple[str, str, State]:
    """Schedule or replace a job, and return the answer, and which job is in its place, and where."""
    if word in ("kept", "conflict"):
        taken: Literal["kept", "conflict"] = "kept" if word == "kept" else "conflict"
        placed = queue.schedule(id, f"+{HOUR}", lock=lock, taken=taken)
    else:
        placed = queue.replace(id, f"+{HOUR}", lock=lock, word="replaced" if word == "replaced" else "postponed")
    return placed.answer, placed.id, placed.state


def owners(queue: QueueOnServer) -> tuple[dict[str, str], dict[str, str]]:
    return queue.rows("unique"), queue.rows("locks")


OWNED = ({"digest": "owner"}, {"owner": "digest"})
FREE: tuple[dict[str, str], dict[str, str]] = ({}, {})


@pytest.mark.parametrize(
    ("word", "answer"), [("kept", "kept"), ("conflict", "conflict"), ("replaced", "kept"), ("postponed", "kept")]
)
@pytest.mark.parametrize("state", ["scheduled", "ready", "reserved"])
def test_a_second_job_is_told_the_owner_and_changes_nothing(
    queue: QueueOnServer, word: str, answer: str, state: State
) -> None:
    queue.put("owner", state, lock="digest")
    assert owners(queue) == OWNED
    queue.schedule("other", f"+{2 * HOUR}")
    with queue.unchanged():
        assert schedule(queue, "second", "digest", word) == (answer, "owner", state)
    if word in ("replaced", "postponed"):
        with queue.unchanged():
            assert schedule(queue, "other", "digest", word) == (answer, "owner", state)


@pytest.mark.parametrize("lock", ["digest", WINDOW])
def test_of_two_jobs_in_one_call_the_first_owns_the_key(queue: QueueOnServer, lock: str) -> None:
    jobs = [new_job("a", "+5", lock=lock), new_job("b", "+5", lock=lock), new_job("c", "+5", lock="other")]
    assert [(placed.answer, placed.id) for placed in queue.schedule_all(*jobs)] == [
        ("created", "a"),
        ("kept", "a"),
        ("created", "c"),
    ]
    queue.replace_all(new_job("d", "+5", lock="third"), new_job("e", "+5", lock="third"))
    assert queue.rows("jobs").keys() == {"a", "c", "d"}


def test_replace_frees_the_old_key_and_takes_the_new_one(queue: QueueOnServer) -> None:
    schedule(queue, "owner", "first")
    assert schedule(queue, "owner", "digest", "replaced")[0] == "replaced"
    assert owners(queue) == OWNED
    assert queue.replace("owner", "+9", lock="digest", token="the owner itself").answer == "replaced"
    assert queue.replace("owner", "+9", lock="", token="no key").answer == "replaced"
    assert owners(queue) == FREE


def test_postpone_leaves_the_key_alone(queue: QueueOnServer) -> None:
    schedule(queue, "owner", "digest")
    assert schedule(queue, "owner", "another", "postponed")[0] == "postponed"
    assert owners(queue) == OWNED


def _reclaim(queue: QueueOnServer) -> None:
    queue.trust_leases()
    queue.rest("owner")
    assert queue.reclaim().reclaimed == 1


def _fail_and_retry(queue: QueueOnServer, digest: str) -> None:
    queue.fail(queue.held("owner"))
    assert queue.retry("owner", digest=digest).answer == "scheduled"


def _fail_and_forget(queue: QueueOnServer) -> None:
    queue.fail(queue.held("owner"))
    queue.forget("owner")


EVENTS: dict[str, tuple[State, Callable[[QueueOnServer, str], object], bool]] = {
    "promote": ("scheduled", lambda queue, _: queue.promote(now=NOW + HOUR), True),
    "pause": ("scheduled", lambda queue, _: queue.pause(), True),
    "reschedule": ("ready", lambda queue, _: queue.reschedule("owner", "+5"), True),
    "cancel": ("scheduled", lambda queue, _: queue.cancel("owner"), False),
    "archive": ("ready", lambda queue, _: queue.archive("owner"), False),
    "clear": ("scheduled", lambda queue, _: queue.clear(), False),
    "release": ("reserved", lambda queue, _: queue.release(queue.held("owner"), 5), True),
    "hand_back": ("reserved", lambda queue, _: queue.hand_back(queue.held("owner")), True),
    "reclaim": ("reserved", lambda queue, _: _reclaim(queue), True),
    "reclaim for the last time": (
        "reserved",
        lambda queue, _: queue.recover(queue.held("owner"), max_recoveries=0),
        False,
    ),
    "ack": ("reserved", lambda queue, _: queue.ack(queue.held("owner")), False),
    "ack with retention": ("reserved", lambda queue, _: queue.ack(queue.held("owner"), retention_ms=HOUR), False),
    "fail": ("reserved", lambda queue, _: queue.fail(queue.held("owner")), False),
    "forget": ("reserved", lambda queue, _: _fail_and_forget(queue), False),
    "retry": ("reserved", _fail_and_retry, True),
}
"""What happens to the owner, in which state, and whether it still owns the key then."""


@pytest.mark.parametrize("event", EVENTS)
def test_a_job_owns_its_key_until_it_has_ended(queue: QueueOnServer, event: str) -> None:
    state, act, still_owns = EVENTS[event]
    queue.put("owner", state, lock="digest")
    act(queue, "digest")
    assert owners(queue) == (OWNED if still_owns else FREE)
    assert schedule(queue, "second", "digest")[0] == ("kept" if still_owns else "created")


@pytest.mark.parametrize("event", EVENTS)
def test_a_window_is_over_by_time_alone(queue: QueueOnServer, event: str) -> None:
    state, act, _ = EVENTS[event]
    queue.put("owner", state, lock=WINDOW)
    act(queue, "")
    assert owners(queue) == ({WINDOW: f"owner {NOW + MINUTE}"}, {})
    assert queue.schedule("second", lock=WINDOW, now=NOW + MINUTE - 1).id == "owner"
    assert queue.schedule("second", lock=WINDOW, now=NOW + MINUTE).answer == "created"
    assert owners(queue) == ({WINDOW: f"second {NOW + 2 * MINUTE}"}, {})


def test_a_window_keeps_out_the_id_of_its_owner_too(queue: QueueOnServer) -> None:
    queue.put("owner", "reserved", lock=WINDOW)
    queue.ack(queue.held("owner"))
    with queue.unchanged():
        assert schedule(queue, "owner", WINDOW) == ("kept", "owner", "absent")
        assert schedule(queue, "second", WINDOW, "conflict")[0] == "conflict"
    assert queue.schedule("owner", lock=WINDOW, now=NOW + MINUTE).answer == "created"


@pytest.mark.parametrize("row", ["", " ", "x y", " 12"])
def test_a_window_that_cannot_be_read_keeps_no_job_out(queue: QueueOnServer, row: str) -> None:
    queue.server.hset(queue.key("unique"), WINDOW, row)
    assert schedule(queue, "job", WINDOW)[0] == "created"
    assert owners(queue) == ({WINDOW: f"job {NOW + MINUTE}"}, {})


@pytest.mark.parametrize("word", ["kept", "replaced"])
@pytest.mark.parametrize("end", ["absent", "failed", "completed"])
def test_an_owner_that_neither_waits_nor_runs_owns_nothing(queue: QueueOnServer, word: str, end: State) -> None:
    queue.put("ghost", end)
    queue.server.hset(queue.key("unique"), "digest", "ghost")
    assert schedule(queue, "owner", "digest", word)[0] == "created"
    assert owners(queue) == OWNED


def test_a_retry_takes_the_key_again_or_is_a_conflict(queue: QueueOnServer) -> None:
    queue.put("owner", "failed", lock="digest")
    schedule(queue, "second", "digest")
    with queue.unchanged():
        refused = queue.retry("owner", digest="digest")
    assert (refused.answer, refused.owner) == ("conflict", "second")
    queue.cancel("second")
    queue.server.hset(queue.key("unique"), "digest", "ghost")
    assert queue.retry("owner", digest="digest").answer == "scheduled"
    assert owners(queue) == OWNED


@pytest.mark.parametrize("verb", ["ack", "forget", "prune"])
@pytest.mark.parametrize("owner", ["job", "another"])
def test_a_key_that_damage_left_goes_with_the_job_only_if_it_is_its_own(
    damaged_queue: QueueOnServer, verb: str, owner: str
) -> None:
    queue = damaged_queue
    queue.put("job", "reserved" if verb == "ack" else "failed")
    queue.server.hset(queue.key("locks"), "job", "digest")
    queue.server.hset(queue.key("unique"), "digest", owner)
    if verb == "ack":
        queue.ack(queue.held("job"))
    elif verb == "forget":
        queue.forget("job")
    else:
        queue.prune()
    assert owners(queue) == ({} if owner == "job" else {"digest": "another"}, {})


def test_the_start_of_a_job_frees_its_key_once(queue: QueueOnServer) -> None:
    queue.put("owner", "reserved", lock="digest")
    entry = queue.held("owner").entry
    assert queue.unlock("owner", "digest", entry=entry) == "freed"
    assert owners(queue) == FREE
    assert schedule(queue, "second", "digest")[0] == "created"
    with queue.unchanged():
        assert queue.unlock("owner", "digest", entry=entry) == "free"
    queue.ack(queue.held("owner"))
    assert owners(queue) == ({"digest": "second"}, {"second": "digest"})


def test_a_job_that_has_started_does_not_take_its_key_again(queue: QueueOnServer) -> None:
    queue.put("owner", "reserved", lock="digest")
    queue.unlock("owner", "digest", entry=queue.held("owner").entry)
    queue.release(queue.held("owner"), HOUR)
    assert schedule(queue, "second", "digest")[0] == "created"


def test_a_delivery_that_was_taken_back_frees_nothing(queue: QueueOnServer) -> None:
    queue.put("owner", "reserved", lock="digest")
    entry = queue.held("owner").entry
    queue.hand_back(queue.held("owner"))
    with queue.unchanged():
        assert queue.unlock("owner", "digest", entry=entry) == "fenced"


@pytest.mark.parametrize("lock", ["digest", WINDOW])
def test_a_key_can_be_freed_by_hand_in_every_state(queue: QueueOnServer, lock: str) -> None:
    queue.put("owner", "scheduled", lock=lock)
    with queue.unchanged():
        assert queue.unlock("another", lock) == "free"
    assert queue.unlock("owner", lock) == "freed"
    assert schedule(queue, "second", lock)[0] == "created"
