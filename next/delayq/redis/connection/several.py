"""Urls that name several servers: `redis+sentinel://user:password@host1:26379,host2/…`. TLS: `rediss+…`."""

from collections.abc import Sequence

from delayq.core.display import mask_url
from delayq.redis.connection.url import OPTIONS, Address, Written, form_like, split_url


class SeveralServers:
    """The parts of a url that names several servers.

    * `masked`: the url without secrets.
    * `path`: the path without its first '/'.
    * `database`: the option `db`; '' = not given.
    * `query`: the other options.

    `default_port`: the port of the hosts that the url names without a port. `form`: an example of a url of this kind,
    for error messages. `more_options`: options that this kind of url may have besides OPTIONS, the options of all urls.
    """

    def __init__(self, url: str, *, default_port: int, form: str, more_options: Sequence[str] = ()) -> None:
        self.masked = mask_url(url)
        options_of_url = [*(one for one in OPTIONS if one != "db"), *more_options]
        self._written = Written(self.masked, form_like(url, form), options_of_url)
        parts = split_url(url, self._written)
        login, at, hosts = parts.netloc.rpartition("@")
        self.path = parts.path.removeprefix("/")
        options = parts.query.split("&")
        self.database = next((one.removeprefix("db=") for one in options if one.startswith("db=")), "")
        self.query = "&".join(one for one in options if not one.startswith("db="))
        self.login = login + at
        self.hosts = [host if _has_port(host) else f"{host}:{default_port}" for host in hosts.split(",")]
        self._scheme = parts.scheme.partition("+")[0]

    def address(self, host: str, *, database: str = "") -> Address:
        """Return the address of one server with this login and these options. `host`: a host and port, as in a url.

        Raises ConfigError.
        """
        path = f"/{database}" if database else ""
        query = f"?{self.query}" if self.query else ""
        return Address(f"{self._scheme}://{self.login}{host}{path}{query}", written=self._written)


def host_in_url(host: str, port: int) -> str:
    """Write a host and port as in a url."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_named_by(node: str, host: str) -> str:
    """Return the host that a node of a cluster gave in a reply.

    A node that does not know the host replies '' or '?'. In this case, return the host of the node that replied.
    `node`: host and port of the node that replied.
    """
    return host if host not in ("", "?") else node.rpartition(":")[0].strip("[]")


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].count(":") == 1
