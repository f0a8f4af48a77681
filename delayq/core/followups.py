"""What follows the end of a job, as it travels: links of a chain, plans of batches, and what a relay is to carry.

A link is one element of a chain: a job, or a whole batch. Ids are made when the chain is built, so every follow-up has
the same id however often it is carried.

A member of a batch, and a link of a chain, may be retried by hand after it failed. What is told of it says how often
that was (`retried`), so that word of an earlier time, which comes late or twice, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT, Number, Span
from delayq.core.errors import BadEnvelope


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
    delay_ms: Span = 0
    deadline_after_ms: Span | None = None
    retry_until_after_ms: Span | None = None

    @property
    def id(self) -> str:
        """Of its job or batch."""
        return self.batch.id if self.batch is not None else envelopes.decode(self.job).id


class Chain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a link carries of its chain: the links after it, and the jobs told when one fails.

    `retried`: how often it, or a link before it, was retried by hand after it had failed; `spared`: how often its batch
    had been cancelled by then. A member of a batch that was retried carries both, also when it is in no chain.
    """

    id: str
    next: list[Link] = msgspec.field(default_factory=list)
    catch: list[Link] = msgspec.field(default_factory=list)
    retried: Number = 0
    spared: Number = 0


class Callbacks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs a batch sends as it goes along."""

    before: list[Link] = msgspec.field(default_factory=list)
    progress: list[Link] = msgspec.field(default_factory=list)
    then: list[Link] = msgspec.field(default_factory=list)
    catch: list[Link] = msgspec.field(default_factory=list)
    finally_: list[Link] = msgspec.field(default_factory=list, name="finally")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch. `chain` and `batch` are those it is itself a part of, `owner` is who built it: user@host/pid.

    `link_of`: the chain it was built in, which its `chain`, the rest of that, does not tell of a last link.
    """

    id: str
    name: str = ""
    owner: str = ""
    members: list[Link] = msgspec.field(default_factory=list)
    allow_failures: bool = False
    callbacks: Callbacks = Callbacks()
    chain: Chain | None = None
    batch: str | None = None
    link_of: str = ""

    @property
    def origin(self) -> str:
        """What tells it from another one of the same id; '' for one that was dispatched by itself."""
        return f"{self.batch or ''} {self.link_of}".strip()


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


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Members for a batch that goes on."""

    batch: str
    members: list[Link]


class Note(msgspec.Struct, frozen=True, tag="note", omit_defaults=True):
    """What became of members of a batch. `retried` and `spared` are theirs, as in `Chain`.

    `joined`: links that one of them put behind itself; they are members too, before anything else of this is heard.
    Each is (id, queue), with '' for a batch.
    """

    batch: str
    members: list[tuple[str, Word]]
    retried: int = 0
    spared: int = 0
    joined: list[tuple[str, str]] = msgspec.field(default_factory=list)


FollowUp = Send | Open | Add | Note
Todo = list[FollowUp]

_encode = msgspec.json.Encoder().encode
_decode_todo = msgspec.json.Decoder(Todo).decode
_decode_chain = msgspec.json.Decoder(Chain).decode
_decode_batch = msgspec.json.Decoder(str).decode
_decode_plan = msgspec.json.Decoder(Plan).decode


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


def encode_link(link: Link) -> bytes:
    """One link as it travels."""
    return _encode(link)


def encode_chain(chain: Chain) -> msgspec.Raw:
    """A chain as an envelope carries it."""
    return msgspec.Raw(_encode(chain))


def encode_membership(batch: str) -> msgspec.Raw:
    """The id of a batch as an envelope carries it."""
    return msgspec.Raw(_encode(batch))


def decode_membership(raw: bytes) -> str:
    """The id of a batch again. Raises `BadEnvelope`."""
    try:
        return _decode_batch(raw)
    except msgspec.MsgspecError as error:
        raise BadEnvelope(f"The batch of a job cannot be read: {error}.") from None


def decode_chain(raw: bytes) -> Chain:
    """A chain again, whose links that may be sent next are readable too. Raises `BadEnvelope`."""
    try:
        chain = _decode_chain(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"This chain cannot be read: {error}.") from None
    for link in (*chain.next[:1], *chain.catch):
        if link.batch is None:
            _check_job(link.job)
    return chain


def _check_job(raw: bytes) -> None:
    if not raw:
        raise BadEnvelope("A link of this chain has neither a job nor a batch.")
    try:
        envelopes.decode(raw)
    except BadEnvelope as error:
        said = error.message[:1].lower() + error.message[1:]
        raise BadEnvelope(f"A link of this chain cannot be read: {said}") from None


def encode_plan(plan: Plan) -> bytes:
    """A batch as its `meta` keeps it: without its members, which are on their way."""
    return _encode(msgspec.structs.replace(plan, members=[]))


def decode_plan(raw: bytes) -> Plan:
    """A batch again. Raises `BadEnvelope`."""
    try:
        return _decode_plan(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"This batch cannot be read: {error}.") from None
