"""What a handler returned, as it is kept with a job that has a retention."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from delayq.core.envelope import Envelope

log = logging.getLogger("delayq.jobs")


def encoded(envelope: Envelope, result: Any) -> bytes:
    """A result as JSON. The work is done by then, so one that cannot be kept is said and not retried."""
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        log.warning("job %s (%s): its result cannot be kept as JSON: %s", envelope.id, envelope.name, error)
        return b""
