"""Standard streams that cannot be written: closed, full, or a pipe whose reader has ended."""

import io
import os
import sys
from contextlib import suppress
from typing import Final

_STREAMS: Final = {"stdout": 1, "stderr": 2}


class _DroppingFile(io.FileIO):
    """A file that drops the output which it cannot write."""

    def write(self, data: object) -> int:
        """Write data, or drop it."""
        view = memoryview(data)  # type: ignore[arg-type]
        try:
            return super().write(view) or 0
        except OSError:
            return view.nbytes


def open_closed_streams() -> None:
    """Open closed standard streams as /dev/null.

    Otherwise, the next opened file or socket would get their descriptors, and output would be written into it.
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
    """From now on, drop output that cannot be written, because the exit code must report a change and not its output.

    Streams that are not files, as in tests, stay as they are.
    """
    for name, descriptor in _STREAMS.items():
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or isinstance(getattr(stream.buffer, "raw", None), _DroppingFile):
            continue
        if not _writes_to(stream, descriptor):
            continue
        with suppress(OSError):
            stream.flush()
        raw = _DroppingFile(descriptor, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", None, True))


def _writes_to(stream: io.TextIOWrapper, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):
        return False
