"""A worker under a supervisor as a program: `python -m tests.support.supervised '{"url": …}'`.

The JSON gives the url, the lease, whether async handlers are there too, `more` modules of handlers, whether the ends
of jobs are logged (`tell`), a `metrics_port`, and any `WorkerOptions`. Prints the reason it stopped, and exits
with the reason's code.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from delayq.cli import logs
from delayq.core.backoff import Fixed
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.drivers.redis_streams import RedisStreamsFactory
from delayq.jobs.registry import Registry, load_app, using
from delayq.metrics.stand import Stand
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import Plan
from delayq.worker.supervisor import Supervisor


def supervisor(config: dict[str, Any]) -> Supervisor:
    """The worker that `config` asks for."""
    began = time.monotonic()
    url, lease_ms = config.pop("url"), config.pop("lease_ms", 30_000)
    modules = ["tests.support.supervised_jobs"]
    if config.pop("asynchronous", False):
        modules.append("tests.support.supervised_async_jobs")
    modules += config.pop("more", [])
    backoff_ms, tries = config.pop("backoff_ms", 50), config.pop("tries", 5)
    with using(Registry()) as registry:
        for one in modules:
            load_app(one)
    listeners = [logs.JobLines()] if config.pop("tell", False) else []
    fallback = Policy(tries=tries, backoff=Fixed(backoff_ms), timeout_ms=config.pop("timeout_ms", 60_000))
    queues, port = tuple(config.pop("queues", ["default"])), config.pop("metrics_port", None)
    worker = WorkerOptions(queues=queues, fallback=fallback, ends_process=True, **config)
    stand = None if port is None else Stand("127.0.0.1", port)
    factory = RedisStreamsFactory(url, Options(lease_ms=lease_ms))
    return Supervisor(Plan(factory, registry, worker, listeners, began=began, stand=stand))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s %(levelname)s %(message)s")
    reason = supervisor(json.loads(sys.argv[1])).run()
    print(reason, flush=True)  # noqa: T201  (the test reads it)
    sys.exit(reason.exit_code)
