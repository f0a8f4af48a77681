"""Service and worker together, until Ctrl-C: python -m consumers.django_service [PORT]."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.wsgi import get_wsgi_application

from consumers.django_service.shop import make_table

WORK = [sys.executable, "-m", "delayq", "work", "--app", "consumers.django_service.jobs", "--queue", "orders"]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A real service has a real server, and its log."""


def main(port: str = "8001") -> int:
    """0 when it was told to stop."""
    make_table()
    application: Any = get_wsgi_application()
    with make_server("127.0.0.1", int(port), application, WSGIServer, Quiet) as server:
        worker = subprocess.Popen([*WORK, "--quiet"])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"listening on {server.server_port}", file=sys.stderr, flush=True)
        server.serve_forever(poll_interval=0.1)
        worker.send_signal(signal.SIGTERM)
        return worker.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
