"""Reads payloads of the command line: as text, from a file, or from stdin."""

import sys
from pathlib import Path

import msgspec

from delayq.core.errors import InvalidInput

_EXAMPLE = """Example: --data '{"order_id": 42}'."""


def read_payload(text: str) -> bytes:
    """Return a JSON payload, which is sent byte for byte. `text`: JSON, @FILE, or - for stdin.

    A file keeps secrets out of the process list, and may be larger than an argument of the shell.
    """
    if text == "-":
        source, raw = "--data -", sys.stdin.buffer.read()
    elif text.startswith("@"):
        source, raw = f"--data {text}", _read_file(text)
    else:
        source, raw = "--data", text.encode("utf-8", "surrogateescape")
    try:
        if not raw.strip():
            raise InvalidInput(f"{source} is not JSON: it is empty.", hint=_EXAMPLE, field="data")
        msgspec.json.decode(raw)
    except RecursionError:
        raise InvalidInput(f"{source} is nested too deeply.", hint=_EXAMPLE, field="data") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"{source} is not JSON: {error}.", hint=_EXAMPLE, field="data") from None
    return raw


def _read_file(text: str) -> bytes:
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"--data {text} cannot be read: {error.strerror}.", hint="Name a file with JSON.", field="data"
        ) from None
