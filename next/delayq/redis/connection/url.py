"""Server addresses. All redis-py connections are created here."""

import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Final, NamedTuple, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

import redis.asyncio.connection as asyncio_connections
import redis.connection as blocking_connections
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from delayq.core.display import did_you_mean, mask_url, shown
from delayq.core.errors import ConfigError
from delayq.redis.connection.leaf import TRY_TIMEOUT

_WITHOUT_SETINFO: Final[dict[str, None]] = (
    {"driver_info": None}
    if "driver_info" in signature(blocking_connections.AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}  # redis-py before 7
)
OPTIONS: Final = [
    "db",
    "protocol",
    "username",
    "password",
    "client_name",
    "socket_connect_timeout",
    "socket_keepalive",
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_min_version",
    "ssl_password",
]
"""The options that a url may have after '?'. Other options of redis-py cannot be given as text, or delayq sets them."""

SINGLE_FORM: Final = "redis://host:6379/0"
SENTINEL_FORM: Final = "redis+sentinel://host1:26379,host2:26379/SERVICE/0"
CLUSTER_FORM: Final = "redis+cluster://host1:6379,host2:6379"

_VALUES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "ssl_cert_reqs": (("none", "optional", "required"), "none, optional or required"),
    "ssl_check_hostname": (("true", "false"), "true or false"),
    "ssl_min_version": (("771", "772"), "771 for TLS 1.2, or 772 for TLS 1.3"),
}
"""The values that an option may have, also as a text for people."""

_ALL_FORMS: Final = (
    f"{SINGLE_FORM}, rediss://host:6379/0, unix:///path/to/redis.sock, {SENTINEL_FORM} or {CLUSTER_FORM}"
)


class _TimedByKernel:
    """Lets the kernel time reads and writes. Timeouts in Python would cost one more system call for each of them.

    The kernel cannot time non-blocking sockets, such as all sockets of gevent and eventlet. Python times them.
    """

    try_timeout = TRY_TIMEOUT

    def _connect(self) -> socket.socket:
        connected: socket.socket = super()._connect()  # type: ignore[misc]
        _time_by_kernel(connected, self.try_timeout)
        return connected


def _time_by_kernel(connected: socket.socket, seconds: float) -> None:
    connected.settimeout(None)
    if sys.platform == "win32" or not os.get_blocking(connected.fileno()):
        connected.settimeout(seconds)
        return
    timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)


def set_timeout(connection: blocking_connections.AbstractConnection, seconds: float) -> None:
    """Change the time limit of the reads and writes of an open connection that `Address` has made."""
    connected: Any = connection._sock
    if isinstance(connection, _TimedByKernel):
        _time_by_kernel(connected, seconds)
    else:
        connection.socket_timeout = seconds
        connected.settimeout(seconds)


class _UnixConnection(_TimedByKernel, blocking_connections.UnixDomainSocketConnection):
    pass


class _TcpConnection(_TimedByKernel, blocking_connections.Connection):
    pass


class Written(NamedTuple):
    """The url that the user wrote, for errors about the address of one of its servers.

    `masked`: the url without secrets. `form`: the right form. `options`: the options that it may have after '?'.
    """

    masked: str
    form: str
    options: Sequence[str]


class Address:
    """The address of a server: `redis://host:port/db`, `rediss://…` or `unix:///path?db=0`. Raises ConfigError.

    `written`: the url with several servers from which this address was made; None = `url` is the url of the user.
    """

    def __init__(self, url: str, *, written: Written | None = None) -> None:
        self.masked = mask_url(url)
        self.is_of_one_server = written is None
        """True if the url of the user names one server, which must not be a sentinel or a node of a cluster."""
        self._written = written or Written(self.masked, _ALL_FORMS, OPTIONS)
        self._check_options(parse_qs(split_url(url, self._written).query, keep_blank_values=True))
        try:
            _check_parts(url, needs_host=written is not None)
            self._options = dict(blocking_connections.parse_url(url))
        except ValueError:
            raise _no_address(self._written) from None
        self._options.pop("connection_class", None)
        self._is_socket = url.startswith("unix:")
        self._is_tls = url.startswith("rediss:")
        try:
            self.blocking_connection()
            self.asyncio_connection()
        except (TypeError, RedisError):
            raise ConfigError(
                f"The url {self._written.masked!r} has an option with an invalid value, or an option of another kind "
                "of url.",
                hint="Options that begin with ssl_ need a url that begins with rediss. ssl_ca_path and ssl_password "
                "need redis-py 7.2.",
                field="url",
            ) from None
        if self._is_tls:
            self._check_tls()

    @property
    def form_with_password(self) -> str:
        """An example of a url with a password, in the form of the user's url, for error messages."""
        if self._is_socket:
            return "unix://:password@/path/to/redis.sock"
        form = form_like(self.masked, SINGLE_FORM) if self.is_of_one_server else self._written.form
        return form.replace("://", "://:password@")

    def blocking_connection(self, try_timeout: float = TRY_TIMEOUT) -> blocking_connections.AbstractConnection:
        """Return a new blocking connection that is not open yet.

        `try_timeout` limits a connect, a write and a read, each in seconds.
        """
        return cast(blocking_connections.AbstractConnection, self._make(blocking_connections, try_timeout))

    def asyncio_connection(self, try_timeout: float = TRY_TIMEOUT) -> asyncio_connections.AbstractConnection:
        """Return a new asyncio connection that is not open yet. `try_timeout` limits a connect, in seconds."""
        return cast(asyncio_connections.AbstractConnection, self._make(asyncio_connections, try_timeout))

    def _check_options(self, options: dict[str, list[str]]) -> None:
        """Check the names of the options after '?', and the values that redis-py does not check or explain."""
        for option, values in options.items():
            if option not in self._written.options:
                raise ConfigError(
                    f"The url {self._written.masked!r} has an option that delayq does not support: {shown(option)}.",
                    hint=did_you_mean(option, self._written.options) or f"Use {', '.join(self._written.options)}.",
                    field="url",
                )
            allowed, text = _VALUES.get(option, ((), ""))
            if allowed and values[-1].lower() not in allowed:
                raise ConfigError(
                    f"The option {option} of the url {self._written.masked!r} has an invalid value.",
                    hint=f"Use {text}.",
                    field="url",
                )
            if option == "ssl_ca_path" and not os.path.isdir(values[-1]):
                raise ConfigError(
                    f"The option {option} of the url {self._written.masked!r} does not name an existing directory.",
                    hint="Check the path.",
                    field="url",
                )

    def _check_tls(self) -> None:
        """Check the TLS options and certificates now, because redis-py would read them only when it connects."""
        connection = cast(asyncio_connections.SSLConnection, self.asyncio_connection())
        try:
            connection.ssl_context.get()
        except (OSError, TypeError, ValueError) as error:
            said = ", ".join(option for option in self._options if option.startswith("ssl_"))
            raise ConfigError(
                f"The url {self._written.masked!r} has TLS options that cannot be used: {error}.",
                hint=f"Check the values of {said}. Certificates and keys must be in the PEM format.",
                field="url",
            ) from None

    def _make(self, module: Any, try_timeout: float) -> object:
        """Return a new connection. All important options are set, because the defaults of redis-py vary by version."""
        options: dict[str, Any] = {
            "socket_timeout": try_timeout,
            "socket_connect_timeout": try_timeout,
            "health_check_interval": 0,
            **_WITHOUT_SETINFO,
            **self._options,
            "protocol": 2,
        }
        for given, other in (("ssl_certfile", "ssl_keyfile"), ("ssl_keyfile", "ssl_certfile")):
            if given in options:  # asyncio connections of redis-py before 7.2 ignore one file without the other
                options.setdefault(other, options[given])
        if module is asyncio_connections:
            options["socket_timeout"] = None  # the leaf implements the timeout
        else:
            options["retry"] = Retry(NoBackoff(), 0)
            if not self._is_tls:
                options["socket_timeout"] = None
                kind: Any = _UnixConnection if self._is_socket else _TcpConnection
                connection = kind(**options)
                connection.try_timeout = try_timeout
                return connection
        if self._is_socket:
            return module.UnixDomainSocketConnection(**options)
        if self._is_tls:
            return module.SSLConnection(**options)
        return module.Connection(**options)


class UnsetAddress(Address):
    """The address of a client that was made without a url, while a test answers its calls.

    `missing`: raises the ConfigError about the url. `missing` is called if the client opens a connection after the
    test.
    """

    def __init__(self, missing: Callable[[], Any]) -> None:
        # None at first, because the constructor of Address makes connections, to check the options.
        self._missing: Callable[[], Any] | None = None
        super().__init__("redis://unset")
        self._missing = missing

    def blocking_connection(self, try_timeout: float = TRY_TIMEOUT) -> blocking_connections.AbstractConnection:
        """Raise ConfigError."""
        if self._missing is not None:
            self._missing()
        return super().blocking_connection(try_timeout)

    def asyncio_connection(self, try_timeout: float = TRY_TIMEOUT) -> asyncio_connections.AbstractConnection:
        """Raise ConfigError."""
        if self._missing is not None:
            self._missing()
        return super().asyncio_connection(try_timeout)


def form_like(url: str, form: str) -> str:
    """Return `form`, the pattern of a url, with `rediss` instead of `redis` if `url` uses TLS.

    `url` may be the url of another kind of server.
    """
    return form.replace("redis", "rediss", 1) if url.startswith("rediss") else form


def split_url(url: str, written: Written) -> SplitResult:
    """Return the parts of a url. Raises ConfigError."""
    try:
        return urlsplit(url)
    except ValueError:  # for example, '[' without ']'
        raise _no_address(written) from None


def _no_address(written: Written) -> ConfigError:
    return ConfigError(
        f"The url {written.masked!r} is not the address of a Redis server.",
        hint=f"Write {written.form}.",
        field="url",
    )


def _check_parts(url: str, *, needs_host: bool) -> None:
    """Raise ValueError if the host has a space or is missing, or if the path is not a number.

    redis-py would use database 0 for such a path, and localhost for a missing host.
    """
    if url.startswith("unix:"):
        return
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path.removeprefix("/")
    if (needs_host and not host) or " " in host or (path and not (path.isascii() and path.isdecimal())):
        raise ValueError(url)
