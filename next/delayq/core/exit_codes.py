"""The exit codes of the command line."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of all commands. Each error class names one of them in `exit_code`."""

    OK = 0
    FAILED = 1
    WRONG_USE = 2
    UNKNOWN_ID = 3
    CONFLICT = 4
    """The job is running, failed or completed, or the queue is in use."""
    NO_BACKEND = 5
    """Redis cannot be reached, is not ready, or is full."""
    UNSAFE = 6
    OUTCOME_UNKNOWN = 7
    """The reply to a change was lost, or its durability was not confirmed."""
    INTERRUPTED = 130
