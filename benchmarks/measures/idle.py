"""What a worker with mover and janitor costs while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.rig import quiet_logs, rig_on
from benchmarks.server import PrivateServer
from benchmarks.work import registry_of

NAME = "idle"
SECONDS = 30.0
SETTLE_S = 2.0
THE_END = "bench:the-end"


def run(plan: Plan) -> Report:
    """Requests per second as MONITOR shows them, and the CPU time of its processes; one queue, 30 s."""
    seconds = plan.seconds(SECONDS)
    with plan.server() as server, rig_on(server) as rig, quiet_logs(), rig.running(registry_of(_handler)) as worker:
        time.sleep(plan.seconds(SETTLE_S))
        cpu_percent = _cpu_percent(worker.pid, seconds)
        requests = _requests(server, seconds)
    names = ", ".join(f"{name} {count / seconds:.2f}" for name, count in requests.most_common())
    rate = Samples((sum(requests.values()) / seconds,), "requests/s")
    return Report(
        [
            Row("idle: client requests", rate, target=Target("≤", 2.0)),
            Row("idle: CPU of one core", Samples((cpu_percent,), "%"), target=Target("≤", 1.0)),
        ],
        [f"Requests per second by command, without what scripts call: {names}."],
    )


def _handler(order_id: int, customer: str, total: str, note: str) -> None:
    """Never called."""


def _cpu_percent(pid: int, seconds: float) -> float:
    """Of one core, by the worker: supervisor, child, mover and janitor."""
    before = _cpu_s(pid)
    time.sleep(seconds)
    return (_cpu_s(pid) - before) / seconds * 100


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
