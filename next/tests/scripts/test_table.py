"""The table of operations and states: each of its cells on a real server."""

from collections.abc import Callable

import pytest

from delayq.core.states import ANSWERS, STATES, Answer, State
from tests.support.queue import HOUR, QueueOnServer

CELLS = [(verb, state) for verb in ANSWERS for state in STATES]
NEW = b'{"new":1}'

VERBS: dict[str, Callable[[QueueOnServer], Answer]] = {
    "schedule keep": lambda queue: queue.schedule("job", f"+{2 * HOUR}", envelope=NEW).answer,
    "schedule replace": lambda queue: queue.replace("job", f"+{2 * HOUR}", envelope=NEW).answer,
    "schedule postpone": lambda queue: queue.replace("job", f"+{2 * HOUR}", envelope=NEW, word="postponed").answer,
    "schedule error": lambda queue: queue.schedule("job", f"+{2 * HOUR}", envelope=NEW, taken="conflict").answer,
    "reschedule": lambda queue: queue.reschedule("job", f"+{2 * HOUR}").answer,
    "run_now": lambda queue: queue.run_now("job").answer,
    "cancel": lambda queue: queue.cancel("job"),
    "archive": lambda queue: queue.archive("job"),
    "retry": lambda queue: queue.retry("job").answer,  # type: ignore[dict-item,return-value]  # has an answer `changed`
    "forget": lambda queue: queue.forget("job")[0],
}

REFUSALS = {"kept", "conflict", "running", "failed", "finished", "refused", "unknown"}
STATE_AFTER: dict[Answer, State] = {
    "created": "scheduled",
    "replaced": "scheduled",
    "postponed": "scheduled",
    "rescheduled": "scheduled",
    "scheduled": "scheduled",
    "ready": "ready",
    "cancelled": "absent",
    "archived": "failed",
    "forgotten": "absent",
}
"""The state of a job after an answer that is no refusal."""


@pytest.mark.parametrize(("verb", "state"), CELLS)
def test_an_operation_answers_and_moves_as_the_table_says(queue: QueueOnServer, verb: str, state: State) -> None:
    queue.put("job", state)
    answer = ANSWERS[verb][state]
    if answer in REFUSALS or (verb, state) == ("run_now", "ready"):
        with queue.unchanged():
            assert VERBS[verb](queue) == answer
        assert queue.state_of("job") == state if state != "absent" else queue.place_of("job") == "nowhere"
        return
    assert VERBS[verb](queue) == answer
    assert queue.state_of("job") == STATE_AFTER[answer]
    if answer in ("postponed", "rescheduled", "ready"):
        assert queue.rows("jobs")["job"] != NEW.decode()


def test_due_now_a_scheduled_job_is_ready(queue: QueueOnServer) -> None:
    assert queue.schedule("job").answer == "created"
    assert queue.state_of("job") == "ready"


@pytest.mark.parametrize("state", ["scheduled", "ready", "reserved", "failed", "completed"])
def test_a_retry_of_another_envelope_is_refused_too(queue: QueueOnServer, state: State) -> None:
    queue.put("job", state)
    with queue.unchanged():
        assert queue.retry("job", read=b"another").answer == ("changed" if state == "failed" else "refused")
