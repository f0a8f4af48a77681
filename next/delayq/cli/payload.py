"""Payloads that are written on the command line."""

import msgspec

from delayq.core.errors import InvalidInput


def read_payload(text: str) -> bytes:
    """Return a payload that is JSON; it is sent byte for byte."""
    raw = text.encode("utf-8", "surrogateescape")
    try:
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(
            f"--data is no JSON: {error}.", hint="""An example: --data '{"order_id": 42}'.""", field="data"
        ) from None
    return raw
