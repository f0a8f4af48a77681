"""`python -m delayq` is the command `delayq`.

What runs for long hears SIGTERM from the first moment: process 1 of a container would ignore it otherwise.
"""

import os
import signal
import sys


def main() -> None:
    """Run one command."""
    if {"work", "move", "up"} & set(sys.argv[1:]):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from delayq.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
