"""The composition root: the only place where settings become connectors, clients, drivers and workers.

    settings ──▶ Options ───────────────────────────────▶ what verbs and loops work with
       │
       ├─ url ─────────────────────────────▶ Connector ─▶ Client · driver ─▶ loops · worker
       └─ no url ─▶ the embedded server ─────▲

Everything below takes what it needs as arguments; everything above (the command line, `DelayQ()`) asks here. A name is
imported when it is first used: a command that schedules one job does not load what workers are made of.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from delayq.core.lazy import importer, lister

if TYPE_CHECKING:
    from delayq.app.clients import (
        address_of,
        connection_of,
        on_redis,
        open_async_client,
        open_client,
        open_desk,
        open_failed,
        open_sender,
    )
    from delayq.app.handlers import load_handlers, with_application
    from delayq.app.workers import (
        driver_factory,
        fallback_policy,
        make_driver,
        make_loops,
        make_plan,
        make_worker,
        move_once,
        open_driver,
        open_served,
        queues_of,
        refuse_eviction,
    )

HOMES: Final = MappingProxyType(
    {
        "delayq.app.clients": (
            "address_of",
            "connection_of",
            "on_redis",
            "open_async_client",
            "open_client",
            "open_desk",
            "open_failed",
            "open_sender",
        ),
        "delayq.app.handlers": ("load_handlers", "with_application"),
        "delayq.app.workers": (
            "driver_factory",
            "fallback_policy",
            "make_driver",
            "make_loops",
            "make_plan",
            "make_worker",
            "move_once",
            "open_driver",
            "open_served",
            "queues_of",
            "refuse_eviction",
        ),
    }
)

__all__ = [
    "address_of",
    "connection_of",
    "driver_factory",
    "fallback_policy",
    "load_handlers",
    "make_driver",
    "make_loops",
    "make_plan",
    "make_worker",
    "move_once",
    "on_redis",
    "open_async_client",
    "open_client",
    "open_desk",
    "open_driver",
    "open_failed",
    "open_sender",
    "open_served",
    "queues_of",
    "refuse_eviction",
    "with_application",
]

__getattr__ = importer(__name__, HOMES)
__dir__ = lister(__name__)
