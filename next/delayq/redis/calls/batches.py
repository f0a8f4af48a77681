"""Calls that create a batch, record the progress of its members, and read it."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from delayq.core.follow_up import Duty
from delayq.redis.calls import call
from delayq.redis.calls.call import Call, Parse, T, command, number, read, script_call, texts
from delayq.redis.keys import Keys
from delayq.redis.scripts import load

ROLES: Final = ("plan", "pending", "succeeded", "broken", "skipped")
SCAN_COUNT: Final = 250
FROM_START: Final = "0"

Word = Literal["sent", "done", "failed", "skipped", "next", "told"]
"""The word of a row of `note_batch`; see batch_note.lua."""

Row = tuple[str, Word, str]
"""A member id, a word, and a text; see `note_batch`."""


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The answer to `open_batch`. With an answer other than "opened", nothing was stored.

    `total` is the number of members of the batch. `pending` has a bool for each member of the call: True if the member
    is pending, False if it has ended or is unknown. `sent` has the positions of the pending members whose first jobs
    are known to have been stored.
    """

    answer: Literal["opened", "unknown", "finished", "cancelled"]
    total: int
    cancelled_ms: int | None
    pending: list[bool]
    sent: frozenset[int] = frozenset()


class Noted(msgspec.Struct, frozen=True, gc=False):
    """The answer to `note_batch`.

    * `due`: the duties to perform now, such as sending a callback. If there are none, `plan` is b''.
    * `answers`: a bool for each row. True if the row changed something, or if the next job of the chain may be sent.
    * `state`: "unknown" if the batch does not exist. All answers are then False.
    """

    state: Literal["running", "finished", "unknown"]
    plan: bytes
    due: list[Duty]
    answers: list[bool]
    cancelled_ms: int | None


class BatchRow(msgspec.Struct, frozen=True, gc=False):
    """One batch.

    `pending`, `succeeded`, `broken` and `skipped` are numbers of members: broken = failed, skipped = cancelled or
    stopped.
    """

    id: str
    total: int
    pending: int
    succeeded: int
    broken: int
    skipped: int
    created_ms: int
    cancelled_ms: int | None
    finished_ms: int | None
    allow_failures: bool
    plan: bytes


def batch_call(
    name: str,
    keys: Keys,
    batch_id: str,
    parse: Parse[T],
    /,
    *,
    rows: Iterable[tuple[call.Word, ...]] = (),
    **arguments: call.Word,
) -> Call[T]:
    """Return a call of a script with the keys of one batch."""
    script = load(name)
    of_script = tuple(keys.of_batch(batch_id, role) for role in script.keys)
    return script_call(script, of_script, parse, repeatable=True, reads_only=False, rows=rows, **arguments)


def open_batch(
    keys: Keys,
    batch_id: str,
    *,
    plan: bytes,
    allow_failures: bool,
    seal: bool,
    members: Sequence[tuple[str, str]],
    now_ms: str = "",
) -> Call[Opened]:
    """Create a batch, or add members to it.

    A member is an id and the text `<queue> <links>`: the queue of its first job, and its number of links.

    Pass the plan in each call of a dispatch; only the first plan is stored. Pass `seal` in the last call, because a
    batch cannot finish before it is sealed. To add members to an existing batch, pass b'' as the plan. `allow_failures`
    has an effect only if the call creates the batch.
    """
    return batch_call(
        "batch_open",
        keys,
        batch_id,
        _read_opened,
        now=now_ms,
        new_plan=plan,
        allow=int(allow_failures),
        seal=int(seal),
        rows=members,
    )


def note_batch(
    keys: Keys,
    batch_id: str,
    rows: Sequence[Row],
    *,
    cancel: bool = False,
    keep_ms: int,
    keep_broken_ms: int,
    now_ms: str = "",
) -> Call[Noted]:
    """Record the progress of members, and return the duties to perform now.

    A row is a member id, a word, and a text. With the word "failed", the text is `<queue> <job id>` of the failed job.
    With the word "next", the text is `<queue> <links> <job id>` of the next job. With the word "told", the row has the
    name of a performed duty instead of a member id. With all words except "failed" and "next", the text is ''.

    Every call returns a duty until a row with "told" names this duty. `cancel` cancels the batch unless it has
    finished. A finished batch is kept for `keep_ms` after the call, or for `keep_broken_ms` if it has a broken member.

    If the call is sent again after a lost reply, the answer for a row that the first call has recorded is False. The
    answers for the word "next" stay the same.
    """

    def parse(reply: list[Any]) -> Noted:
        if reply == [b"unknown"]:
            return Noted("unknown", b"", [], [False] * len(rows), None)
        state, plan, due, answers, cancelled_ms = reply
        return Noted(
            state.decode(),
            plan,
            [duty.decode() for duty in due],
            [answer == 1 for answer in answers],
            number(cancelled_ms),
        )

    return batch_call(
        "batch_note",
        keys,
        batch_id,
        parse,
        now=now_ms,
        cancel=int(cancel),
        keep_ms=keep_ms,
        keep_broken_ms=keep_broken_ms,
        rows=rows,
    )


def read_batch(keys: Keys, batch_id: str) -> list[Call[Any]]:
    """Return the calls that read one batch. Pass their values, in order, to `batch_row`.

    The calls are not atomic. If a member ends between two of them, it may be counted twice or not at all.
    """
    plan, pending, succeeded, broken, skipped = (keys.of_batch(batch_id, role) for role in ROLES)
    return [
        read("HMGET", plan, *_FIELDS, parse=list),
        read("HLEN", pending, parse=int),
        read("SCARD", succeeded, parse=int),
        read("HLEN", broken, parse=int),
        read("HLEN", skipped, parse=int),
    ]


def batch_row(batch_id: str, values: Sequence[Any]) -> BatchRow | None:
    """Return the batch that `read_batch` has read, or None if the batch does not exist."""
    (created_ms, total, allow, cancelled_ms, finished_ms, plan), pending, succeeded, broken, skipped = values
    if created_ms is None:
        return None
    return BatchRow(
        id=batch_id,
        total=number(total) or 0,
        pending=pending,
        succeeded=succeeded,
        broken=broken,
        skipped=skipped,
        created_ms=number(created_ms) or 0,
        cancelled_ms=number(cancelled_ms),
        finished_ms=number(finished_ms),
        allow_failures=allow == b"1",
        plan=plan or b"",
    )


def scan_members(
    keys: Keys, batch_id: str, role: Literal["pending", "broken", "skipped"], cursor: str = FROM_START
) -> Call[tuple[str, dict[str, str]]]:
    """Read one page of member ids with the stored texts; batch_note.lua describes the text of each role.

    The call returns the cursor of the next page; "0" = this was the last page. A member that ends during the scan may
    be missing. A member may occur on two pages.
    """

    def parse(reply: list[Any]) -> tuple[str, dict[str, str]]:
        words = texts(reply[1])
        return reply[0].decode(), dict(zip(words[::2], words[1::2], strict=True))

    return read("HSCAN", keys.of_batch(batch_id, role), cursor, "COUNT", SCAN_COUNT, parse=parse)


_FIELDS: Final = ("created_ms", "total", "allow", "cancelled_ms", "finished_ms", "plan")


def _read_opened(reply: list[bytes]) -> Opened:
    answer, total, cancelled_ms, *pending = reply
    return Opened(
        answer.decode(),  # type: ignore[arg-type]  # batch_open.lua lists the answers
        number(total) or 0,
        number(cancelled_ms),
        [word != b"0" for word in pending],
        frozenset(n for n, word in enumerate(pending) if word == b"2"),
    )


def count_records(keys: Keys, shard: str) -> Call[int]:
    """Read the number of job-end records that the relay has not handled yet."""
    return read("XLEN", keys.of_queue(shard, "outbox"), parse=int)


def list_batch(keys: Keys, batch_id: str, created_ms: int, *, oldest_ms: int) -> list[Call[int]]:
    """Add a batch to the list of batches, and remove batches that were created before `oldest_ms` from the list.

    If the batch is on the list, its time stays.
    """
    return [
        command("ZREMRANGEBYSCORE", keys.batches, "-inf", f"({oldest_ms}", parse=int),
        command("ZADD", keys.batches, "NX", created_ms, batch_id, parse=int),
    ]


def newest_batches(keys: Keys, limit: int) -> Call[list[str]]:
    """Read the ids of the newest batches on the list. Some of them may not be kept any more."""
    return read("ZREVRANGE", keys.batches, 0, limit - 1, parse=texts)


def unlist_batches(keys: Keys, batch_ids: Sequence[str]) -> Call[int]:
    """Remove batches from the list of batches."""
    return command("ZREM", keys.batches, *batch_ids, parse=int)


def is_cancelled(keys: Keys, batch_id: str) -> Call[bool]:
    """Read whether a batch was cancelled."""
    return read("HEXISTS", keys.of_batch(batch_id, "plan"), "cancelled_ms", parse=bool)
