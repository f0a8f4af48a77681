"""Which server the sentinels name as the primary, and what to tell when they name none.

redis-py drops what the sentinels answer. Here a refusal (a password, an unknown service) is an answer that waiting does
not change, and an error of the primary names the primary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from delayq.redis.faults import REDIS_ERRORS, Kind, NoPrimary, fault_of, of_primary
from delayq.redis.slots import Address

ASK = "SENTINEL MASTER"


class Search:
    """What the sentinels answered to the question for one primary so far."""

    def __init__(self) -> None:
        self._down: Address | None = None
        self._refused: NoPrimary | None = None
        self._silent: NoPrimary | None = None

    def named(self, state: Mapping[str, Any]) -> Address | None:
        """The primary that a sentinel's answer names; None while the sentinel reports it as down."""
        address = (str(state["ip"]), int(state["port"]))
        if state["is_master"] and not state["is_sdown"] and not state["is_odown"]:
            return address
        self._down = address
        return None

    def failed(self, sentinel: Any, error: Exception) -> None:
        """A sentinel refused the question, or gave no answer."""
        options = sentinel.connection_pool.connection_kwargs
        found = NoPrimary(error, sentinel=(options["host"], options["port"]))
        if fault_of(error).kind is Kind.CONFIG:
            self._refused = self._refused or found
        else:
            self._silent = self._silent or found

    def nothing(self) -> NoPrimary:
        """The error to raise. A primary that is known and down outweighs a refusal, which outweighs silence."""
        if self._down:
            return of_primary(NoPrimary(), self._down)
        return self._refused or self._silent or NoPrimary()


class Sentinels(Sentinel):
    """The sentinels of an endpoint."""

    def discover_master(self, service_name: str) -> Address:
        """The address of the primary. Raises `NoPrimary`."""
        search = Search()
        for sentinel in tuple(self.sentinels):
            try:
                state = sentinel.execute_command(ASK, service_name)  # type: ignore[no-untyped-call]
            except REDIS_ERRORS as error:
                search.failed(sentinel, error)
                continue
            if address := search.named(state):
                put_first(self.sentinels, sentinel)
                return address
        raise search.nothing()


def put_first(sentinels: list[Any], sentinel: Any) -> None:
    """Ask this sentinel first the next time."""
    place = sentinels.index(sentinel)
    sentinels[0], sentinels[place] = sentinel, sentinels[0]


class _Named:
    """A connection to the primary whose errors say where the primary is.

    One whose server refuses writes for want of replicas is opened anew before its next use: the sentinels may have
    chosen another primary, and demote this one only later.
    """

    host: str
    port: int
    doubted = False

    def connect(self) -> None:
        if self.doubted:
            self.doubted = False
            self.disconnect()  # type: ignore[attr-defined]
        super().connect()  # type: ignore[misc]

    def connect_to(self, address: Address) -> None:
        try:
            super().connect_to(address)  # type: ignore[misc]  # of the class beside it
        except REDIS_ERRORS as error:
            of_primary(error, address)
            raise

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except REDIS_ERRORS as error:
            of_primary(error, (self.host, self.port))
            self.doubted = self.doubted or fault_of(error).code == "NOREPLICAS"
            raise


class ToPrimary(_Named, SentinelManagedConnection):
    """To the primary that the sentinels name."""


class ToPrimaryByTls(_Named, SentinelManagedSSLConnection):
    """As `ToPrimary`, by TLS."""
