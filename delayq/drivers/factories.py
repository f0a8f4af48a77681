"""From a driver's name to what makes its connections: those of delayq, and those that other packages bring.

[project.entry-points."delayq.drivers"]
carrier-pigeon = "pigeons.delayq:backend"       a function (name, settings, options) -> Connection or Backend
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

from delayq.core.errors import ConfigError
from delayq.core.events import Tell, nobody_listens
from delayq.core.options import Options
from delayq.drivers import known
from delayq.drivers.background import Aside, BackgroundConnection
from delayq.drivers.checked import Factory, checked
from delayq.drivers.connection import Connection
from delayq.drivers.deferred import DeferredConnection
from delayq.drivers.failed.choosing import choose
from delayq.drivers.failover import FailoverConnection, check_targets
from delayq.drivers.null import NullConnection
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.drivers.sync import Runner, SyncConnection
from delayq.redis.embedded import default_data_dir
from delayq.redis.opening import open_connector
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings

GROUP: Final = "delayq.drivers"


def _nobody(word: str) -> Any:
    raise ConfigError(f"This manager was given nobody for {word}.", hint="Use the one of delayq.current_manager().")


@dataclass(frozen=True, slots=True)
class Hands:
    """What connections without a backend need of the process they are in; the job API brings it.

    `runner` runs jobs, `module_of` names the module that has the handler of a job, `tell` tells listeners.
    """

    runner: Runner | None = None
    module_of: Callable[[str], str] = lambda name: str(_nobody("jobs in a process of their own"))
    tell: Tell = nobody_listens


class Makers:
    """The factories that come with delayq. `find` gives another connection of the manager, `given` its settings."""

    def __init__(
        self,
        settings: Settings,
        hands: Hands,
        find: Callable[[str], Connection],
        given: Callable[[str], ConnectionSettings],
    ) -> None:
        self._settings = settings
        self._hands = hands
        self._find = find
        self._given = given

    @property
    def factories(self) -> Mapping[str, Factory]:
        """By driver."""
        return {
            "redis": self._redis,
            "sync": self._sync,
            "null": _null,
            "deferred": self._deferred,
            "background": self._background,
            "failover": self._failover,
            "outbox": _outbox,
            **{driver: partial(_broker, driver) for driver in known.BROKERS},
            "database": self._database,
        }

    def _redis(self, name: str, given: ConnectionSettings, options: Options) -> Connection:
        Given(name, given).no_more()
        return RedisConnection(name, open_connector(self._settings, given.url), options)

    def _sync(self, name: str, given: ConnectionSettings, options: Options) -> Connection:
        Given(name, given).no_more()
        if self._hands.runner is None:
            raise ConfigError(f"The connection {name!r} runs jobs, and this manager was given nobody to run them.")
        return SyncConnection(name, options, self._hands.runner)

    def _deferred(self, name: str, given: ConnectionSettings, options: Options) -> Connection:
        Given(name, given).no_more()
        return DeferredConnection(name, options)

    def _background(self, name: str, given: ConnectionSettings, options: Options) -> Connection:
        words = Given(name, given)
        app, store, failed = words.text("app"), choose(name, words, options), str(given.options.get("failed", ""))
        words.no_more()
        return BackgroundConnection(
            name, options, Aside(app or self._settings.app or "", self._hands.module_of, failed, store)
        )

    def _failover(self, name: str, given: ConnectionSettings, options: Options) -> Connection:
        words = Given(name, given)
        to, rest_ms = words.names("to"), words.duration_ms("rest", "5s")
        words.no_more()
        targets = check_targets(name, to, lambda one: self._given(one).driver, known.KEEP_NOTHING)
        return FailoverConnection(name, targets, self._find, self._hands.tell, rest_ms=rest_ms)

    def _database(self, name: str, given: ConnectionSettings, options: Options) -> Connection:
        """Without a url it has the database of the settings, else a file of its own in the data directory."""
        if not given.place and self._settings.database is not None:
            given = replace(given, place=self._settings.database.url)
        own_file = (self._settings.data_dir or default_data_dir()) / "jobs.db"
        made: Connection = known.module_of("database").connect(name, given, options, own_file)
        return made


def made_by(driver: str, name: str, *, known: Iterable[str]) -> Factory:
    """The factory that an installed package brings for that driver. Raises `ConfigError` when none does, or it fails.

    `name` is the connection's, for the sentence.
    """
    found = sorted(entry_points(group=GROUP, name=driver), key=lambda point: point.value)
    if not found:
        installed = sorted({point.name for point in entry_points(group=GROUP)})
        raise ConfigError(
            f"The connection {name!r} has the driver {driver!r}; known are {', '.join([*known, *installed])}.",
            hint="A driver of your own is made known with manager.extend, or by an entry point of delayq.drivers.",
        )
    if len({point.value for point in found}) > 1:
        raise ConfigError(
            f"Two installed packages bring a driver {driver!r}: {', '.join(point.value for point in found)}.",
            hint="Uninstall one of them.",
        )
    try:
        factory: Any = found[0].load()
    except Exception as error:
        raise ConfigError(
            f"The driver {driver!r} ({found[0].value}) could not be loaded: {type(error).__name__}: {error}.",
            hint="Mend or uninstall the package that brings it.",
        ) from error
    return checked(driver, factory, found[0].value)


def _null(name: str, given: ConnectionSettings, options: Options) -> Connection:
    Given(name, given).no_more()
    return NullConnection(name, options)


def _outbox(name: str, given: ConnectionSettings, options: Options) -> Connection:
    from delayq.drivers.outbox.connection import connect  # few applications have one

    return connect(name, given, options)


def _broker(driver: str, name: str, given: ConnectionSettings, options: Options) -> Backend:
    made = known.module_of(driver).backend(name, given, options)
    if not isinstance(made, Backend):
        raise ConfigError(f"The driver {driver!r} made {type(made).__name__} for {name!r}, which is no backend.")
    return made
