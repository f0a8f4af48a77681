"""What a worker with mover and janitor costs while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.rig import quiet_logs, rig_on
from benchmarks.server import PrivateServer
from benchmarks.work import FAR, QUEUE, payload, registry_of
from benchmarks.work import NAME as JOB

NAME = "idle"
SECONDS = 30.0
SETTLE_S = 2.0
THE_END = "bench:the-end"


@dataclass(frozen=True, slots=True)
class Way:
    """What the worker serves: empty queues, or one with so many shards and a job that is due in a month."""

    said: str
    queues: tuple[str, ...] = (QUEUE,)
    shards: int = 1
    requests: Target | None = None
    cpu: Target | None = None


WAYS = (
    Way("one queue", requests=Target("≤", 2.0), cpu=Target("≤", 1.0)),
    Way("one queue of 4 shards", shards=4),
    Way("10 queues", tuple(f"{QUEUE}-{n}" for n in range(10))),
)


def run(plan: Plan) -> Report:
    """Requests per second as MONITOR shows them, and the CPU time of its processes, 30 s each, for each way."""
    rows: list[Row] = []
    notes: list[str] = []
    for way in WAYS:
        requests, cpu_percent, seconds = _at_rest(plan, way)
        rate = Samples((sum(requests.values()) / seconds,), "requests/s")
        rows += [
            Row(f"idle, {way.said}: client requests", rate, target=way.requests),
            Row(f"idle, {way.said}: CPU of one core", Samples((cpu_percent,), "%"), target=way.cpu),
        ]
        names = ", ".join(f"{name} {count / seconds:.2f}" for name, count in requests.most_common())
        notes.append(f"Requests per second by command, {way.said}, without what scripts call: {names}.")
    return Report(rows, notes)


def _at_rest(plan: Plan, way: Way) -> tuple[Counter[str], float, float]:
    """Requests by command, CPU of one core in percent, and the seconds in which they were counted."""
    seconds = plan.seconds(SECONDS)
    with plan.server() as server, rig_on(server) as rig, quiet_logs():
        if way.shards > 1:
            rig.client.schedule(JOB, payload(0), delay=FAR, queue=QUEUE)
            rig.client.queue_set(QUEUE, shards=way.shards)
        with rig.running(registry_of(_handler), queues=way.queues) as worker:
            time.sleep(plan.seconds(SETTLE_S))
            before_s, began = _cpu_s(worker.pid), time.monotonic()
            requests = _requests(server, seconds)
            took_s = time.monotonic() - began
            return requests, (_cpu_s(worker.pid) - before_s) / took_s * 100, took_s


def _handler(order_id: int, customer: str, total: str, note: str) -> None:
    """Never called."""


def _cpu_s(pid: int) -> float:
    """What a process and all below it have used, by the kernel's count in nanoseconds."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    mine = sum(int(Path(task, "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    return mine / 1e9 + sum(_cpu_s(int(child)) for child in below)


def _requests(server: PrivateServer, seconds: float) -> Counter[str]:
    """Commands that clients sent. INFO's counts hold those of scripts too; MONITOR marks them with `lua`."""
    found: Counter[str] = Counter()
    with server.client() as client, server.client() as caller, client.monitor() as monitor:
        end = threading.Timer(seconds, caller.echo, (THE_END,))
        end.start()
        for command in monitor.listen():
            if command["command"].endswith(THE_END):
                break
            if command["client_type"] != "lua":
                found[command["command"].split()[0].upper()] += 1
        end.join()
    return found
