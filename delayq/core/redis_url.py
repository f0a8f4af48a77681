"""A Redis URL, read into an `Endpoint`. Pure; nothing here opens a socket.

    redis://[user:password@]host[:6379][/db]              one server
    rediss://...                                          the same over TLS
    unix://[user:password@]/path/to/socket[?db=n]         one server, local socket
    redis+sentinel://[user:password@]h1[:26379],h2/service[/db]
    redis+cluster://[user:password@]h1[:6379],h2

`rediss+sentinel://` and `rediss+cluster://` use TLS. Options after `?`:

    protocol=2|3        wire protocol. Default 2: one round trip less at connect, and as fast
    db=n                for unix://, where the path is the socket
    ssl_*               as redis-py names them; only with TLS
    sentinel_username, sentinel_password     for the sentinels themselves
    username, password  instead of user:password@

Anything else is refused: an option that is silently ignored is worse than none. Timeouts and
retries are no options: producers are promised one answer within five seconds (see `resend`).
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from delayq.core.endpoint import Endpoint, Login, Topology
from delayq.core.errors import ConfigError
from delayq.core.mask import mask_url

_EXAMPLE = "Write for example redis://:password@localhost:6379/0 or unix:///run/redis.sock."
_ENCODE = "inside a password write '/' as %2F, '?' as %3F, '#' as %23, '@' as %40, '&' as %26, '%' as %25"
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_TLS_TEXT = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_ciphers")
_TLS = (*_TLS_TEXT, "ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version")
_LOGIN = ("username", "password")
_SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")
_OPTIONS = ("protocol", "db", *_LOGIN, *_SENTINEL_LOGIN, *_TLS)


def parse_endpoint(url: str) -> Endpoint:
    """Read a Redis URL. Raises `ConfigError`: cause, the URL without its password, an example."""
    text = url.strip()
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in _SCHEMES:
        kinds = ", ".join(f"{name}://" for name in _SCHEMES)
        if not separator:  # it may be a password alone
            raise ConfigError(f"The Redis URL has no scheme delayq knows ({kinds}).", hint=_EXAMPLE)
        raise _refused(text, f"has no scheme delayq knows ({kinds})")
    parts = _split(text)
    if parts.fragment or "@" in parts.query or ("@" in parts.path and scheme != "unix"):
        # Most likely a piece of a password, so no piece of it is repeated.
        raise _refused(text, f"has a '#', or an '@' behind the host; {_ENCODE}")
    base, _, kind = scheme.partition("+")
    topology = Topology(kind or "standalone")
    local = base == "unix"
    hosts = () if local else _hosts(text, parts, topology)
    options = _options(text, parts)
    service, db = ("", "") if local else _service_and_db(text, parts, topology)
    if db and "db" in options:
        raise _refused(text, "gives the database twice, behind the host and after '?'")
    return Endpoint(
        url=mask_url(text),
        topology=topology,
        hosts=hosts,
        path=_socket_path(text, parts) if local else "",
        db=_db(text, db or options.get("db", "0"), topology),
        service=service,
        login=_login(text, parts, options),
        sentinel_login=_sentinel_login(text, options, topology),
        protocol=_protocol(text, options.get("protocol", "2")),
        tls=base == "rediss",
        tls_options=_tls_options(text, options, tls=base == "rediss"),
    )


def _split(url: str) -> SplitResult:
    """As `urlsplit`, which from one Python to the next refuses more of what stands where one host is expected."""
    scheme, _, rest = url.partition("://")
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    try:
        return urlsplit(f"{scheme}://host{rest[len(netloc) :]}")._replace(netloc=netloc)
    except ValueError:
        raise _refused(url, "is no URL") from None


def _refused(url: str, why: str) -> ConfigError:
    return ConfigError(f"The Redis URL {mask_url(url)!r} {why}.", hint=_EXAMPLE)


def _options(url: str, parts: SplitResult) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            if "password" in parts.query:
                # Possibly the rest of a password with a bare '&' in it, so the name is not repeated.
                raise _refused(url, f"has an option delayq does not take; {_ENCODE}")
            near = get_close_matches(name, _OPTIONS, n=1)
            known = f"did you mean {near[0]}?" if near else f"known are {', '.join(_OPTIONS)}"
            raise _refused(url, f"has an option delayq does not take, {name!r} ({known})")
        if name in options:
            raise _refused(url, f"gives the option {name!r} twice")
        options[name] = value
    return options


def _hosts(url: str, parts: SplitResult, topology: Topology) -> tuple[tuple[str, int], ...]:
    named = parts.netloc.rpartition("@")[2]
    if not named:
        raise _refused(url, "names no host")
    default_port = 26379 if topology is Topology.SENTINEL else 6379
    hosts = tuple(_host(url, part.strip(), default_port) for part in named.split(","))
    if len(hosts) > 1 and topology is Topology.STANDALONE:
        raise _refused(url, "names several hosts; use redis+sentinel:// or redis+cluster://")
    return hosts


def _host(url: str, text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _refused(url, "has an IPv6 address without its closing bracket")
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not host:
        raise _refused(url, "names an empty host")
    if not port:
        return unquote(host), default_port
    # isascii: int() would also read digits of other scripts
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise _refused(url, f"has no usable port (1 to 65535); {_ENCODE}")
    return unquote(host), int(port)


def _socket_path(url: str, parts: SplitResult) -> str:
    beside_login = parts.netloc.rpartition("@")[2]
    if beside_login or len(parts.path) < 2:
        raise _refused(url, "names no socket; unix:// takes an absolute path, with three slashes")
    return unquote(parts.path)


def _service_and_db(url: str, parts: SplitResult, topology: Topology) -> tuple[str, str]:
    pieces = [unquote(piece) for piece in parts.path.strip("/").split("/") if piece]
    if topology is not Topology.SENTINEL:
        if len(pieces) > 1:
            raise _refused(url, "has more than a database number behind the host")
        return "", pieces[0] if pieces else ""
    if not 1 <= len(pieces) <= 2:
        raise _refused(url, "must name the service behind the sentinels, as in redis+sentinel://host:26379/main/0")
    return pieces[0], pieces[1] if len(pieces) == 2 else ""


def _db(url: str, text: str, topology: Topology) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise _refused(url, f"has no usable database number, {text!r}")
    if int(text) and topology is Topology.CLUSTER:
        raise _refused(url, f"asks for database {text}; a cluster has only database 0")
    return int(text)


def _login(url: str, parts: SplitResult, options: dict[str, str]) -> Login:
    userinfo, at, _ = parts.netloc.rpartition("@")
    asked = any(options.get(name) for name in _LOGIN)
    if at and asked:
        raise _refused(url, "gives a login twice, before the host and after '?'")
    if at:
        user, _, password = userinfo.partition(":")
        login = Login(unquote(user), unquote(password))
    else:
        login = Login(options.get("username", ""), options.get("password", ""))
    if login.username and not login.password:
        # redis-py would send an empty password; a password written without its ':' is the usual cause.
        raise _refused(url, "has a user but no password; a password alone is written :password@")
    return login


def _sentinel_login(url: str, options: dict[str, str], topology: Topology) -> Login:
    login = Login(options.get("sentinel_username", ""), options.get("sentinel_password", ""))
    if login != Login() and topology is not Topology.SENTINEL:
        raise _refused(url, "has sentinel_* options; they belong to redis+sentinel://")
    if login.username and not login.password:
        raise _refused(url, "has sentinel_username but no sentinel_password")
    return login


def _protocol(url: str, text: str) -> int:
    if text not in ("2", "3"):
        raise _refused(url, f"asks for protocol {text!r}; Redis speaks 2 and 3")
    return int(text)


def _tls_options(url: str, options: dict[str, str], *, tls: bool) -> tuple[tuple[str, str | bool], ...]:
    given = {name: options[name] for name in _TLS if name in options}
    if given and not tls:
        raise _refused(url, f"has TLS options ({', '.join(given)}) without TLS; use rediss://")
    return tuple((name, _tls_value(url, name, value)) for name, value in given.items())


def _tls_value(url: str, name: str, value: str) -> str | bool:
    if name == "ssl_check_hostname":
        if value.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise _refused(url, f"has {name}={value}; write true or false")
        return value.lower() in ("true", "yes", "1")
    if name == "ssl_cert_reqs":
        # CERT_NONE is how the ssl module, and many hosts' ready-made URLs, spell it.
        plain = value.lower().removeprefix("cert_")
        if plain not in ("none", "optional", "required"):
            raise _refused(url, f"has {name}={value}; write none, optional or required")
        return plain
    if name == "ssl_min_version" and value not in ("1.2", "1.3"):
        raise _refused(url, f"has {name}={value}; write 1.2 or 1.3")
    return value
