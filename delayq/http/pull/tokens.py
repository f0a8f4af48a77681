"""The token of a reservation: queue, entry and job as one opaque word.

The entry id is the lease, as everywhere in delayq. So any server of the same Redis can renew and settle what another
one handed out, and nothing has to be kept for it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from delayq.core.errors import InvalidName
from delayq.core.names import check_id, check_queue
from delayq.core.shards import is_shard, queue_of
from delayq.drivers.base import Claim, Delivery
from delayq.http.bodies import invalid
from delayq.http.problems import Refused
from delayq.http.seal import Seal

MOST: Final = 1_000
_PURPOSE: Final = "reservation"
_ENTRY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


def token_of(delivery: Delivery, seal: Seal) -> str:
    """Return the token of a delivery, signed so that a job that a worker runs cannot be settled by a made-up one."""
    return seal.sign(_PURPOSE, msgspec.json.encode((delivery.queue, delivery.entry, delivery.id)).decode())


def read(token: str, seal: Seal) -> Claim:
    """Return the claim that a token stands for. Raises `Refused` for a token that no server of this Redis signed."""
    try:
        text = seal.read(_PURPOSE, token)
        queue, entry, job_id = msgspec.json.decode(text or "", type=tuple[str, str, str])
        check_queue(queue_of(queue))
        check_id(job_id)
        if not _ENTRY.fullmatch(entry) or (queue != queue_of(queue) and not is_shard(queue)):
            raise InvalidName
    except (ValueError, msgspec.MsgspecError, InvalidName):
        raise Refused(invalid("/{token}", "It is not a token that this API gave")) from None
    return Claim(queue, job_id, entry)
