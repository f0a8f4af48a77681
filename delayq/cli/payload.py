"""`--data`: JSON as text, `@file`, or `-` for stdin. Read only as far as the limit goes, before anything parses it."""

from __future__ import annotations

import os
import sys
from typing import IO

from delayq.core.errors import InvalidPayload


def read_data(given: str | None, limit: int) -> bytes | None:
    """The bytes `--data` stands for; None when it was not given. Raises `InvalidPayload`."""
    if given is None:
        return None
    if given == "-":
        return _within(sys.stdin.buffer, "stdin", limit)
    if not given.startswith("@"):
        return os.fsencode(given)  # back to the bytes of the command line, whatever they are
    path = given[1:]
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (a Path would drop a trailing slash: 'x/' is no file)
            return _within(file, path, limit)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InvalidPayload(
            f"--data @{path} cannot be read: {why[:1].lower()}{why[1:]}.", hint="Name a file that holds JSON."
        ) from None


def _within(stream: IO[bytes], name: str, limit: int) -> bytes:
    raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise InvalidPayload(
            f"The payload in {name} is larger than {limit:,} bytes.",
            hint="Store it elsewhere and send a reference, or raise DELAYQ_MAX_PAYLOAD.",
        )
    return raw
