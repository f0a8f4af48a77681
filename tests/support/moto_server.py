"""`python moto_server.py`: a server that speaks SQS, on a port of its own, which it prints; ends with its input.

A process of its own, because it is slow to load and its threads are none of the tests'.
"""

from __future__ import annotations

import sys

from moto.server import ThreadedMotoServer


def main() -> None:
    """Serve until nobody is there any more."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
