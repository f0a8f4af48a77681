"""How a command ends: every exception becomes one message and one exit code, here and nowhere else.

    0 done · 1 failed · 2 bad usage or input · 3 unknown id · 4 conflict, running, failed or finished
    5 Redis unreachable · 6 refused for safety · 7 outcome unknown · 12 worker out of memory · 130 interrupted

delayq's own errors carry their code (`DelayqError.exit_code`); typer ends with 2 for what it cannot parse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delayq.cli.session import Session
from delayq.core.errors import DelayqError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


def run(command: Callable[[], object], session: Session) -> int:
    """The exit code of `command`; what went wrong is on stderr by then."""
    try:
        command()
    except SystemExit as left:
        return 0 if left.code is None else left.code if isinstance(left.code, int) else FAILED
    except DelayqError as error:
        _say(session, error, error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last line of defence: said in full, and with -v in all detail)
        what = f"delayq met something it did not expect: {type(error).__name__}: {error}"
        _say(session, error, what, "Run it again with -v for the details, and please report them.")
        return FAILED
    return 0


def _say(session: Session, error: Exception, message: str, hint: str) -> None:
    session.out.error(message, hint)
    if session.verbose:
        session.out.traceback(error)
