"""Adds the running job to log records: `job_id`, `job` (its name), `queue` and `attempt`.

A filter is put on each log handler, because a filter on a logger would not see the records of child loggers. The filter
runs in the thread that wrote the record, so the context variable `current_attempt` leads to the attempt of this thread
or task.
"""

import logging
from collections.abc import Iterator
from typing import Final

from delayq.worker.attempt import current_attempt
from delayq.worker.attempt_log import log_members


class JobFilter(logging.Filter):
    """Lets all records pass, and adds the four members of the running job, except members that a record already has."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the members, if a job is running in this context."""
        current = current_attempt.get()
        attempt = current.attempt if current is not None else None
        if attempt is not None:
            for name, value in log_members(attempt.delivery, attempt.envelope).items():
                record.__dict__.setdefault(name, value)
        return True


_FILTER: Final = JobFilter()


def install() -> None:
    """Put the filter on all log handlers, in front of their own filters, which may then use the members."""
    for handler in handlers():
        if _FILTER not in handler.filters:
            handler.filters.insert(0, _FILTER)


def handlers() -> Iterator[logging.Handler]:
    """Yield the log handlers of all loggers, and the handler of last resort, for loggers without a handler."""
    if logging.lastResort is not None:
        yield logging.lastResort
    yield from logging.root.handlers
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
