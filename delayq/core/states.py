"""Where a job can be, and what each verb does there.

Theory of operation
-------------------
A job is in exactly one place, and the place *is* its state. Nothing else records it:

    scheduled   in the sorted set, with the time it is due
    ready       in the stream, above the group's last-delivered id
    reserved    in the stream, at or below it: a worker holds it, or held it
    failed      in the failed set, with the time it failed
    completed   in the completed set, with the time it will be forgotten (only with a retention)
    absent      nowhere: never scheduled, cancelled, settled without retention, or forgotten

              schedule                promote                 (read)
    absent ──────────────▶ scheduled ─────────▶ ready ──────────────────▶ reserved
       ▲  ╲_________________________________▲     │ ▲                      │ │ │ │
       │        schedule, due at once             │ ╰──── hand back ───────╯ │ │ │
       │                      ▲                   │  reclaim, recover        │ │ │
       ├─────── cancel ───────┼───────────────────╯                          │ │ │
       │                      ╰─────────────── release ──────────────────────╯ │ │
       │                      ╭─────── retry ──────── failed ◀──── fail ───────╯ │
       │                      ▼                         │                        │
       │                  scheduled                     │ forget                 │
       │                  scheduled, ready ── archive ──▶ failed               │
       ╰──────── ack ──── completed ◀───────────────────┴──────── ack ───────────╯

`DELIVERED` is a property of the entry's id, not of the pending list: an entry at or below the
group's last-delivered id was handed to somebody, even if it is no longer pending. So a cancel
never answers "cancelled" for work that may be running.

`ANSWERS` is the table of verbs and states. The Lua scripts are written to it, a test drives every
cell of it against a real server, and `docs/protocol.md` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, Never, TypeVar

from delayq.core.errors import InvalidInput


class _Word(StrEnum):
    """Words that callers may give as plain text."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise InvalidInput(f"{value!r} is none of: {', '.join(cls)}.")


class State(_Word):
    """The place of a job."""

    ABSENT = "absent"
    SCHEDULED = "scheduled"
    READY = "ready"
    RESERVED = "reserved"
    FAILED = "failed"
    COMPLETED = "completed"


class OnConflict(_Word):
    """What `schedule` does when the id is taken."""

    KEEP = "keep"
    REPLACE = "replace"
    POSTPONE = "postpone"
    ERROR = "error"


class Answer(StrEnum):
    """What a verb answers."""

    CREATED = "created"
    KEPT = "kept"
    REPLACED = "replaced"
    POSTPONED = "postponed"
    CONFLICT = "conflict"
    DEBOUNCED = "debounced"
    RESCHEDULED = "rescheduled"
    READY = "ready"
    SCHEDULED = "scheduled"
    CANCELLED = "cancelled"
    ARCHIVED = "archived"
    FORGOTTEN = "forgotten"
    RUNNING = "running"
    FAILED = "failed"
    FINISHED = "finished"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    CHANGED = "changed"


_REFUSALS: Final = (
    Answer.FAILED,
    Answer.FINISHED,
    Answer.RUNNING,
    Answer.REFUSED,
    Answer.CONFLICT,
    Answer.CHANGED,
)
T = TypeVar("T")


def worst(found: Iterable[T], key: Callable[[T], Answer]) -> T:
    """Of what several queues answered about one job, the gravest: a refusal, else what was done, else `unknown`.

    So `cancelled` means that no queue still has the job. The first of equals; `found` must not be empty.
    """

    def grave(one: T) -> int:
        answer = key(one)
        return 2 + _REFUSALS.index(answer) if answer in _REFUSALS else int(answer is not Answer.UNKNOWN)

    return max(found, key=grave)


_STATES: Final = (State.ABSENT, State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)


def _row(*answers: Answer) -> dict[State, Answer]:
    return dict(zip(_STATES, answers, strict=True))


A = Answer
ANSWERS: Final[dict[str, dict[State, Answer]]] = {
    #                          absent       scheduled      ready          reserved    failed       completed
    "schedule keep": _row(A.CREATED, A.KEPT, A.KEPT, A.KEPT, A.KEPT, A.KEPT),
    "schedule replace": _row(A.CREATED, A.REPLACED, A.REPLACED, A.RUNNING, A.REPLACED, A.REPLACED),
    "schedule postpone": _row(A.CREATED, A.POSTPONED, A.POSTPONED, A.RUNNING, A.KEPT, A.KEPT),
    "schedule error": _row(A.CREATED, A.CONFLICT, A.CONFLICT, A.CONFLICT, A.CONFLICT, A.CONFLICT),
    "reschedule": _row(A.UNKNOWN, A.RESCHEDULED, A.RESCHEDULED, A.RUNNING, A.FAILED, A.FINISHED),
    "run_now": _row(A.UNKNOWN, A.READY, A.READY, A.RUNNING, A.FAILED, A.FINISHED),
    "cancel": _row(A.UNKNOWN, A.CANCELLED, A.CANCELLED, A.RUNNING, A.FAILED, A.FINISHED),
    "archive": _row(A.UNKNOWN, A.ARCHIVED, A.ARCHIVED, A.RUNNING, A.FAILED, A.FINISHED),
    "retry": _row(A.UNKNOWN, A.REFUSED, A.REFUSED, A.REFUSED, A.SCHEDULED, A.REFUSED),
    "forget": _row(A.UNKNOWN, A.REFUSED, A.REFUSED, A.REFUSED, A.FORGOTTEN, A.FORGOTTEN),
}

# Every move between places, with the script that makes it. A move that is not in this table does not exist; the
# scripts' manuals name the same ones. `replace` is schedule with replace or postpone; `later` is its plainest case,
# and `done` that of ack.
TRANSITIONS: Final[frozenset[tuple[State, str, State]]] = frozenset(
    {
        (State.ABSENT, "schedule", State.SCHEDULED),
        (State.ABSENT, "schedule", State.READY),
        (State.ABSENT, "later", State.SCHEDULED),
        (State.ABSENT, "replace", State.SCHEDULED),
        (State.SCHEDULED, "replace", State.SCHEDULED),
        (State.READY, "replace", State.SCHEDULED),
        (State.FAILED, "replace", State.SCHEDULED),
        (State.COMPLETED, "replace", State.SCHEDULED),
        (State.ABSENT, "debounce", State.SCHEDULED),
        (State.SCHEDULED, "debounce", State.ABSENT),
        (State.READY, "debounce", State.ABSENT),
        (State.SCHEDULED, "promote", State.READY),
        (State.SCHEDULED, "promote", State.FAILED),
        (State.RESERVED, "ack", State.ABSENT),
        (State.RESERVED, "ack", State.COMPLETED),
        (State.RESERVED, "done", State.ABSENT),
        (State.RESERVED, "release", State.SCHEDULED),
        (State.RESERVED, "fail", State.FAILED),
        (State.RESERVED, "finish", State.ABSENT),
        (State.RESERVED, "finish", State.COMPLETED),
        (State.RESERVED, "finish", State.FAILED),
        (State.ABSENT, "finish", State.SCHEDULED),
        (State.RESERVED, "hand_back", State.READY),
        (State.RESERVED, "reclaim", State.READY),
        (State.RESERVED, "reclaim", State.FAILED),
        (State.RESERVED, "recover", State.READY),
        (State.RESERVED, "recover", State.FAILED),
        (State.SCHEDULED, "cancel", State.ABSENT),
        (State.READY, "cancel", State.ABSENT),
        (State.SCHEDULED, "archive", State.FAILED),
        (State.READY, "archive", State.FAILED),
        (State.SCHEDULED, "reschedule", State.SCHEDULED),
        (State.READY, "reschedule", State.SCHEDULED),
        (State.SCHEDULED, "run_now", State.READY),
        (State.SCHEDULED, "run_now", State.SCHEDULED),
        (State.FAILED, "retry", State.SCHEDULED),
        (State.FAILED, "forget", State.ABSENT),
        (State.COMPLETED, "forget", State.ABSENT),
        (State.FAILED, "prune", State.ABSENT),
        (State.COMPLETED, "prune", State.ABSENT),
        (State.SCHEDULED, "clear", State.ABSENT),
        (State.READY, "clear", State.ABSENT),
        (State.SCHEDULED, "set_aside", State.ABSENT),
        (State.READY, "set_aside", State.ABSENT),
        # Repairs, of what somebody damaged.
        (State.RESERVED, "mend", State.READY),
        (State.SCHEDULED, "mend", State.FAILED),
        (State.READY, "mend", State.FAILED),
        (State.RESERVED, "mend", State.FAILED),
    }
)
