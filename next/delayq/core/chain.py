"""Chains and batches as JSON: the links that an envelope carries, and the plan of a batch.

A chain is a list of links that run one after the other. The envelope of a job has two JSON members for this: `chain`
has the links after the job, and `batch` names the batch of the job. So everything that follows a job is stored together
with the job, and the relay needs only the envelope of an ended job to send the next job.

A program gives no ids to links. The id of each link is made once, when the chain is built, so that a link that is sent
twice is stored once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT, Span
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import JobSpec, NewJob, prepare
from delayq.core.options import Options
from delayq.core.times import duration_ms, is_instant
from delayq.core.unique import to_take

MAX_CHAIN_BYTES: Final = 1_000_000
"""Maximum size of the JSON of a chain. Each job of a chain carries all links after it."""

MAX_MEMBERS: Final = 100_000
"""Maximum number of members when a batch is dispatched, and in one call that adds members."""

MAX_BATCH_IN_CHAIN: Final = 1_000
"""Maximum number of members of a batch that is a link of a chain."""


class Link(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One link of a chain: a job or a batch.

    `job`: the envelope of the job; absent if the link is a batch. `delay_ms` counts from the turn of the link: the time
    at which the previous link ended. `deadline_ms`, `retry_until_ms`: time limits in ms, counted from the due time.
    """

    job: msgspec.Raw = ABSENT
    delay_ms: Span = 0
    deadline_ms: Span | None = None
    retry_until_ms: Span | None = None
    batch: "BatchPlan | None" = None


class Chain(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The links that are still to come, and the jobs to send if a link fails for good."""

    links: Sequence[Link] = ()
    catch: Sequence[Link] = ()


class BatchPlan(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A batch: its members, and the jobs to send at the events of the batch.

    `members`: one chain for each member; a member that is a single job is a chain of one link. The record of a started
    batch has no `members`, because the first job of each member is sent at the start. A batch that is still a link of a
    chain has its members. `after`: the rest of the chain that contains the batch.
    """

    id: str
    name: str = ""
    allow_failures: bool = False
    members: Sequence[Chain] = ()
    before: Sequence[Link] = ()
    then: Sequence[Link] = ()
    catch: Sequence[Link] = ()
    finally_: Sequence[Link] = ()
    after: Chain | None = None


class Membership(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The batch of a job, as its envelope names it.

    `member`: the id of the member, which is the id of its first job; '' for a callback of the batch.
    """

    id: str
    member: str = ""


_encode: Final = msgspec.json.Encoder().encode
_decode_chain: Final = msgspec.json.Decoder(Chain).decode
_decode_plan: Final = msgspec.json.Decoder(BatchPlan).decode
_decode_membership: Final = msgspec.json.Decoder(Membership).decode


def link_of(spec: JobSpec, options: Options, now_ms: int, *, job_id: str | None = None) -> Link:
    """Return the link of a job; raises InvalidInput. `job_id`: the id of the job; None = a new id."""
    if spec.id is not None:
        raise InvalidInput(
            f"The job {spec.name!r} is part of a chain or batch, and has the id {spec.id!r}.",
            hint="Leave out id=: chains and batches make the ids of their jobs.",
            field="id",
        )
    if spec.at is not None:
        raise InvalidInput(
            f"The job {spec.name!r} is part of a chain or batch, and has the due time {spec.at}.",
            hint="Use delay=, which counts from the turn of the job.",
            field="at",
        )
    limits: dict[str, Any] = {
        field: value
        for field in ("deadline", "retry_until")
        if (value := getattr(spec, field)) is not None and not is_instant(value)
    }
    bare = msgspec.structs.replace(spec, id=job_id, delay=None, **dict.fromkeys(limits))
    after_ms = {field: duration_ms(value, field=field) for field, value in limits.items()}
    return Link(
        job=msgspec.Raw(prepare(bare, options, now_ms).envelope),
        delay_ms=0 if spec.delay is None else duration_ms(spec.delay),
        deadline_ms=after_ms.get("deadline"),
        retry_until_ms=after_ms.get("retry_until"),
    )


def job_of(
    link: Link,
    *,
    now_ms: int,
    when: str | None = None,
    chain: Chain | None = None,
    batch: Membership | None = None,
    headers: Mapping[str, str] | None = None,
) -> NewJob:
    """Return the job of a link, whose turn is at `now_ms`.

    `when`: the due time for `schedule.lua`, as '+ms' or epoch ms; None = the turn plus the delay of the link. `chain`:
    the links that follow. `batch`: the batch of the job. `headers` are added to the headers of the link.

    The same link and turn always give the same job, because a relay may have to send the job twice. Raises
    UnreadableEnvelope.
    """
    due_ms = now_ms + link.delay_ms
    changes: dict[str, Any] = {"created_ms": now_ms}
    if link.deadline_ms is not None:
        changes["deadline_ms"] = due_ms + link.deadline_ms
    if link.retry_until_ms is not None:
        changes["retry_until_ms"] = due_ms + link.retry_until_ms
    if chain is not None and (chain.links or chain.catch):
        changes["chain"] = chain
    if batch is not None:
        changes["batch"] = batch
    envelope = envelopes.decode(bytes(link.job))
    if headers:
        changes["headers"] = {**(envelope.headers or {}), **headers}
    raw = envelopes.rewrite(bytes(link.job), **changes)
    return NewJob(
        envelope.id,
        envelope.name,
        envelope.queue,
        raw,
        str(due_ms) if when is None else when,
        has_own_id=False,
        lock=to_take(envelope.unique),
    )


def id_of(link: Link) -> str:
    """Return the id of the job or batch of a link."""
    return link.batch.id if link.batch is not None else envelopes.decode(bytes(link.job)).id


def name_of(link: Link) -> str:
    """Return the name of the job or batch of a link. A batch of 3 without a name is named 'batch of 3'."""
    if link.batch is not None:
        return link.batch.name or f"batch of {len(link.batch.members)}"
    return envelopes.decode(bytes(link.job)).name


def places_of_members(plan: BatchPlan) -> list[tuple[str, str]]:
    """Return a row for each member, as `batch_open.lua` gets it.

    The row has the id of the member, and a text such as "orders 3": the queue of its first job, and how many links the
    member has.
    """
    firsts = [envelopes.decode(bytes(member.links[0].job)) for member in plan.members]
    return [
        (first.id, f"{first.queue} {len(member.links)}") for first, member in zip(firsts, plan.members, strict=True)
    ]


def without_members(plan: BatchPlan) -> BatchPlan:
    """Return the plan as Redis stores it."""
    return msgspec.structs.replace(plan, members=())


def read_chain(raw: msgspec.Raw) -> Chain:
    """Read the member `chain` of an envelope. Raises msgspec.MsgspecError."""
    return Chain() if raw is ABSENT else _decode_chain(raw)


def read_membership(raw: msgspec.Raw) -> Membership | None:
    """Read the member `batch` of an envelope. Raises msgspec.MsgspecError."""
    return None if raw is ABSENT else _decode_membership(raw)


def read_plan(raw: bytes) -> BatchPlan:
    """Read the plan that Redis stores of a batch. Raises msgspec.MsgspecError."""
    return _decode_plan(raw)


def encode(value: Chain | BatchPlan) -> bytes:
    """Return the JSON of a chain or plan."""
    return _encode(value)


def check_size(chain: Chain, *, what: str = "links of the chain", field: str = "chain") -> Chain:
    """Return the chain if its JSON is not too long; else raise InvalidInput. `what`: how the message names the jobs."""
    size = len(_encode(chain))
    if size > MAX_CHAIN_BYTES:
        raise InvalidInput(
            f"The {what} have {size:,} bytes; the limit is {MAX_CHAIN_BYTES:,}.",
            hint="Send shorter payloads or fewer jobs. The last job can dispatch others.",
            field=field,
        )
    return chain
