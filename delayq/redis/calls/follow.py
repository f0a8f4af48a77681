"""What settles jobs that something follows, what a relay calls, and what batches are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from delayq.core import ending as endings
from delayq.core import failure as failures
from delayq.core import follow, followups
from delayq.core.errors import BadEnvelope
from delayq.core.followups import End, Note, Send, Todo, Word
from delayq.core.states import Answer
from delayq.redis.calls.call import Argument, Call, Scope, call, number, text, whole
from delayq.redis.calls.deliver import PAGE, Held

HOLD_MS: Final = 5_000
JOINED: Final = "joined "
KEEP_BATCH_MS: Final = 7 * 24 * 3_600_000
ENDED: Final[Mapping[Answer, Word]] = MappingProxyType(
    {
        Answer.CANCELLED: Word.SKIPPED,
        Answer.UNKNOWN: Word.SKIPPED,  # its turn had not come, or it was lost; done if a note of that is on its way
        Answer.FAILED: Word.FAILED,
        Answer.FINISHED: Word.DONE,
    }
)
"""What becomes of a member of a cancelled batch, by the answer to its own cancelling. One that runs goes on."""


class Finished(NamedTuple):
    """One delivery and what follows its end. `envelope`, `record` (result or failure): b'' = unchanged, none.

    Of one that is done `envelope` is how it ran (`core/ran`).
    """

    held: Held
    end: End
    todo: Todo
    retention_ms: int = 0
    envelope: bytes = b""
    record: bytes = b""


def finish(scope: Scope, finished: Sequence[Finished]) -> Call[list[bool]]:
    """Settle, and write what follows; True for each that was still ours.

    A job for this very queue is scheduled in the same step, unless it has a unique key: somebody may hold that, and
    then it has to wait in the outbox. So it has to when its batch does not know yet that it is a member.
    """
    args: list[Argument] = [scope.now, scope.queue, scope.wake]
    for item in finished:
        jobs = () if follow.joining(item.todo) else (job for job in item.todo if isinstance(job, Send))
        here = [job for job in jobs if job.queue == scope.queue and not job.unique]
        owed = [other for other in item.todo if other not in here]
        args += (item.held.id, item.held.entry, item.end, item.retention_ms, item.envelope, item.record)
        args += (followups.encode_todo(owed), len(here))
        for job in here:
            args += (job.id, bytes(job.envelope), job.delay_ms)
    return call("finish", scope, args, lambda reply: [value == 1 for value in reply])


class Owed(NamedTuple):
    """One entry of an outbox: its id, when a relay was first given it, and its fields."""

    entry: str
    first_ms: int
    fields: dict[str, bytes]


class OwedPage(NamedTuple):
    """`busy`: another relay is at it."""

    busy: bool
    more: bool
    entries: tuple[Owed, ...]


def owed(scope: Scope, relay: str, after: str, limit: int = PAGE) -> Call[OwedPage]:
    """What the outbox holds behind `after` ('-' = from the start)."""
    return call("owed", scope, [scope.now, relay, HOLD_MS, after, limit], _owed_page)


def _owed_page(reply: list[Any]) -> OwedPage:
    rows = zip(reply[2::3], reply[3::3], reply[4::3], strict=True)
    entries = tuple(Owed(text(entry), int(first), _pairs(fields)) for entry, first, fields in rows)
    return OwedPage(reply[0] == 1, reply[1] == 1, entries)


def _pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def carried(scope: Scope, entries: Sequence[str]) -> Call[int]:
    """Take entries out of the outbox."""
    return call("carried", scope, list(entries), int)


def todo_of(owed: Owed, now_ms: int) -> Todo:
    """What an entry of an outbox asks for. Raises `BadEnvelope`."""
    if "todo" in owed.fields:
        return followups.decode_todo(owed.fields["todo"])
    try:
        end = End(text(owed.fields["ended"]))
        return endings.ended(owed.fields["job"], end, failures.decode(owed.fields.get("failure", b"")), now_ms)
    except (KeyError, ValueError):
        raise BadEnvelope(f"The entry {owed.entry} of an outbox is none of ours.") from None


# -- batches ---------------------------------------------------------------------------------------------------------


def place(scope: Scope, batch: str) -> Scope:
    """Where a batch lives: a slot of its own."""
    return Scope(scope.options, f"batch:{batch}", scope.now_ms)


class Opened(NamedTuple):
    """`answer`: opened, sealed (it was there, with all its members), taken, added, unknown, finished or cancelled."""

    answer: str
    added: int


def batch_open(
    scope: Scope, plan: bytes, members: Sequence[tuple[str, str]], *, allow: bool = False, origin: str = ""
) -> Call[Opened]:
    """Begin a batch (`plan` b'': let it have more), with members as (id, queue). `scope` is the batch's place."""
    args: list[Argument] = [scope.now, plan, "1" if allow else "0", origin, *chain.from_iterable(members)]
    return call("batch_open", scope, args, lambda reply: Opened(text(reply[0]), int(reply[1])))


class Told(NamedTuple):
    """What became of a member; or `JOINED` and its queue: it is one from now on. `retried`, `spared` as in `Chain`."""

    member: str
    word: str
    retried: int = 0
    spared: int = 0


def told_by(note: Note) -> list[Told]:
    """What a note says."""
    words = [*((member, f"{JOINED}{queue}") for member, queue in note.joined), *note.members]
    return [Told(member, word, note.retried, note.spared) for member, word in words]


class Counted(NamedTuple):
    """Where a member is, as its batch keeps it: its queue ('' = a batch), and how often it was retried by hand."""

    queue: str
    retried: int = 0


def counted(raw: bytes) -> Counted:
    """What a batch keeps of a member."""
    queue, _, retried = text(raw).partition(" ")
    return Counted(queue, whole(retried.encode()) or 0)


class Standing(NamedTuple):
    """A batch as it stands, and what is `due` because of it.

    Due may be: resumed, progress, cancel, catch, finally, then, stopped, onward. `round` counts how often it was taken
    up again after a failure, `cancels` how often it was cancelled; `failed_round` is the one of the failure to catch.
    """

    plan: bytes
    pending: int
    done: int
    failed: int
    skipped: int
    round: int
    created_ms: int
    cancelled_ms: int | None
    finished_ms: int | None
    due: tuple[str, ...]
    cancels: int = 0
    failed_round: int = 0

    @property
    def ended(self) -> int:
        """Members that have ended, however they did."""
        return self.done + self.failed + self.skipped

    @property
    def word(self) -> Word | None:
        """What a batch in a batch is to the outer one once both are cancelled; None while members of it run."""
        if self.finished_ms is None:
            return None
        if self.failed:
            return Word.FAILED
        return Word.SKIPPED if self.skipped else Word.DONE


def batch_note(
    scope: Scope, members: Sequence[Told] = (), *, seal: bool = False, cancel: bool = False
) -> Call[Standing | None]:
    """Write down what became of members; None for a batch that is not there."""
    keep_ms = scope.options.keep_failed_ms
    args: list[Argument] = [scope.now, "1" if seal else "0", "1" if cancel else "0", KEEP_BATCH_MS, keep_ms]
    for told in members:
        args += told
    return call("batch_note", scope, args, _standing)


def _standing(reply: list[Any]) -> Standing | None:
    if reply[0] == 0:
        return None
    _, plan, pending, done, failed, skipped, rounds, created, cancelled, finished, cancels, caught, *due = reply
    counts = (int(pending), int(done), int(failed), int(skipped), int(rounds))
    times = (number(created) or 0, number(cancelled), number(finished))
    return Standing(plan, *counts, *times, tuple(map(text, due)), int(cancels), int(caught))


def batch_told(scope: Scope, names: Sequence[str], standing: Standing) -> Call[bool]:
    """What was due of a batch that stood so has been sent."""
    args: list[Argument] = [standing.round]
    far = {"cancel": standing.cancels, "catch": standing.failed_round}
    for name in names:
        args += (name, far.get(name, standing.ended))
    return call("batch_told", scope, args, lambda reply: bool(reply == 1))
