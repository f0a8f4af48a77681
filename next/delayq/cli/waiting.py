"""Prints one line if a command has to wait for Redis, so that the user knows why the command takes long."""

import logging
from typing import Final

from delayq.cli.output import print_note

LOGGER: Final = "delayq.redis.waiting"
"""The logger to which executors, which send calls to Redis, report at DEBUG that they retry a call."""


class _FirstOnly(logging.Handler):
    """Prints the first record."""

    _has_printed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, unless a record was printed before."""
        if not self._has_printed:
            self._has_printed = True
            print_note(record.getMessage())


def tell_waiting() -> None:
    """When an executor of this process first retries a call, print its message on stderr."""
    logger = logging.getLogger(LOGGER)
    logger.handlers = [_FirstOnly()]
    logger.setLevel(logging.DEBUG)
