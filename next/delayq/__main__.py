"""`python -m delayq` runs the command `delayq`.

Long-running commands handle SIGTERM, SIGHUP and SIGQUIT from the start, before the slow imports. Without this, process
1 of a container would ignore a SIGTERM that arrives early. These commands ignore SIGUSR1, because the default action of
this signal would end the process without a log line.
"""

import os
import signal
import sys
from typing import Final

_OPTIONS_WITH_VALUES: Final = ("--url", "--connection", "--prefix", "--config")
"""Root options whose value is the next word."""


def main() -> None:
    """Run the command in `sys.argv`."""
    if _command(sys.argv[1:]) in ("work", "move", "up", "listen"):
        _handle_early_signals()
    from delayq.cli.main import main as run

    run()


def _handle_early_signals() -> None:
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)  # Windows has only SIGTERM
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda *_: os._exit(0))
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _command(words: list[str]) -> str:
    """Return the command among the words of a command line; '' = none. Typer is not loaded yet."""
    rest = iter(words)
    for word in rest:
        if word in _OPTIONS_WITH_VALUES:
            next(rest, "")
        elif not word.startswith("-"):
            return word
    return ""


if __name__ == "__main__":
    main()
