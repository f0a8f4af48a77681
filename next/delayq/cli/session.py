"""The state of one run of the command line: its root options, and the settings that they are a part of."""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import typer
from pydantic import SecretStr

from delayq.client import DelayQ
from delayq.core.errors import CallRefused, DelayqError, JobNotFound, QueueNotFound
from delayq.core.names import check_queue
from delayq.settings.connections import route_of
from delayq.settings.model import Settings, load_settings
from delayq.settings.sources import flag_of

if TYPE_CHECKING:
    from delayq.redis.embedded.server import EmbeddedServer

audit: Final = logging.getLogger("delayq.audit")


@dataclass
class Deed:
    """A change that a person makes. `outcome` is what became of it."""

    what: str
    on: str
    reason: str
    outcome: object = "done"


@dataclass
class CliSession:
    """The root options of one run: what they say of settings, None for nothing, and whether chatter is left out."""

    given: Mapping[str, object]
    quiet: bool = False

    def root_words(self) -> list[str]:
        """Return the root options as they were given, for another run of the command line."""
        said = {name: str(value) for name, value in self.given.items() if value is not None}
        level = {"DEBUG": ["-v"], "WARNING": ["-q"]}.get(said.pop("log_level", ""), [])
        return level + [word for name, value in said.items() for word in (flag_of(name), value)]

    @cached_property
    def settings(self) -> Settings:
        """The settings of the chosen connection; raises ConfigError."""
        return load_settings(**self.given).chosen()

    def routed(self, job_name: str) -> Settings:
        """Return the settings with the connection and queue to which [routes] send a job; raises ConfigError.

        A connection or url that this command was given goes before that of the route.
        """
        of_all = self.with_given()
        route = route_of(of_all.routes, job_name)
        is_elsewhere = route.connection and not (self.given.get("connection") or self.given.get("url"))
        chosen = of_all.of_connection(route.connection or "") if is_elsewhere else of_all.chosen()
        return chosen.model_copy(update={"queue": route.queue}) if route.queue else chosen

    def queue_or_default(self, queue: str | None) -> str:
        """Return the queue that a command names, or the default one. Raises InvalidInput for '': an unset variable."""
        return self.settings.queue if queue is None else check_queue(queue)

    def with_given(self, **given: object) -> Settings:
        """Return the settings of all connections, with what this command was given; raises ConfigError."""
        return load_settings(**self.given, **given)

    @cached_property
    def embedded(self) -> "EmbeddedServer":
        """The embedded server of this project, which need not run; raises ConfigError."""
        return embedded_of(self.settings)

    def with_server(self, settings: Settings, *, tells_start: bool = True) -> Settings:
        """Return settings with a url. Without one, find or start the embedded server; a start is a line on stderr.

        Raises ConfigError, BackendUnavailable.
        """
        if not settings.uses_embedded:
            return settings
        server = embedded_of(settings)
        if server.find_or_start() and tells_start and not self.quiet:
            print(f"delayq: started the embedded server, data in {server.data_dir}", file=sys.stderr)
        return settings.model_copy(update={"url": SecretStr(server.url)})

    def client(self) -> DelayQ:
        """Return a client; raises ConfigError."""
        return DelayQ(settings=self.with_server(self.settings))

    @contextmanager
    def audited(self, what: str, on: str, *, reason: str = "") -> Iterator[Deed]:
        """Write one line to the log `delayq.audit` after a change: by which user, what, on what, why, the outcome.

        The log is shown where the logging of the process is set up to show it.
        """
        deed = Deed(what, on, reason)
        try:
            yield deed
        except BaseException as error:
            deed.outcome = error.message if isinstance(error, DelayqError) else type(error).__name__
            raise
        finally:
            if audit.isEnabledFor(logging.INFO):
                about = {"user": _user(), "deed": what, "on": on, "reason": reason, "outcome": str(deed.outcome)}
                why = f" ({reason})" if reason else ""
                audit.info("%s: %s %s%s: %s", about["user"], what, on, why, deed.outcome, extra=about)


def embedded_of(settings: Settings) -> "EmbeddedServer":
    """Return the embedded server of the project that settings belong to, which need not run; raises ConfigError."""
    from delayq.redis.embedded.server import EmbeddedServer  # needed for no other server

    return EmbeddedServer.of_project(settings)


def session_of(context: typer.Context) -> CliSession:
    """Return the session that the root command made."""
    session: CliSession = context.obj
    return session


@contextmanager
def known_queue(client: DelayQ, queue: str | None) -> Iterator[None]:
    """Raise QueueNotFound in the place of JobNotFound when the queue that the user named is not known either."""
    try:
        yield
    except JobNotFound:
        if queue is not None:
            check_queue_known(client, queue)
        raise


def check_queue_known(client: DelayQ, queue: str) -> None:
    """Raise QueueNotFound for a queue that is not listed and of which Redis holds nothing: its name may be misspelt.

    For a user that may not read the list of queues, every queue counts as known.
    """
    (stats,) = client.stats(queue)
    if stats.lease_ms or stats.scheduled or stats.ready or stats.reserved or stats.failed or stats.completed:
        return
    try:
        is_listed = queue in client.queues()
    except CallRefused:
        return
    if not is_listed:
        raise QueueNotFound(f"No queue {queue!r} is known.", hint="`delayq stats` lists the queues.")


def _user() -> str:
    """Return who runs this command: the login that `sudo` hides, and the machine."""
    import getpass  # only the audit log needs it

    try:
        login = os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):
        login = str(os.getuid())
    return f"{login}@{socket.gethostname()}"
