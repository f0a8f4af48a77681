"""What follows when a job ends: the next link of its chain, the jobs that catch its failure, a note to its batch.

Pure: an envelope and its end go in, follow-ups come out. The script that settles the job writes them, so that a job's
end and what follows are one step; a relay carries on those that belong to other queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT, MOST_LETTERS, Envelope
from delayq.core.errors import BadEnvelope
from delayq.core.followups import (
    Chain,
    End,
    FollowUp,
    Link,
    Note,
    Open,
    Plan,
    Send,
    Todo,
    Word,
    decode_chain,
    decode_membership,
)

OWED_MS: Final = 6 * 24 * 3_600_000
"""A follow-up whose first sending is longer ago than this is reported instead of sent again."""
ONCE_MS: Final = 7 * 24 * 3_600_000
"""How long Redis remembers that a follow-up was sent; longer than one may be under way."""


FAILED_HEADER: Final = "delayq-failed-"
"""What the headers start with that tell a job which other one failed: id, queue, error (its type), message."""


class Part(msgspec.Struct, frozen=True):
    """What an envelope or a batch says of the chain and the batch it is a part of."""

    id: str
    chain: Chain | None
    batch: str | None
    joined: tuple[tuple[str, str], ...] = ()
    """Links that its handler put behind it, as (id, queue), when it is in a batch."""

    @property
    def rest(self) -> list[Link]:
        """The links behind it."""
        return self.chain.next if self.chain is not None else []

    @property
    def retried(self) -> int:
        """How often it, or one before it in its chain, was retried by hand."""
        return self.chain.retried if self.chain is not None else 0

    @property
    def spared(self) -> int:
        """So many cancels of its batch do not hold for it: it was retried after them."""
        return self.chain.spared if self.chain is not None else 0


def linked(envelope: Envelope) -> bool:
    """Whether anything follows the end of this job."""
    return envelope.chain is not ABSENT or envelope.batch is not ABSENT


def part_of(raw: bytes) -> Part | None:
    """The part a job has; None for one that nothing follows. Raises `BadEnvelope`."""
    if b'"chain":' not in raw and b'"batch":' not in raw:
        return None
    return part_of_envelope(envelopes.decode(raw))


def part_of_envelope(envelope: Envelope) -> Part | None:
    """As `part_of`, of an envelope that was read already."""
    if not linked(envelope):
        return None
    chain = None if envelope.chain is ABSENT else decode_chain(envelope.chain)
    return Part(envelope.id, chain, None if envelope.batch is ABSENT else decode_membership(envelope.batch))


def readable_part(envelope: Envelope) -> Part | None:
    """As `part_of_envelope`; None also when it cannot be read."""
    try:
        return part_of_envelope(envelope)
    except BadEnvelope:
        return None


def batch_id(envelope: Envelope) -> str | None:
    """The batch a job is a member of; None for one that is in none, or whose batch cannot be read."""
    part = readable_part(envelope)
    return part.batch if part is not None else None


def part_of_batch(plan: Plan, rounds: int) -> Part:
    """The part a batch has that was taken up again so often: each time is a retry to those it is a part of."""
    chain = plan.chain or Chain(id=plan.id)
    return Part(plan.id, msgspec.structs.replace(chain, retried=chain.retried + rounds), plan.batch)


def follow_ups(part: Part, end: End, now_ms: int, headers: dict[str, str] | None = None) -> Todo:
    """What follows `end`. `headers` tell the jobs that catch a failure what failed."""
    todo: Todo = [note for note in [note_of(part, end)] if note is not None]
    if part.chain is None:
        return todo
    if end is End.DONE and part.rest:
        todo.append(_launch_next(part, part.chain, now_ms))
    elif end is End.FAILED:
        todo += (launch(link, now_ms, headers, round_of(part.retried)) for link in part.chain.catch)
    return todo


def note_of(part: Part, end: End) -> Note | None:
    """What its batch hears of that end; None for what is in no batch."""
    if part.batch is None:
        return None
    words = _words(part, end)
    return Note(part.batch, words, part.retried, part.spared, list(part.joined))


def grown(part: Part, chain: Chain) -> Part:
    """A part whose handler made its chain another one: a batch hears of the links that are new."""
    new = dict(ids_of(chain.next)) if part.batch is not None else {}
    for known, _ in ids_of(part.rest) if new else ():
        new.pop(known, None)
    return Part(part.id, chain, part.batch, tuple(new.items()))


def joining(todo: Iterable[FollowUp]) -> list[Note]:
    """What batches must hear before any job of this is sent: one that they do not know yet may end at once."""
    return [item for item in todo if isinstance(item, Note) and item.joined]


def _words(part: Part, end: End) -> list[tuple[str, Word]]:
    """A link that ends otherwise than well takes along those that would have come after it.

    One that was retried and ends well says first that those behind it run after all: so its batch is never without
    anything to wait for, in whatever order it hears of a retry and of what came of it.
    """
    if end is End.DONE:
        return [*((link.id, Word.PENDING) for link in part.rest if part.retried), (part.id, Word.DONE)]
    word = Word.FAILED if end is End.FAILED else Word.SKIPPED
    return [(part.id, word), *((link.id, Word.SKIPPED) for link in part.rest)]


def retried(part: Part, cancels: int) -> Part:
    """The part of a job that failed and runs again; its batch had been cancelled so often by then."""
    chain = part.chain or Chain(id=part.id)
    return Part(part.id, msgspec.structs.replace(chain, retried=chain.retried + 1, spared=cancels), part.batch)


def taken_up(part: Part) -> Todo:
    """What a batch must hear when a member that was retried, and so the links behind it, run after all."""
    if part.batch is None:
        return []
    words = [(part.id, Word.PENDING), *((link.id, Word.PENDING) for link in part.rest)]
    return [Note(part.batch, words, part.retried, part.spared)]


def restarted(raw: bytes) -> Todo:
    """As `taken_up`, where a retry and its note are one transaction: nothing is heard late, so nothing is numbered."""
    try:
        part = part_of(raw)
    except BadEnvelope:
        return []  # nobody can say what followed it; it may be tried again all the same
    return [] if part is None else taken_up(part)


def round_of(rounds: int) -> str:
    """What the ids of jobs end in that are sent once in every round; '' in the first."""
    return f".r{rounds}" if rounds else ""


def _launch_next(part: Part, chain: Chain, now_ms: int) -> FollowUp:
    """The link whose turn has come, with what is left of its chain."""
    link, chain = chain.next[0], msgspec.structs.replace(chain, next=chain.next[1:])
    kept = chain if chain.next or chain.catch or (chain.retried and part.batch is not None) else None
    if link.batch is not None:
        return Open(msgspec.structs.replace(link.batch, chain=kept))
    return _send(link, now_ms, chain=kept)


def launch(link: Link, now_ms: int, headers: dict[str, str] | None = None, ending: str = "") -> FollowUp:
    """A link that belongs to no chain. `ending` makes another job of one that is sent more than once."""
    if link.batch is not None:
        return Open(link.batch)
    job = _send(link, now_ms, headers=headers)
    return renamed(job, ending) if ending else job


def renamed(job: Send, ending: str) -> Send:
    """The same under an id of its own. One that is encrypted keeps its id, because a seal holds for one."""
    if envelopes.decode(job.envelope).encrypted is not ABSENT:
        return job
    own_id = job.id + ending
    if len(own_id) > MOST_LETTERS:
        own_id = hashlib.sha256(own_id.encode()).hexdigest()
    raw = msgspec.Raw(envelopes.rewrite(bytes(job.envelope), id=own_id))
    return msgspec.structs.replace(job, id=own_id, envelope=raw)


def _send(link: Link, now_ms: int, *, chain: Chain | None = None, headers: dict[str, str] | None = None) -> Send:
    envelope = envelopes.decode(link.job)
    due_ms = now_ms + link.delay_ms
    changes: dict[str, Any] = {"created_ms": now_ms}
    if chain is not None:
        changes["chain"] = chain
    if headers:
        changes["headers"] = {**(envelope.headers or {}), **headers}
    if link.deadline_after_ms is not None:
        changes["deadline_ms"] = due_ms + link.deadline_after_ms
    if link.retry_until_after_ms is not None:
        changes["retry_until_ms"] = due_ms + link.retry_until_after_ms
    raw = msgspec.Raw(envelopes.rewrite(link.job, **changes))
    return Send(envelope.queue, envelope.id, raw, link.delay_ms, envelope.unique or "")


def ids_of(members: Iterable[Link]) -> list[tuple[str, str]]:
    """Every member a batch counts, as (id, queue): each link of a chain is one, and a batch in a batch is one."""
    counted = []
    for link in members:
        if link.batch is not None:
            chain, own = link.batch.chain, (link.batch.id, "")
        else:
            envelope = envelopes.decode(link.job)
            part = part_of_envelope(envelope)
            chain, own = (part.chain if part else None), (envelope.id, envelope.queue)
        counted += [own, *ids_of(chain.next if chain else ())]
    return counted


class Placed(NamedTuple):
    """A job that is a member: its id, its queue, and the batch that counts it."""

    id: str
    queue: str
    batch: str


def jobs_of(batch: str, members: Iterable[Link]) -> Iterator[Placed]:
    """Every job that is a member of a batch, or of a batch in it."""
    for link in members:
        if link.batch is not None:
            chain = link.batch.chain
            yield from jobs_of(link.batch.id, link.batch.members)
        else:
            envelope = envelopes.decode(link.job)
            part = part_of_envelope(envelope)
            chain = part.chain if part else None
            yield Placed(envelope.id, envelope.queue, batch)
        yield from jobs_of(batch, chain.next if chain else ())


def plans_of(members: Iterable[Link]) -> Iterator[Plan]:
    """Every batch that is a member, or in a batch that is one."""
    for link in members:
        if link.batch is not None:
            chain = link.batch.chain
            yield link.batch
            yield from plans_of(link.batch.members)
        else:
            part = part_of_envelope(envelopes.decode(link.job))
            chain = part.chain if part else None
        yield from plans_of(chain.next if chain else ())
