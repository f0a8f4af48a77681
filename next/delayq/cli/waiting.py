"""Prints one line if a command has to wait for Redis, so that nobody waits without a reason."""

import logging
from typing import Final

from delayq.cli.output import print_note

LOGGER: Final = "delayq.redis.waiting"
"""The logger to which executors report at DEBUG that they try again."""


class _FirstOnly(logging.Handler):
    """Prints the first record."""

    _has_printed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, unless a record was printed before."""
        if not self._has_printed:
            self._has_printed = True
            print_note(record.getMessage())


def tell_waiting() -> None:
    """Print the first report of an executor of this process on stderr."""
    logger = logging.getLogger(LOGGER)
    logger.handlers = [_FirstOnly()]
    logger.setLevel(logging.DEBUG)
