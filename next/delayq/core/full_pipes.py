"""Output into a pipe that may be full, because its reader has stopped. A worker must not wait for this reader."""

import select
from typing import Final, TextIO

PATIENCE: Final = 1.0
"""Seconds to wait for a reader of a full pipe before output is dropped."""


def takes_output(stream: TextIO, *, within: float) -> bool:
    """Wait up to `within` seconds until the stream accepts a write. Return False if it still does not.

    A pipe or terminal that is ready for a write accepts at least 4 KiB. For a stream without a file descriptor, return
    True at once.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # the last one: a stream that an application has made
        return True
    if not hasattr(select, "poll"):  # on Windows, and with green threads
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(within * 1000))
