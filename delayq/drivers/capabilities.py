"""What a backend can do, as a value that each driver declares; and the one place that refuses what it cannot.

    declare    CAPABILITIES = Capabilities(delay=True, ids=False, …)     a constant of each driver's module
    refuse     refuse_spec(…) before a job is prepared, refuse_job(…) before it is sent

Nothing is left out silently: a wish that a backend cannot keep is one clear sentence, and nothing was sent. The table
in docs/connections.md is made from these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from delayq.core import envelope as envelopes
from delayq.core import followups
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import BadEnvelope, InvalidInput, InvalidPayload
from delayq.core.followups import Chain, Link, Plan
from delayq.core.names import made_here
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.core.when import format_duration

LINK_WAITS: Final = "lets no link of a chain wait for its unique key, and one has one"
ELSEWHERE: Final = "Send it over a connection to Redis: on_connection(…)."
ALSO_DATABASE: Final = "Send it over a connection to Redis or to a database: on_connection(…)."
"""Where also a connection whose driver is `database` would do."""


Why: TypeAlias = tuple[str, str]
"""What a connection cannot do, and the next step."""


class Keeper(StrEnum):
    """Who can keep the lease of a job that runs.

    steward: any process that knows the claim, so the supervisor does, whatever the handler does.
    holder: only the connection that reserved it, so a thread of the child does.
    nobody: the backend delivers it again after a time of its own, whether the job still runs or not.
    """

    STEWARD = "steward"
    HOLDER = "holder"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a connection's backend can do. The defaults are what the poorest one can: take a job, and nothing else.

    serves          a worker can serve it
    durable         what it took is there after a crash of the producer
    delay           a job waits for its time; `max_delay_ms` at most (None = as long as delayq allows)
    ids             an id is taken as long as its job is there, so on_conflict keep and error mean something
    replace         on_conflict replace and postpone
    cancel, reschedule, run_now     of a job that waits, by its id
    unique          unique keys and debounced jobs
    inspect         jobs can be shown and listed; counts: queues tell how long they are
    wait            a job is found by its id also while it runs, so its end can be waited for
    clear           waiting jobs can be removed all at once
    chains          what follows a job is sent when it ends; batches: it keeps batches
    links_wait      a link of a chain may have a unique key, and waits until that is free
    limits          jobs can ask for places and rates
    pause           queues can be paused and workers told to rest or restart
    retention       finished jobs and results are kept
    progress        running jobs can tell how far they are
    transactional   jobs can be written in the sender's own database transaction
    own_failed      it keeps failed jobs itself, in the step that ends them; else they go to a `FailedStore`
    max_bytes       the largest job as it travels, envelope and all (None = only DELAYQ_MAX_PAYLOAD counts)
    resolution_ms   how exactly a time is kept; a job never starts before it
    mover           workers run a mover and a janitor beside them
    recoveries      vanished workers are counted, so that a job that kills its process fails in the end
    reads_count     every reading is an attempt, also that of a worker that vanished, as in Laravel
    keeper          who keeps leases; prefetch: how many deliveries one read may bring
    """

    serves: bool = True
    durable: bool = True
    delay: bool = False
    max_delay_ms: int | None = None
    ids: bool = False
    replace: bool = False
    cancel: bool = False
    reschedule: bool = False
    run_now: bool = False
    unique: bool = False
    inspect: bool = False
    wait: bool = False
    counts: bool = False
    clear: bool = False
    chains: bool = False
    batches: bool = False
    links_wait: bool = False
    limits: bool = False
    pause: bool = False
    retention: bool = False
    progress: bool = False
    transactional: bool = False
    own_failed: bool = False
    max_bytes: int | None = None
    resolution_ms: int = 1
    mover: bool = False
    recoveries: bool = False
    reads_count: bool = False
    keeper: Keeper = Keeper.NOBODY
    prefetch: int = 1


def refuse_spec(spec: JobSpec, on_conflict: OnConflict, can: Capabilities, connection: str) -> None:
    """Raises `InvalidInput` for a job that asks for more than its connection can do. Nothing was sent."""
    for why, hint in _wishes(spec, on_conflict, can):
        raise InvalidInput(f"The connection {connection!r} {why}, so the job {spec.name!r} cannot go there.", hint=hint)


def refuse_job(raw: bytes, delay_ms: int, can: Capabilities, connection: str) -> None:
    """Raises `InvalidInput` or `InvalidPayload` for a prepared job that this connection cannot carry.

    Also one that came as an envelope and never was a spec.
    """
    if can.max_bytes is not None and len(raw) > can.max_bytes:
        raise InvalidPayload(
            f"The job has {len(raw):,} bytes as it travels; the connection {connection!r} takes {can.max_bytes:,}.",
            hint="Store the payload elsewhere and send a reference.",
        )
    if delay_ms > 0 and not can.delay:
        raise InvalidInput(f"The connection {connection!r} cannot hold a job until its time comes.", hint=ALSO_DATABASE)
    if can.max_delay_ms is not None and delay_ms > can.max_delay_ms:
        most, given = format_duration(can.max_delay_ms), format_duration(delay_ms)
        raise InvalidInput(
            f"The connection {connection!r} can hold a job for {most} at most, and this one is due in {given}.",
            hint=ALSO_DATABASE,
        )
    envelope = envelopes.decode(raw)
    for why, hint in _linked(envelope, can):
        raise InvalidInput(
            f"The connection {connection!r} {why}, so the job {envelope.name!r} cannot go there.", hint=hint
        )
    for link in _links(followups.decode_chain(envelope.chain)) if envelope.chain is not ABSENT else ():
        if link.batch is not None:
            refuse_plan(link.batch, can, connection)


def refuse_plan(plan: Plan, can: Capabilities, connection: str) -> None:
    """As `refuse_job`, of all that a batch is made of: members, what follows them, callbacks, batches in it."""
    callbacks = plan.callbacks
    called = (callbacks.before, callbacks.progress, callbacks.then, callbacks.catch, callbacks.finally_)
    follow_up = [*(link for links in called for link in links), *(_links(plan.chain) if plan.chain else ())]
    for link in (*plan.members, *follow_up):
        if link.batch is not None:
            refuse_plan(link.batch, can, connection)
            continue
        refuse_job(bytes(link.job), link.delay_ms, can, connection)
        if not can.links_wait and _unique(link):
            raise InvalidInput(f"The connection {connection!r} {LINK_WAITS}.", hint=ELSEWHERE)


def refuse_verb(verb: str, able: bool, connection: str) -> None:
    """Raises `InvalidInput` when a connection is asked for something it cannot do: 'cancel a job'."""
    if not able:
        raise InvalidInput(
            f"The connection {connection!r} cannot {verb}.", hint="docs/connections.md says which ones can."
        )


def _wishes(spec: JobSpec, on_conflict: OnConflict, can: Capabilities) -> Iterator[Why]:
    if (spec.unique is not None or spec.debounce is not None) and not can.unique:
        yield "keeps no unique keys", ALSO_DATABASE
    if spec.retention is not None and not can.retention:
        yield "forgets a job when it is done (retention=)", ELSEWHERE
    if spec.batch is not None and not can.batches:
        yield "keeps no batches", ALSO_DATABASE
    if spec.limits is not None and can.serves and not can.limits:
        yield f"counts for no limit, and the job declares {spec.limits}", ELSEWHERE
    if on_conflict in (OnConflict.REPLACE, OnConflict.POSTPONE) and not can.replace:
        yield f"cannot replace a waiting job (on_conflict={on_conflict})", ALSO_DATABASE
    if on_conflict is OnConflict.ERROR and not can.ids and not (spec.id is not None and made_here(spec.id)):
        yield "cannot tell whether an id is taken (on_conflict=error)", ALSO_DATABASE
    if spec.id is not None and not can.ids and not made_here(spec.id):
        yield f"cannot tell whether the id {spec.id!r} is taken", ALSO_DATABASE


def _linked(envelope: Envelope, can: Capabilities) -> Iterator[Why]:
    """What is missing for its unique key, and for what follows its end."""
    if envelope.unique is not None and not can.unique:
        yield "keeps no unique keys", ALSO_DATABASE
    if envelope.batch is not ABSENT and not can.batches:
        yield "keeps no batches", ALSO_DATABASE
    if envelope.chain is ABSENT:
        return
    if not can.chains:
        yield "carries no chains", ALSO_DATABASE
        return
    for link in _links(followups.decode_chain(envelope.chain)):
        if link.batch is not None:
            if not can.batches:
                yield "keeps no batches, and the chain holds one", ALSO_DATABASE
        elif not can.links_wait and _unique(link):
            yield LINK_WAITS, ELSEWHERE


def _links(chain: Chain) -> Iterable[Link]:
    return (*chain.next, *chain.catch)


def _unique(link: Link) -> bool:
    try:
        return envelopes.decode(bytes(link.job)).unique is not None
    except BadEnvelope:
        return False
