"""What each verb does in each state: all cells of the contract's table, on a real server.

The table stands here a second time, copied from the design by hand: the package's own must not be what it is tested
against.
"""

from __future__ import annotations

import pytest

from delayq.core.envelope import fingerprint
from delayq.core.states import ANSWERS, Answer, OnConflict, State
from delayq.redis.calls import produce
from tests.support.engine import HOUR, Engine

STATES = ("absent", "scheduled", "ready", "reserved", "failed", "completed")

ANSWER = """
schedule keep     | created | kept        | kept        | kept     | kept      | kept
schedule replace  | created | replaced    | replaced    | running  | replaced  | replaced
schedule postpone | created | postponed   | postponed   | running  | kept      | kept
schedule error    | created | conflict    | conflict    | conflict | conflict  | conflict
reschedule        | unknown | rescheduled | rescheduled | running  | failed    | finished
run_now           | unknown | ready       | ready       | running  | failed    | finished
cancel            | unknown | cancelled   | cancelled   | running  | failed    | finished
archive           | unknown | archived    | archived    | running  | failed    | finished
retry             | unknown | refused     | refused     | refused  | scheduled | refused
forget            | unknown | refused     | refused     | refused  | forgotten | forgotten
"""

AFTER = """
schedule keep     | scheduled | scheduled | ready     | reserved | failed    | completed
schedule replace  | scheduled | scheduled | scheduled | reserved | scheduled | scheduled
schedule postpone | scheduled | scheduled | scheduled | reserved | failed    | completed
schedule error    | scheduled | scheduled | ready     | reserved | failed    | completed
reschedule        | absent    | scheduled | scheduled | reserved | failed    | completed
run_now           | absent    | ready     | ready     | reserved | failed    | completed
cancel            | absent    | absent    | absent    | reserved | failed    | completed
archive           | absent    | failed    | failed    | reserved | failed    | completed
retry             | absent    | scheduled | ready     | reserved | scheduled | completed
forget            | absent    | scheduled | ready     | reserved | absent    | absent
"""

REFUSALS = {"kept", "conflict", "running", "failed", "finished", "refused", "unknown"}


def table(text: str) -> dict[str, dict[str, str]]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return {verb: dict(zip(STATES, cells, strict=True)) for verb, *cells in rows}


CELLS = [(verb, state) for verb in table(ANSWER) for state in STATES]


def ask(engine: Engine, verb: str) -> tuple[Answer, set[str]]:
    """The verb's answer for the job "j", and the keys it changed."""
    scope = engine.scope
    if verb.startswith("schedule"):
        job = engine.job("j", f"+{2 * HOUR}", data=b'{"new":1}')
        scheduled, names = engine.changes(engine.scheduling([job], OnConflict(verb.split()[1])))
        return Answer(scheduled.refs[0].outcome), names
    if verb == "reschedule":
        outcome, names = engine.changes(produce.reschedule(scope, "j", f"+{2 * HOUR}"))
    elif verb == "run_now":
        outcome, names = engine.changes(produce.run_now(scope, "j"))
    elif verb == "retry":
        raw = engine.client.hget(engine.keys.of("jobs"), "j") or b""
        outcome, names = engine.changes(produce.retry(scope, "j", fingerprint(raw), b'{"again":1}', ""))
    elif verb == "cancel":
        return engine.changes(produce.cancel(scope, "j", running=False, token="c1"))
    elif verb == "archive":
        done, names = engine.changes(produce.archive(scope, "j", "why", token="c1"))
        return done.answer, names
    else:
        answers, names = engine.changes(produce.forget(scope, ["j"]))
        return answers[0], names
    return outcome.answer, names


@pytest.mark.parametrize(("verb", "state"), CELLS, ids=[f"{verb}-{state}" for verb, state in CELLS])
def test_cell(engine: Engine, verb: str, state: str) -> None:
    engine.put("j", State(state))
    payload = engine.rows("jobs").get("j")
    answer, names = ask(engine, verb)
    assert answer == Answer(table(ANSWER)[verb][state])
    assert engine.state("j") == State(table(AFTER)[verb][state])
    if answer.value in REFUSALS or (verb, state) == ("run_now", "ready"):
        assert {name for name in names if not name.startswith("once:")} == set()
    else:
        assert names, "the verb says that it did something"
    if answer in (Answer.KEPT, Answer.CONFLICT, Answer.POSTPONED, Answer.RESCHEDULED, Answer.RUNNING, Answer.READY):
        assert engine.rows("jobs").get("j") == payload, "these keep the old payload"


def test_the_package_has_the_same_table() -> None:
    ours = {verb: {str(state): str(answer) for state, answer in row.items()} for verb, row in ANSWERS.items()}
    assert ours == table(ANSWER)


def test_due_now_a_scheduled_job_reads_ready(engine: Engine) -> None:
    """ "In the table read scheduled as scheduled, or ready when due now." """
    assert engine.schedule([engine.job("j", "+0")]) == [Answer.CREATED]
    assert engine.state("j") == State.READY


@pytest.mark.parametrize("state", ["failed", "completed"])
def test_replace_starts_over(engine: Engine, state: str) -> None:
    """A replaced job keeps nothing of its former life: no failure, no result, no recoveries."""
    engine.put("j", State(state))
    fresh = engine.job("j", data=b'{"new":1}')
    assert engine.schedule([fresh], OnConflict.REPLACE) == [Answer.REPLACED]
    assert engine.rows("jobs") == {"j": fresh.envelope.decode()}
    assert (engine.rows("errors"), engine.rows("results"), engine.rows("recoveries")) == ({}, {}, {})


def test_cancel_of_a_running_job_asks_it_to_stop_when_told_to(engine: Engine) -> None:
    engine.put("j", State.RESERVED)
    call = produce.cancel(engine.scope, "j", running=True, token="c1")
    assert engine.changes(call) == (Answer.RUNNING, {"cancel"})
    assert engine.rows("cancel") == {"j": str(engine.now)}


@pytest.mark.parametrize("state", ["scheduled", "ready", "reserved", "failed", "completed"])
def test_retry_answers_changed_for_another_envelope(engine: Engine, state: str) -> None:
    engine.put("j", State(state))
    outcome = engine.unchanged(produce.retry(engine.scope, "j", fingerprint(b"another"), b"{}", ""))
    assert outcome.answer == (Answer.CHANGED if state == "failed" else Answer.REFUSED)
