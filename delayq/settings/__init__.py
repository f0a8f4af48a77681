"""Settings: flag > environment > file > default, each with its origin.

    DELAYQ_LEASE=30s            environment: DELAYQ_ and the name in capitals; empty counts as not set
    lease = "30s"               delayq.toml in the working directory, or [tool.delayq] in its pyproject.toml
    Settings(lease="30s")       flags of a command, or arguments of a program; None counts as not given

`DELAYQ_CONFIG` names another file. Parent directories are not searched: what a command does should not depend on
a file somebody left further up. The file may also route job names to queues:

    [routes]
    "order.*" = "orders"        the first pattern that matches decides
    "report.*" = { connection = "reports", queue = "slow" }

name further connections, and send what is meant for one queue to another:

    [connections.reports]
    url = "redis://elsewhere/0"     driver (redis, sync, null, outbox, or one of your own), url, prefix, queue,
                                    after_commit; of an outbox also to and table

    [forwards]
    orders = "orders-2"

`[push.QUEUE]` says where the jobs of a queue are posted to: see `pushes`.

`keys`, which encrypt payloads, are shown by their ids only, wherever settings are shown.

An unknown key of a file is refused, an unknown `DELAYQ_` variable is a warning: a file is ours alone, the
environment is shared. Importing this package loads pydantic, which costs time; the engine uses `Options` instead.
"""

from __future__ import annotations

from delayq.settings.model import Embedded, LogFormat, LogLevel, Settings
from delayq.settings.origins import Origin, origins

__all__ = ["Embedded", "LogFormat", "LogLevel", "Origin", "Settings", "origins"]
