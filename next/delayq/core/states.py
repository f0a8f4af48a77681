"""The states of a job, and the answer of each operation in each state.

A job is in exactly one state. The Redis key that holds the job defines its state, and no field repeats it:

    scheduled   in the sorted set `scheduled`, with its due time
    ready       in the stream, above the last-delivered id of the group
    reserved    in the stream, at or below this id, because it was delivered to a worker
    failed      in the sorted set `failed`, with the time of its failure
    completed   in the sorted set `completed`, with the time when the job is deleted (only jobs with a retention)
    absent      in none of these keys: never scheduled, cancelled, done without retention, or forgotten

              schedule                promote                 (read)
    absent ──────────────▶ scheduled ─────────▶ ready ──────────────────▶ reserved
       ▲  ╲_________________________________▲     │ ▲                      │ │ │ │
       │        schedule, due at once             │ ╰──── hand back ───────╯ │ │ │
       │                      ▲                   │       reclaim            │ │ │
       ├─────── cancel ───────┼───────────────────╯                          │ │ │
       │                      ╰─────────────── release ──────────────────────╯ │ │
       │                      ╭─────── retry ──────── failed ◀──── fail ───────╯ │
       │                      ▼                         │                        │
       │                  scheduled                     │ forget                 │
       │                  scheduled, ready ── archive ──▶ failed                 │
       ╰──────── ack ──── completed ◀───────────────────┴──────── ack ───────────╯

`ANSWERS` is the table of operations and states. The scripts implement this table, and a test checks each of its cells
on a real server.
"""

from typing import Final, Literal, get_args

State = Literal["absent", "scheduled", "ready", "reserved", "failed", "completed"]
OnConflict = Literal["keep", "replace", "postpone", "error"]
Answer = Literal[
    "created",
    "kept",
    "replaced",
    "postponed",
    "conflict",
    "rescheduled",
    "ready",
    "scheduled",
    "cancelled",
    "archived",
    "forgotten",
    "running",
    "failed",
    "finished",
    "refused",
    "unknown",
    "vetoed",
    "after commit",
]

STATES: Final[tuple[State, ...]] = get_args(State)


def _row(*answers: Answer) -> dict[State, Answer]:
    return dict(zip(STATES, answers, strict=True))


ANSWERS: Final[dict[str, dict[State, Answer]]] = {
    #                        absent       scheduled      ready          reserved    failed       completed
    "schedule keep": _row("created", "kept", "kept", "kept", "kept", "kept"),
    "schedule replace": _row("created", "replaced", "replaced", "running", "replaced", "replaced"),
    "schedule postpone": _row("created", "postponed", "postponed", "running", "kept", "kept"),
    "schedule error": _row("created", "conflict", "conflict", "conflict", "conflict", "conflict"),
    "reschedule": _row("unknown", "rescheduled", "rescheduled", "running", "failed", "finished"),
    "run_now": _row("unknown", "ready", "ready", "running", "failed", "finished"),
    "cancel": _row("unknown", "cancelled", "cancelled", "running", "failed", "finished"),
    "archive": _row("unknown", "archived", "archived", "running", "failed", "finished"),
    "retry": _row("unknown", "refused", "refused", "refused", "scheduled", "refused"),
    "forget": _row("unknown", "refused", "refused", "refused", "forgotten", "forgotten"),
}
