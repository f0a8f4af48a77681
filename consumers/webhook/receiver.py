"""A receiver of pushed jobs that needs nothing but Python: it verifies, works once, and answers.

    WEBHOOK_SECRETS="whsec_… whsec_…" python consumers/webhook/receiver.py --port 8099

The order matters: the signature over the raw body first, then the time, then whether it was done already, then JSON.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WINDOW_S = 300
MAX_BODY = 1024 * 1024


def handle(job: Mapping[str, Any]) -> None:
    """Your work. Here: one line on stdout, or the trouble that the payload asks for."""
    print(json.dumps({"id": job["id"], "name": job["name"], "data": job["data"]}), flush=True)
    if isinstance(job["data"], dict) and job["data"].get("trouble"):
        raise RuntimeError(job["data"]["trouble"])


def keys_of(text: str) -> list[bytes]:
    """The keys of `whsec_…` secrets with blanks or commas between: one, or two while they are changed."""
    keys = [base64.b64decode(one.removeprefix("whsec_"), validate=True) for one in text.replace(",", " ").split()]
    if not keys or min(map(len, keys)) < 16:
        raise SystemExit("WEBHOOK_SECRETS holds no usable secret; write whsec_ and base64, as in delayq's secret file.")
    return keys


def verified(keys: Sequence[bytes], heads: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Whether one of our keys made one of the signatures, not long ago. Compared in constant time."""
    stamp, signatures = heads.get("webhook-timestamp", ""), heads.get("webhook-signature", "")
    text = f"{heads.get('webhook-id', '')}.{stamp}.".encode() + body
    wanted = ["v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode() for key in keys]
    given = signatures.split(" ")[:10]
    matches = [hmac.compare_digest(one.encode(), other.encode()) for one in wanted for other in given]
    return any(matches) and stamp.isascii() and stamp.isdigit() and abs(now_s - int(stamp[:12])) <= WINDOW_S


class Seen:
    """What was done, by `webhook-id`; kept in a file, so that a restart forgets nothing."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY)")

    def has(self, webhook_id: str) -> bool:
        with self._lock:
            return self._database.execute("SELECT 1 FROM done WHERE id = ?", (webhook_id,)).fetchone() is not None

    def add(self, webhook_id: str) -> None:
        with self._lock:
            self._database.execute("INSERT OR IGNORE INTO done VALUES (?)", (webhook_id,))

    def close(self) -> None:
        self._database.close()


def answer(keys: Sequence[bytes], seen: Seen, heads: Mapping[str, str], body: bytes) -> int:
    """The status: 2xx = taken, 401 fails the job for good, 500 brings it again."""
    if not verified(keys, heads, body, time.time()):
        return 401
    if seen.has(heads["webhook-id"]):
        return 200
    try:
        handle(json.loads(body))
    except Exception as error:  # noqa: BLE001  (whatever it is, delayq should try again)
        print(f"{heads['webhook-id']}: {error!r}", file=sys.stderr, flush=True)
        return 500
    seen.add(heads["webhook-id"])
    return 204


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive jobs that delayq pushes.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--seen", default=":memory:", help="a file that remembers what was done")
    chosen = parser.parse_args()
    keys = keys_of(os.environ.get("WEBHOOK_SECRETS", ""))

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            status = 413 if not length.isdecimal() or int(length) > MAX_BODY else 0
            heads = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(status or answer(keys, seen, heads, self.rfile.read(int(length))))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            print(format % args, file=sys.stderr, flush=True)

    with closing(Seen(chosen.seen)) as seen, ThreadingHTTPServer((chosen.host, chosen.port), Handler) as server:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"listening on {server.server_address[1]}", file=sys.stderr, flush=True)
        server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
