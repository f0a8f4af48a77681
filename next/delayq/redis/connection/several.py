"""Urls that name several servers: `redis+sentinel://user:password@host1:26379,host2/…`. TLS: `rediss+…`."""

from urllib.parse import urlsplit

from delayq.core.display import mask_url
from delayq.redis.connection.url import Address


class SeveralServers:
    """The parts of such a url. `masked`: the url without secrets. `path`: the path without its first '/'.

    `default_port`: the port of a host without a port.
    """

    def __init__(self, url: str, *, default_port: int) -> None:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        self.masked = mask_url(url)
        self.path = parts.path.removeprefix("/")
        self.query = parts.query
        self.login = login + at
        self.hosts = [host if _has_port(host) else f"{host}:{default_port}" for host in hosts.split(",")]
        self._scheme = parts.scheme.partition("+")[0]

    def address(self, host: str, *, database: str = "") -> Address:
        """Return the address of one server with this login and these options. `host`: a host and port, as in a url.

        Raises ConfigError.
        """
        path = f"/{database}" if database else ""
        query = f"?{self.query}" if self.query else ""
        return Address(f"{self._scheme}://{self.login}{host}{path}{query}")


def host_in_url(host: str, port: int) -> str:
    """Write a host and port as in a url."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].count(":") == 1
