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
    """Whether both are of the same batch or chain. Raises `BadEnvelope` for what was to be sent."""
    return bool(_places_of(envelopes.decode(raw)) & _places_of(there))


def _places_of(envelope: Envelope) -> set[tuple[str, str]]:
    part, headers = follow.readable_part(envelope), envelope.headers or {}
    places = {(name, headers[name]) for name in (BATCH_HEADER, f"{follow.FAILED_HEADER}id") if name in headers}
    if part is not None and part.batch is not None:
        places.add(("batch", part.batch))
    elif part is not None and part.chain is not None:
        places.add(("chain", part.chain.id))
    return places
