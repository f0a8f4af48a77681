"""What a handler returned, as it is kept with a job that has a retention."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from delayq.core.envelope import ABSENT, Envelope
from delayq.core.keyring import Keyring
from delayq.core.sealing import Place, What, seal_value

log = logging.getLogger("delayq.jobs")


def encoded(envelope: Envelope, result: Any, keyring: Keyring) -> bytes:
    """A result as JSON; that of an encrypted job encrypted.

    The work is done by then, so one that cannot be kept is said and not retried.
    """
    try:
        raw = msgspec.json.encode(result)
        if envelope.encrypted is ABSENT:
            return raw
        return seal_value(keyring, Place(envelope.id, envelope.name), What.RESULT, raw)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        log.warning("job %s (%s): its result cannot be kept as JSON: %s", envelope.id, envelope.name, error)
        return b""
