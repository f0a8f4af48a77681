"""What an idle worker asks of the server in ten seconds: a child, a mover and a janitor, and one queue."""

import threading
import time
from collections import Counter
from typing import Any

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import plain_client
from benchmarks.worker import running_worker, warm_up

SECONDS = 10
SETTLE = 3
END = "the-end-of-the-measure"


def run(url: str) -> Found:
    """Listen while there is nothing to do. INFO counts each command of a script too; MONITOR tells them apart."""
    with plain_client(url) as client, running_worker(url):
        warm_up(url)
        time.sleep(SETTLE)
        before = client.info("stats")["total_commands_processed"]
        requests = _requests(client, url)
        commands = client.info("stats")["total_commands_processed"] - before
    return {
        "requests": requests.total() / SECONDS,
        "scripts": requests["EVALSHA"] / SECONDS,
        "commands": commands / SECONDS,
    }


def _requests(client: Any, url: str) -> Counter[str]:
    """Count the requests of other clients, by command, for some seconds."""
    found: Counter[str] = Counter()
    with plain_client(url) as caller:
        caller.ping()  # it connects before anything is counted
        _listen(client, caller, found)
    return found


def _listen(client: Any, caller: Any, found: Counter[str]) -> None:
    with client.monitor() as monitor:
        end = threading.Timer(SECONDS, caller.echo, (END,))
        end.start()
        for command in monitor.listen():
            if END in command["command"]:
                break
            if command["client_type"] != "lua":
                found[command["command"].split()[0].upper()] += 1
        end.join()


MEASURE = Measure(
    "rest",
    run,
    (
        Figure(name="requests", unit="a second", most=2.0),
        Figure(name="scripts", unit="a second"),
        Figure(name="commands", unit="a second"),
    ),
    pairs=3,
)
