"""A worker of any connection as a program: `python -m tests.support.served '{"connection": {"driver": …}}'`.

The JSON gives the connection as a settings file would, `queues`, `tries`, `backoff_ms`, `timeout_ms`, and any
`WorkerOptions`. Prints the reason it stopped, and exits with the reason's code.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from delayq.app import driver_factory
from delayq.core.backoff import Fixed
from delayq.core.outcome import Policy
from delayq.jobs.current import current_manager
from delayq.jobs.registry import Registry, load_app, using
from delayq.jobs.running import LocalRunner
from delayq.manager import Manager
from delayq.settings import Settings
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import Plan
from delayq.worker.supervisor import Supervisor

IT = "it"


def manager_of(connection: dict[str, Any]) -> Manager:
    """One whose connection `IT` is that."""
    return Manager(Settings(connections={IT: connection}, connection=IT), LocalRunner(current_manager))


def supervisor(config: dict[str, Any]) -> Supervisor:
    """The worker that `config` asks for."""
    began = time.monotonic()
    factory = driver_factory(manager_of(config.pop("connection")), IT)
    with using(Registry()) as registry:
        load_app("tests.support.supervised_jobs")
    fallback = Policy(
        tries=config.pop("tries", 5),
        backoff=Fixed(config.pop("backoff_ms", 50)),
        timeout_ms=config.pop("timeout_ms", 60_000),
    )
    queues = tuple(config.pop("queues", ["default"]))
    worker = WorkerOptions(queues=queues, fallback=fallback, ends_process=True, **config)
    return Supervisor(Plan(factory, registry, worker, began=began))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s %(levelname)s %(message)s")
    reason = supervisor(json.loads(sys.argv[1])).run()
    print(reason, flush=True)  # noqa: T201  (the test reads it)
    sys.exit(reason.exit_code)
