"""A backend as the settings describe it: what it can do, and how each process makes its way to it. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from delayq.core.errors import BackendError, ConfigError
from delayq.core.names import new_id
from delayq.drivers.broker import Broker
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.failed_store import FailedStore, LooksFirst


class MakeBroker(Protocol):
    """Makes a broker; called once in each process, after the fork."""

    def __call__(self, *, answer_ms: int | None = None) -> Broker:
        """`answer_ms`: wait no longer than that for a connection or an answer (a supervisor has little time)."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What `backend(name, given, options)` of a driver's module answers.

    `where` names the place for people, without passwords. `failed` makes the store of failed jobs of a backend that
    has none of its own; None: the manager's.
    """

    capabilities: Capabilities
    make: MakeBroker
    where: str
    failed: Callable[[], FailedStore] | None = None

    def refuse_worker(self, connection: str) -> None:
        """Raises `ConfigError` when no worker can serve this connection."""
        if not self.capabilities.serves:
            raise ConfigError(
                f"No worker can serve the connection {connection!r}: it keeps no jobs.",
                hint="Name one that does: --connection default.",
            )
        if self.failed is None and not self.capabilities.own_failed:
            raise ConfigError(
                f"The connection {connection!r} has no place for failed jobs.",
                hint="Its driver needs a FailedStore; see delayq.drivers.failed_store.",
            )


def refuse_lost_failures(connection: str, backend: Backend) -> None:
    """Raises `ConfigError` when failed jobs of this connection could not be kept now."""
    if backend.failed is not None and not backend.capabilities.own_failed:
        refuse_store(connection, backend.failed)


def refuse_store(connection: str, make: Callable[[], FailedStore]) -> None:
    """As `refuse_lost_failures`, of one store: it is made, asked, and closed."""
    store = None
    try:
        store = make()
        if isinstance(store, LooksFirst):
            store.ready()
        else:
            store.get(new_id())
    except (BackendError, ConfigError) as error:
        raise ConfigError(
            f"The failed jobs of the connection {connection!r} could not be kept: {error.message}",
            hint=f"{error.hint or 'Mend that place.'} "
            f"Or name another place: failed = … below [connections.{connection}].",
        ) from error
    finally:
        if store is not None:
            store.close()
