"""`python -m delayq` runs the command `delayq`.

Long-running commands handle SIGTERM from the start, before the slow imports. Without this, process 1 of a container
would ignore a SIGTERM that arrives early.
"""

import os
import signal
import sys
from typing import Final

_OPTIONS_WITH_VALUES: Final = ("--url", "--connection", "--prefix", "--config")
"""Root options whose value is the next word."""


def main() -> None:
    """Run the command in `sys.argv`."""
    if _command(sys.argv[1:]) in ("work", "move", "up"):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from delayq.cli.main import main as run

    run()


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
