"""Service and worker together, until Ctrl-C: python -m consumers.fastapi_service [PORT]."""

from __future__ import annotations

import signal
import subprocess
import sys

MODULE = "consumers.fastapi_service.app"
SERVE = [sys.executable, "-m", "uvicorn", f"{MODULE}:app", "--port"]
WORK = [sys.executable, "-m", "delayq", "work", "--app", MODULE, "--queue", "orders", "--quiet"]


def main(port: str = "8000") -> int:
    """Ends both when one ends, or when it is told to; uvicorn's exit code."""
    service, worker = subprocess.Popen([*SERVE, port]), subprocess.Popen(WORK)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: service.send_signal(number))
    try:
        return service.wait()
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
