"""The token of a reservation: queue, entry and job as one opaque word.

The entry id is the lease, as everywhere in delayq. So any server of the same Redis can renew and settle what another
one handed out, and nothing has to be kept for it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from delayq.core.errors import InvalidName
from delayq.core.names import check_id, check_queue
from delayq.core.shards import is_shard, queue_of
from delayq.drivers.base import Claim, Delivery
from delayq.http.bodies import invalid
from delayq.http.problems import Refused

MOST: Final = 1_000
_ENTRY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


def token_of(delivery: Delivery) -> str:
    """The token of a delivery."""
    words = (delivery.queue, delivery.entry, delivery.id)
    return base64.urlsafe_b64encode(msgspec.json.encode(words)).decode().rstrip("=")


def read(token: str) -> Claim:
    """What a token stands for. Raises `Refused` for what was never one."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        queue, entry, job_id = msgspec.json.decode(raw, type=tuple[str, str, str])
        check_queue(queue_of(queue))
        check_id(job_id)
        if not _ENTRY.fullmatch(entry) or (queue != queue_of(queue) and not is_shard(queue)):
            raise InvalidName
    except (binascii.Error, ValueError, msgspec.MsgspecError, InvalidName):
        raise Refused(invalid("/{token}", "It is none that this API gave")) from None
    return Claim(queue, job_id, entry)
