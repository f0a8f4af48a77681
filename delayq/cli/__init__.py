"""The command line: `delayq` and `python -m delayq`.

    root       the options before the command, and all commands put together
    *_commands one module a family: what each command is called, takes, and says of itself
    actions/   what the commands do, one function each
    shapes     what --json prints
    render     the only module that prints
    ending     from an exception to a message and an exit code

Data goes to stdout, everything else to stderr. The command modules import nothing but typer, so that `--help` and
completion are fast; an action brings in Redis and settings when it is called.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command (None: the process's own arguments) and leave with its exit code."""
    if os.getpid() == 1:
        # The kernel drops what the first process of a container does not handle, so a TERM while it starts would be
        # lost. Workers and loops have handlers of their own as soon as they run.
        signal.signal(signal.SIGTERM, _leave)
    from delayq.cli.ending import USAGE, run
    from delayq.cli.root import app, misplaced
    from delayq.cli.session import Session

    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None and any("://" in word for word in words):
        from delayq.cli.own_words import hide_passwords

        hide_passwords(words)
    session = Session()
    code = run(lambda: app(args=words, prog_name="delayq", obj=session), session)
    if code == USAGE and (option := misplaced(words)):
        session.out.error(f"{option} stands before the command.", f"delayq {option} … COMMAND, or see delayq --help.")
    raise SystemExit(code)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """As the signal would have ended any other process, in the words of a shell."""
    raise SystemExit(128 + number)
