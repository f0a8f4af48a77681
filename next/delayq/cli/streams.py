"""Standard streams that cannot be written: closed, full, or a pipe whose reader has ended."""

import io
import os
import sys
from contextlib import suppress
from typing import Final

_STREAMS: Final = {"stdout": 1, "stderr": 2}


class _DroppingStream(io.TextIOWrapper):
    """A text stream that writes to /dev/null from the first failed write on."""

    def write(self, text: str) -> int:
        """Write text, or drop the text if it cannot be written."""
        try:
            return super().write(text)
        except OSError:
            self._turn_to_null()
            return len(text)

    def flush(self) -> None:
        """Write the buffered text, or drop the text if it cannot be written."""
        try:
            super().flush()
        except OSError:
            self._turn_to_null()

    def _turn_to_null(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


def open_closed_streams() -> None:
    """Open closed standard streams as /dev/null.

    Otherwise, the next opened file or socket would get the descriptor of a closed stream, and output would be written
    into this file or socket.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    for name, descriptor in _STREAMS.items():
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))


def drop_lost_output() -> None:
    """From now on, drop output that cannot be written.

    The exit code must report whether a change was made, and not whether the output could be written. Replaced streams,
    as in tests, stay as they are.
    """
    for name, descriptor in _STREAMS.items():
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper or not _writes_to(stream, descriptor):
            continue
        with suppress(OSError):
            stream.flush()
        buffer = os.fdopen(descriptor, "wb", closefd=False)
        dropping = _DroppingStream(buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)
        setattr(sys, name, dropping)


def _writes_to(stream: io.TextIOWrapper, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):
        return False
