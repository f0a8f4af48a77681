"""Redis with Sentinel: the address, the search for the primary, and the leaf that follows the primary.

Sentinels are servers that watch one primary and its replicas. If the primary fails, they make a replica the new primary
(a failover). A client asks a sentinel for the current primary by the name of the service.
"""

import re
import time
from collections.abc import Callable
from copy import copy
from typing import Any, Final

from delayq.core.errors import BackendUnavailable, CallRefused, ConfigError, LoginRefused
from delayq.redis.calls.call import Call, read
from delayq.redis.connection.errors import is_unknown_command
from delayq.redis.connection.leaf import ConnectionLost, Leaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.several import SeveralServers, host_in_url
from delayq.redis.connection.url import CLUSTER_FORM, SENTINEL_FORM, SINGLE_FORM, Address, form_like

SENTINEL_TIMEOUT: Final = 0.5
"""Seconds after which a sentinel without an answer is skipped."""

ASK_EVERY: Final = 1.0
"""Seconds after which a leaf asks the sentinels again before it sends."""

SEARCH_TIMEOUT: Final = 2.0
"""Seconds after which a search asks no further sentinel. The next search begins with sentinels that did not fail."""

SENTINEL_REST: Final = 10.0
"""How long a sentinel that did not answer is not asked, in seconds."""

_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
_SENTINEL_OPTION: Final = re.compile(r"(?:^|&)sentinel_(username|password)=([^&]*)")


class SentinelAddress:
    """The address of a service: `redis+sentinel://user:password@host:26379,host2/SERVICE/0`. Raises ConfigError.

    The user and password are for the primary. The options `sentinel_username` and `sentinel_password` are for the
    sentinels. All other options, and TLS (`rediss+sentinel`), apply to both.
    """

    def __init__(self, url: str) -> None:
        servers = SeveralServers(url, default_port=26379, form=SENTINEL_FORM, more_options=_SENTINEL_OPTIONS)
        self.masked = servers.masked
        self.service, _, database = servers.path.partition("/")
        self._database = database or servers.database
        if not self.service:
            raise ConfigError(
                f"The url {self.masked!r} does not name the service of the sentinels.",
                hint=f"Write {form_like(url, SENTINEL_FORM)}.",
                field="url",
            )
        of_sentinels = dict(_SENTINEL_OPTION.findall(servers.query))
        servers.query = _SENTINEL_OPTION.sub("", servers.query).lstrip("&")
        self._primary = copy(servers)
        servers.login = ""
        if "password" in of_sentinels:
            servers.login = f"{of_sentinels.get('username', '')}:{of_sentinels['password']}@"
        self.sentinels = [servers.address(host) for host in servers.hosts]
        self.primary("localhost", 6379)  # checks the database and the options

    def primary(self, host: str, port: int) -> Address:
        """Return the address of the primary at this host and port."""
        return self._primary.address(host_in_url(host, port), database=self._database)


class Sentinels:
    """Asks the sentinels of a service for its primary. `make_leaf`: makes the leaf of one server."""

    def __init__(
        self,
        address: SentinelAddress,
        make_leaf: Callable[[Address, float], Leaf[Any]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._clock = clock
        self._failed_at: dict[str, float] = {}
        self._executors = [
            ServerExecutor(make_leaf(sentinel, SENTINEL_TIMEOUT), retry_timeout=0) for sentinel in address.sentinels
        ]

    async def primary(self) -> Address:
        """Return the address of the current primary.

        After a failover, some sentinels learn seconds later than others about the new primary. Meanwhile the old one
        may come back and accept jobs, which are lost. So all sentinels are asked, and the newest answer counts: the one
        with the highest epoch, a number that grows with each failover. The sentinel that leads a failover has the new
        epoch before it names the new primary, so of equal epochs, the answer of another sentinel counts. A sentinel
        that did not answer is left out for SENTINEL_REST seconds if another one answers. After SEARCH_TIMEOUT seconds,
        no further sentinel is asked. The time of a slow lookup of a host name does not count, because it has no limit.

        Raises ConnectionLost if no sentinel answers. Raises LoginRefused if the servers that answer refuse the login,
        do not know the service, or are not sentinels.
        """
        refusal: LoginRefused | None = None
        newest: tuple[int, bool, str, int] | None = None
        reasons: dict[str, None] = {}
        until = self._clock() + SEARCH_TIMEOUT
        for executor in sorted(self._executors, key=lambda one: self._failed_at.get(one.where, 0.0)):
            failed_at = self._failed_at.get(executor.where)
            if newest is not None and failed_at is not None and self._clock() < failed_at + SENTINEL_REST:
                continue
            if self._clock() >= until:
                break
            asked_at = self._clock()
            try:
                named = await executor.run(_primary_of(self._address.service))
            except BackendUnavailable as error:
                reasons[str(error.__cause__ or error.message).removesuffix(".")] = None
                self._failed_at[executor.where] = self._clock()
                took = self._clock() - asked_at
                until += took if took > SEARCH_TIMEOUT else 0.0
                continue
            except LoginRefused as error:
                refusal = LoginRefused(
                    f"A sentinel refused the login: {error.message}",
                    hint="The user and password for the sentinels are the options sentinel_username and "
                    "sentinel_password of the url.",
                    field="url",
                )
                continue
            except CallRefused as error:
                refusal = self._refusal(executor.where, error)
                continue
            self._failed_at.pop(executor.where, None)
            newest = named if newest is None else max(newest, named)
        if newest is not None:
            _, _, host, port = newest
            return self._address.primary(host, port)
        asked = ", ".join(executor.where for executor in self._executors if executor.where in self._failed_at)
        raise refusal or ConnectionLost(f"none of its sentinels answered ({asked}): {'; '.join(reasons)}", sent=False)

    def _refusal(self, where: str, error: CallRefused) -> LoginRefused:
        if is_unknown_command(error):
            return LoginRefused(
                f"The server at {where} is not a sentinel.",
                hint=f"For a single server, write {form_like(where, SINGLE_FORM)}. For a Redis Cluster, write "
                f"{form_like(where, CLUSTER_FORM)}.",
                field="url",
            )
        if "No such master" not in error.message:
            return LoginRefused(error.message, hint=error.hint, field="url")
        return LoginRefused(
            f"The sentinel at {where} does not know the service {self._address.service!r}.",
            hint="Write the name that `sentinel monitor` has in the configuration of the sentinels.",
            field="url",
        )

    async def sleep(self, seconds: float) -> None:
        """Wait without using a connection."""
        await self._executors[0].sleep(seconds)

    async def close(self) -> None:
        """Close the idle connections."""
        for executor in self._executors:
            await executor.close()


class SentinelLeaf:
    """A leaf that sends to the primary of a service. Its connections are pairs: the leaf of a server, and a connection.

    After a lost connection, and after `close`, the leaf asks the sentinels again before the next request. Idle
    connections are then closed.

    The leaf also asks again every ASK_EVERY seconds, because the sentinels may replace a primary that still works. The
    replaced primary accepts jobs until it becomes a replica. These jobs are lost then, even if another replica has
    confirmed them. If no sentinel answers, the leaf stays with its primary.
    """

    def __init__(
        self,
        address: SentinelAddress,
        make_leaf: Callable[[Address, float], Leaf[Any]],
        *,
        try_timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._ask_at = 0.0
        self._address = address
        self._sentinels = Sentinels(address, make_leaf)
        self._make_leaf = make_leaf
        self._try_timeout = try_timeout
        self._leaves: dict[str, Leaf[Any]] = {}
        self._primary: Leaf[Any] | None = None
        self.where = address.masked
        """The address of the server that was asked last, or of the sentinels if none answered, without secrets."""

    async def send(self, request: bytes, *, within: float | None = None) -> tuple[Leaf[Any], Any]:
        """Send packed commands; see Leaf."""
        leaf = self._primary
        if leaf is None:
            leaf = await self._find()
        elif self._clock() >= self._ask_at:
            leaf = await self._follow(leaf)
        try:
            return leaf, await leaf.send(request, within=within)
        except ConnectionLost:
            await self._forget(leaf)
            raise

    async def receive(
        self, connection: tuple[Leaf[Any], Any], replies: int, *, block: float = 0.0, within: float | None = None
    ) -> list[Any]:
        """Read replies; see Leaf."""
        leaf, own = connection
        try:
            return await leaf.receive(own, replies, block=block, within=within)
        except ConnectionLost:
            await self._forget(leaf)
            raise

    async def sleep(self, seconds: float) -> None:
        """Wait without using a connection."""
        await self._sentinels.sleep(seconds)

    async def close(self) -> None:
        """Close the idle connections. The executor also calls this when the primary turns out to be a replica."""
        if self._primary is not None:
            await self._forget(self._primary)
        await self._sentinels.close()

    async def _follow(self, leaf: Leaf[Any]) -> Leaf[Any]:
        """Return the leaf of the primary, which may have changed. `leaf`: the leaf of the last known primary."""
        self._ask_at = self._clock() + ASK_EVERY
        try:
            current = await self._find()
        except (ConnectionLost, LoginRefused):
            self._ask_at = self._clock() + SENTINEL_REST  # each silent sentinel delays the call
            self.where, self._primary = leaf.where, leaf
            return leaf
        if current is not leaf:
            await leaf.close()
        return current

    async def _find(self) -> Leaf[Any]:
        """Ask the sentinels for the primary, and return its leaf."""
        self._ask_at = self._clock() + ASK_EVERY
        self.where = self._address.masked
        address = await self._sentinels.primary()
        self.where = address.masked
        leaf = self._leaves.get(address.masked)
        if leaf is None:
            leaf = self._leaves[address.masked] = self._make_leaf(address, self._try_timeout)
        self._primary = leaf
        return leaf

    async def _forget(self, leaf: Leaf[Any]) -> None:
        if leaf is self._primary:
            self._primary = None
        await leaf.close()


def _primary_of(service: str) -> Call[tuple[int, bool, str, int]]:
    """Return the call that asks a sentinel for the primary.

    The reply has the epoch, False if this sentinel leads a failover now, and the host and port of the primary.
    """
    return read("SENTINEL", "MASTER", service, parse=_epoch_and_address)


def _epoch_and_address(reply: list[bytes]) -> tuple[int, bool, str, int]:
    about = dict(zip(reply[::2], reply[1::2], strict=True))
    is_settled = b"failover_in_progress" not in about[b"flags"]
    return int(about[b"config-epoch"]), is_settled, about[b"ip"].decode(), int(about[b"port"])
