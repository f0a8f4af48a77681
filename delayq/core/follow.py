"""What follows when a job ends: the next link of its chain, the jobs that catch its failure, a note to its batch.

Pure: an envelope and its end go in, follow-ups come out. The script that settles the job writes them, so that a job's
end and what follows are one step; a relay carries on those that belong to other queues.

A link is one element of a chain: a job, or a whole batch. Ids are made when the chain is built, so every follow-up has
the same id however often it is carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import BadEnvelope

OWED_MS: Final = 6 * 24 * 3_600_000
"""A follow-up whose first sending is longer ago than this is reported instead of sent again."""
ONCE_MS: Final = 7 * 24 * 3_600_000
"""How long Redis remembers that a follow-up was sent; longer than one may be under way."""


FAILED_HEADER: Final = "delayq-failed-"
"""What the headers start with that tell a job which other one failed: id, queue, error (its type), message."""


class End(StrEnum):
    """How a job, or a batch, ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Word(StrEnum):
    """What a note says of a batch's member."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It will not run: cancelled, or behind a link that failed."""
    PENDING = "pending"
    """It runs again."""


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job or a batch whose turn comes later. `delay_ms` counts from then, as do both limits."""

    job: msgspec.Raw = ABSENT
    batch: Plan | None = None
    delay_ms: int = 0
    deadline_after_ms: int | None = None
    retry_until_after_ms: int | None = None

    @property
    def id(self) -> str:
        """Of its job or batch."""
        return self.batch.id if self.batch is not None else envelopes.decode(self.job).id


class Chain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a link carries of its chain: the links after it, and the jobs told when one fails."""

    id: str
    next: list[Link] = msgspec.field(default_factory=list)
    catch: list[Link] = msgspec.field(default_factory=list)


class Callbacks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs a batch sends as it goes along."""

    before: list[Link] = msgspec.field(default_factory=list)
    progress: list[Link] = msgspec.field(default_factory=list)
    then: list[Link] = msgspec.field(default_factory=list)
    catch: list[Link] = msgspec.field(default_factory=list)
    finally_: list[Link] = msgspec.field(default_factory=list, name="finally")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch. `chain` and `batch` are those it is itself a part of, `owner` is who built it: user@host/pid."""

    id: str
    name: str = ""
    owner: str = ""
    members: list[Link] = msgspec.field(default_factory=list)
    allow_failures: bool = False
    callbacks: Callbacks = Callbacks()
    chain: Chain | None = None
    batch: str | None = None


class Send(msgspec.Struct, frozen=True, tag="send"):
    """A job to schedule."""

    queue: str
    id: str
    envelope: msgspec.Raw
    delay_ms: int = 0
    unique: str = ""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """A batch to begin."""

    plan: Plan


class Note(msgspec.Struct, frozen=True, tag="note"):
    """What became of members of a batch."""

    batch: str
    members: list[tuple[str, Word]]


FollowUp = Send | Open | Note
Todo = list[FollowUp]

_encode = msgspec.json.Encoder().encode
_decode_todo = msgspec.json.Decoder(Todo).decode
_decode_chain = msgspec.json.Decoder(Chain).decode
_decode_batch = msgspec.json.Decoder(str).decode
_decode_plan = msgspec.json.Decoder(Plan).decode


class Part(msgspec.Struct, frozen=True):
    """What an envelope or a batch says of the chain and the batch it is a part of."""

    id: str
    chain: Chain | None
    batch: str | None


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
    try:
        batch = None if envelope.batch is ABSENT else _decode_batch(envelope.batch)
    except msgspec.MsgspecError as error:
        raise BadEnvelope(f"What follows the job {envelope.id} cannot be read: {error}.") from None
    return Part(envelope.id, chain, batch)


def follow_ups(part: Part, end: End, now_ms: int, headers: dict[str, str] | None = None) -> Todo:
    """What follows `end`. `headers` tell the jobs that catch a failure what failed."""
    todo: Todo = []
    rest = part.chain.next if part.chain is not None else []
    if part.batch is not None:
        todo.append(Note(part.batch, _words(part.id, end, rest)))
    if part.chain is None:
        return todo
    if end is End.DONE and rest:
        todo.append(_launch(rest[0], msgspec.structs.replace(part.chain, next=rest[1:]), now_ms))
    elif end is End.FAILED:
        todo += (launch(link, now_ms, headers) for link in part.chain.catch)
    return todo


def restarted(raw: bytes) -> Todo:
    """What a batch must hear when a failed member, and so the links behind it, may run after all."""
    try:
        part = part_of(raw)
    except BadEnvelope:
        return []  # nobody can say what followed it; it may be tried again all the same
    return [] if part is None else taken_up(part)


def taken_up(part: Part) -> Todo:
    """As `restarted`, of a part."""
    if part.batch is None:
        return []
    rest = part.chain.next if part.chain is not None else []
    return [Note(part.batch, [(part.id, Word.PENDING), *((link.id, Word.PENDING) for link in rest)])]


def batch_id(envelope: Envelope) -> str | None:
    """The batch a job is a member of; None for one that is in none, or whose batch cannot be read."""
    try:
        return None if envelope.batch is ABSENT else _decode_batch(envelope.batch)
    except msgspec.MsgspecError:
        return None


def _words(job_id: str, end: End, rest: Sequence[Link]) -> list[tuple[str, Word]]:
    """A link that ends otherwise than well takes along those that would have come after it."""
    word = {End.DONE: Word.DONE, End.FAILED: Word.FAILED, End.CANCELLED: Word.SKIPPED}[end]
    words = [(job_id, word)]
    return words if end is End.DONE else words + [(link.id, Word.SKIPPED) for link in rest]


def _launch(link: Link, chain: Chain, now_ms: int) -> FollowUp:
    """A link whose turn has come, with what is left of its chain."""
    kept = chain if chain.next or chain.catch else None
    if link.batch is not None:
        return Open(msgspec.structs.replace(link.batch, chain=kept))
    return _send(link, now_ms, chain=kept)


def launch(link: Link, now_ms: int, headers: dict[str, str] | None = None) -> FollowUp:
    """A link that belongs to no chain."""
    if link.batch is not None:
        return Open(link.batch)
    return _send(link, now_ms, headers=headers)


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


# -- on the wire -----------------------------------------------------------------------------------------------------


def encode_todo(todo: Sequence[FollowUp]) -> bytes:
    """Follow-ups as an outbox carries them; b'' for none."""
    return _encode(list(todo)) if todo else b""


def decode_todo(raw: bytes) -> Todo:
    """The follow-ups again. Raises `BadEnvelope`."""
    try:
        return _decode_todo(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"These follow-ups cannot be read: {error}.") from None


def encode_chain(chain: Chain) -> msgspec.Raw:
    """A chain as an envelope carries it."""
    return msgspec.Raw(_encode(chain))


def encode_membership(batch: str) -> msgspec.Raw:
    """The id of a batch as an envelope carries it."""
    return msgspec.Raw(_encode(batch))


def decode_chain(raw: bytes) -> Chain:
    """A chain again. Raises `BadEnvelope`."""
    try:
        return _decode_chain(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"This chain cannot be read: {error}.") from None


def encode_plan(plan: Plan) -> bytes:
    """A batch as its `meta` keeps it: without its members, which are on their way."""
    return _encode(msgspec.structs.replace(plan, members=[]))


def decode_plan(raw: bytes) -> Plan:
    """A batch again. Raises `BadEnvelope`."""
    try:
        return _decode_plan(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"This batch cannot be read: {error}.") from None
