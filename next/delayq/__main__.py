"""`python -m delayq` runs the command `delayq`.

Long-running commands handle SIGTERM from the start, before the slow imports. Without this, process 1 of a container
would ignore a SIGTERM that arrives early.
"""

import os
import signal
import sys


def main() -> None:
    """Run the command in `sys.argv`."""
    if {"work", "move", "up"} & set(sys.argv[1:]):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from delayq.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
