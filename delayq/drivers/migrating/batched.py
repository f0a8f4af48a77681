"""Members of a batch stay where they are: their batch looks for them there."""

from __future__ import annotations

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT
from delayq.core.errors import BadEnvelope
from delayq.drivers.broker import Waiting
from delayq.drivers.migrating.ends import Stays


def unless_batched(members: set[str], stays: Stays) -> Stays:
    """As `stays` says, but a member of a batch stays too; its id is put into `members`."""

    def stays_here(job: Waiting) -> str:
        if not _in_a_batch(job):
            return stays(job)
        members.add(job.id)
        return "it belongs to a batch"

    return stays_here


def _in_a_batch(job: Waiting) -> bool:
    try:
        return envelopes.decode(job.envelope).batch is not ABSENT
    except BadEnvelope:
        return False
