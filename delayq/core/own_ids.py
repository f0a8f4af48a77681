"""Whether the job that has an id is the one that was to be sent under it. Pure.

Ids of chains and batches are made before their jobs are sent, some by the application. When a job's turn comes, its id
may be taken: by itself, because it was sent before, or by a job of somebody else, which is left alone then.
"""

from __future__ import annotations

from typing import Final

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.envelope import Envelope

BATCH_HEADER: Final = "delayq-batch-id"
"""A header of jobs that a batch sends as it goes along."""


def is_the_same(raw: bytes, there: Envelope) -> bool:
    """Whether both are of one chain, or one member of a batch. Raises `BadEnvelope` for what was to be sent."""
    return bool(_places_of(envelopes.decode(raw)) & _places_of(there))


def are_siblings(raw: bytes, there: Envelope) -> bool:
    """Whether both are members of one batch: the id is that of a member, whoever it was meant for."""
    batch = follow.batch_id(envelopes.decode(raw))
    return batch is not None and batch == follow.batch_id(there)


def _places_of(envelope: Envelope) -> set[tuple[str, str]]:
    part, headers = follow.readable_part(envelope), envelope.headers or {}
    places = {(name, headers[name]) for name in (BATCH_HEADER, f"{follow.FAILED_HEADER}id") if name in headers}
    if part is not None and part.batch is not None:  # one in no chain may have got one of its own, by a retry
        places.add((f"batch {part.batch}", part.chain.id if part.chain is not None else part.id))
    elif part is not None and part.chain is not None:
        places.add(("chain", part.chain.id))
    return places
