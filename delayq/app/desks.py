"""The desks of connections that are no Redis, or that keep no jobs: see `open_desk` and its neighbours."""

from __future__ import annotations

from dataclasses import replace

from delayq.app.handlers import load_handlers
from delayq.core.routes import Route, Routes
from delayq.drivers.background import BackgroundConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.desk import BrokerDesk, Sender
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.jobs.current import make_manager, replace_manager
from delayq.settings import Settings


def desk_of(settings: Settings, name: str) -> BrokerDesk | None:
    """The desk of that connection's broker; None when it is a Redis, which a client speaks to."""
    connection = make_manager(settings).connection(name)
    if not isinstance(connection, BrokerConnection):
        return None
    options = replace(connection.options, routes=_queues(settings))
    return BrokerDesk(type(connection)(name, connection.backend, options))


def sender_of(settings: Settings, name: str) -> Sender:
    """Where jobs are handed in that the connection does not keep. Jobs that it runs here are the application's."""
    load_handlers([settings.app] if settings.app else [])
    manager = make_manager(settings)
    replace_manager(manager)
    return Sender(manager.connection(name), replace(manager.options_of(name), routes=_queues(settings)))


def failed_of(settings: Settings, name: str) -> FailedDesk | None:
    """The failed jobs of that connection; None when a Redis keeps them."""
    connection = make_manager(settings).connection(name)
    if isinstance(connection, BackgroundConnection):
        return FailedDesk(connection, connection.options, connection.failed_store(), bytes)
    desk = desk_of(settings, name)
    return None if desk is None else desk.failed()


def _queues(settings: Settings) -> Routes:
    """The routes without their connections: one is chosen."""
    return {pattern: Route(route.queue) for pattern, route in settings.routes.items() if route.queue}
