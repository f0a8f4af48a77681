"""`delayq demo` shows delayq in ten seconds, on a server that it stops at the end."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from delayq.cli.demo_jobs import say
from delayq.client import DelayQ
from delayq.redis.embedded.server import EmbeddedServer

QUEUE: Final = "demo"


def run_demo(program: str) -> int:
    """Run the demo and return the exit code of its worker. `program`: the Redis server to run, or '' to find one."""
    with tempfile.TemporaryDirectory(prefix="delayq-demo-") as folder:
        server = EmbeddedServer(Path(folder).resolve() / "data", program)
        server.find_or_start()
        try:
            _schedule(server.url)
            print("A worker starts (delayq work --app delayq.cli.demo_jobs):", flush=True)
            return _work(server.url)
        finally:
            server.stop()


def _schedule(url: str) -> None:
    """Schedule jobs, cancel one and reschedule one, with the calls that a program would use."""
    print("A shop schedules jobs:")
    with DelayQ(url, queue=QUEUE) as client:
        for order in (42, 43, 44):
            client.schedule("order.close", {"order_id": order}, delay="2s", id=f"order-{order}")
            say(f"order {order} is placed; it will be closed in 2 s unless it is paid")
        say(f"order 43 is paid: its job is {client.cancel('order-43')}")
        client.reschedule("order-44", delay="5s")
        say("the buyer of order 44 asks for more time: it will be closed in 5 s")
        client.schedule("mail.send", {"to": "ann@example.org"}, delay="1s")
        client.schedule("report.build", delay="1s")


def _work(url: str) -> int:
    words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "delayq.cli.demo_jobs", "--queue", QUEUE]
    ended = subprocess.run([*words, "--stop-when-empty-for", "4s", "--quiet"], check=False)
    print("All jobs are done. Next: the README, or `delayq --help`.")
    return ended.returncode
