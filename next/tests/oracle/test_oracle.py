"""Our scripts give the answers and leave the keys that those of the first edition do, call by call.

ORACLE_CALLS and ORACLE_SEED say how many calls a script, and which; `make oracle` sets them.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest

from delayq.redis.scripts import load
from tests.oracle import first_edition
from tests.oracle.drawing import SCRIPTS, Drawing, draw_plain
from tests.oracle.first_edition import Step
from tests.oracle.sides import STREAM, Side
from tests.support.servers import private_server

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(0)]

CALLS: Final = int(os.environ.get("ORACLE_CALLS", "200"))
SEED: Final = int(os.environ.get("ORACLE_SEED", "1"))


DIFFERENCES: Final = (
    "Not compared, because the contract changes it:",
    "- meta: promoted_late_*, shards, durability; keys stamps, types_by_hour, types_by_day",
    "- schedule: one plain job, due later, makes no missing stream (as later.lua); jobs of a call with more rows do",
    "- schedule, replace: layouts `epoch:n<m` and `?` are gone; another number of shards is answered `moved`",
    "- queue_configure: shards; durability is gone",
    "- run_now: a `paused_until_ms` that is no number counts as not paused; the first edition's script fails",
    "- promote, mend: a history of more than nine failures is cut",
    "- outbox: `todo` rows are gone, so `finish` is compared only without followers; rows have no stamps",
    "- release, fail: a job that was asked to stop is answered 2, so these scripts are compared without stop requests",
    "- promote: a pause with an end is answered by the time until this end, not by -3; `shards` is new",
    "- list: the argument `newest` and the entry of each row are new; tests/scripts/test_inspect.py has their tests",
    "- ack: `alone` = 2, for stopped jobs, is new; tests/scripts/test_settle.py has its tests",
    "- stats: without a ready entry, acknowledged jobs do not count as ready, so `ready` is not compared",
    "- texts of refusals",
)


@pytest.fixture
def ours() -> Iterator[Side]:
    with private_server() as url:
        yield Side(url)


@pytest.fixture
def theirs() -> Iterator[Side]:
    with private_server() as url:
        yield Side(url)


def keys(roles: Any, step: Step) -> list[str]:
    named = {
        "once": f"delayq:{{q}}:once:{step.token}",
        "control": "delayq:control",
        "set": f"delayq:{{q}}:{_set_of(str(step.arguments.get('state')))}",
    }
    return [named.get(role, f"delayq:{{q}}:{role}") for role in roles]


def _set_of(state: str) -> str:
    return state if state in ("scheduled", "failed", "completed") else "scheduled"


def ask_ours(side: Side, step: Step) -> Any:
    script = load(step.script)
    arguments = {**step.arguments, "newest": 0} if step.script == "list" else step.arguments
    assert tuple(arguments) == script.arguments
    answer = side.run(step.script, script.text, keys(script.keys, step), [*arguments.values(), *step.flat])
    if step.script == "promote" and answer != "error":
        return answer[:-1]
    if step.script == "list" and answer != "error":
        cursor, *rows = answer
        return [cursor, *[value for place, value in enumerate(rows) if place % 4 != 3]]
    return _in_full(step, answer) if step.script == "schedule" else answer


def _in_full(step: Step, answer: Any) -> Any:
    """Return the long form of the short answer that schedule gives when all jobs are new and wait in the set."""
    if answer == "error" or len(answer) != 2 or answer[0] != "0":
        return answer
    now = answer[1]
    in_full = [("created", "scheduled", first_edition.due(when, now), id) for id, _, when, _ in step.rows]
    return ["0", *(value for job in in_full for value in job)]


def ask_theirs(side: Side, step: Step) -> Any:
    def run(name: str, words: list[Any]) -> Any:
        return side.run(name, first_edition.text(name), keys(first_edition.roles(name), step), words)

    return first_edition.answer(step, run)


def comparable(step: Step, answer: Any) -> Any:
    """Return an answer without what two servers never share, or what the contract changes."""
    if answer == "error":
        return answer
    if step.script == "get" and len(answer) > 1:
        return [*answer[:9], answer[9] != "", *answer[10:]]  # idle times are real
    if step.script == "stats":
        return [answer[0], *answer[2:]]
    if step.script == "queue_configure" and isinstance(answer, list):
        return answer[0]
    return answer


def observe(drawing: Drawing, side: Side) -> None:
    """Tell the drawing what the queue holds."""
    drawing.old_entries += drawing.entries.items()
    drawing.entries = side.hash("entries")
    drawing.envelopes = side.hash("jobs")
    drawing.outbox = side.entry_ids("outbox")
    drawing.has_shards = "shards" in side.hash("meta")


def test_both_editions_agree(ours: Side, theirs: Side) -> None:
    drawing = Drawing(SEED)
    order = SCRIPTS * CALLS
    drawing.random.shuffle(order)
    answers: Counter[str] = Counter()
    print(*DIFFERENCES, sep="\n")
    for number, script in enumerate(order):
        drawing.tick()
        plain = draw_plain(drawing)
        garbage = drawing.random.random() < 0.01
        step = drawing.step(script)
        if script in ("release", "fail"):
            plain.append(("DEL", "delayq:{q}:cancel"))
        for side in (ours, theirs):
            side.begin(drawing.time_us)
            for words in plain:
                side.plain(*words)
            side.begin(drawing.time_us)
            if garbage:
                side.append_garbage("id", "odd", "note", "foreign")
        ours_answer = comparable(step, ask_ours(ours, step))
        theirs_answer = comparable(step, ask_theirs(theirs, step))
        if script == "promote" and theirs_answer != "error" and theirs_answer[2] == -3:
            ours_answer = [*ours_answer[:2], -3, *ours_answer[3:]]
        where = f"call {number} of seed {SEED}: {step}, after {plain} at {drawing.time_us}"
        assert ours_answer == theirs_answer, where
        mine, other = ours.dump(), theirs.dump()
        if mine != other:
            only_ours, only_theirs = sorted(set(mine) - set(other)), sorted(set(other) - set(mine))
            pytest.fail(f"{where}\nonly ours:   {only_ours}\nonly theirs: {only_theirs}")
        answers[script] += ours_answer != "error"
        if script == "list" and ours_answer != "error":
            drawing.cursor = ours_answer[0]
        observe(drawing, ours)
    assert STREAM and min(answers[script] for script in SCRIPTS) > CALLS / 2, answers
